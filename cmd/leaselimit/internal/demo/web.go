package demo

import (
	"bytes"
	"context"
	"crypto/sha256"
	_ "embed" // the template
	"encoding/base64"
	"errors"
	"fmt"
	"html/template"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/leaselimit/leaselimit"
	"github.com/leaselimit/leaselimit/debugpage"
	"github.com/leaselimit/leaselimit/metrics"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// web serves a run while it goes on: a chart, the debug page of the replicas, and their metrics. The nil web serves nothing.
type web struct {
	fleet  *fleet
	server *http.Server

	mu      sync.Mutex
	samples []sample
}

// A sample is what each replica had admitted at a time of the run.
type sample struct {
	at       time.Duration
	admitted []int64
}

var (
	//go:embed web.html
	webPage string
	//go:embed web.css
	webStyle string

	webTemplate = template.Must(template.New("web").Parse(webPage))
)

// newWeb serves f on the address of -http, if one was given, and says on w where.
func newWeb(ctx context.Context, f *fleet, w io.Writer, log *slog.Logger) (*web, error) {
	if f.http == "" {
		return nil, nil //nolint:nilnil // serves nothing
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", f.http)
	if err != nil {
		return nil, fmt.Errorf("-http: %w", err)
	}
	v := &web{fleet: f}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", v.chart)
	mux.Handle("/debug/leaselimit", debugpage.Handler(f.limiters()...))
	mux.Handle("GET /metrics", promhttp.HandlerFor(f.registry(), promhttp.HandlerOpts{}))
	v.server = &http.Server{Handler: mux, ReadHeaderTimeout: closeTimeout, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn)}
	go func() {
		if err := v.server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			log.Warn("the page is gone", "error", err)
		}
	}()
	if _, err := fmt.Fprintf(w, "chart on http://%s/\n", listener.Addr()); err != nil {
		return nil, errors.Join(err, v.close())
	}
	return v, nil
}

// follow takes samples until stop is closed.
func (v *web) follow(start time.Time, stop <-chan struct{}) {
	if v == nil {
		return
	}
	const most = 300 // samples in a chart
	ticker := time.NewTicker(max(v.fleet.duration/most, 50*time.Millisecond))
	defer ticker.Stop()
	for {
		s := sample{at: time.Since(start)}
		for _, r := range v.fleet.replicas {
			s.admitted = append(s.admitted, r.limiter.Stats().Allowed())
		}
		v.mu.Lock()
		v.samples = append(v.samples, s)
		v.mu.Unlock()
		select {
		case <-stop:
			return
		case <-ticker.C:
		}
	}
}

func (v *web) close() error {
	if v == nil {
		return nil
	}
	return v.server.Close()
}

func (v *web) chart(w http.ResponseWriter, _ *http.Request) {
	v.mu.Lock()
	samples := v.samples
	v.mu.Unlock()
	var body bytes.Buffer
	err := webTemplate.Execute(&body, newChart(samples, v.fleet.bound(), v.fleet.duration))
	if err != nil {
		http.Error(w, "the page cannot be made", http.StatusInternalServerError)
		return
	}
	sum := sha256.Sum256([]byte(webStyle))
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'sha256-"+base64.StdEncoding.EncodeToString(sum[:])+"'")
	h.Set("Refresh", "1")
	_, _ = w.Write(body.Bytes())
}

func (f *fleet) limiters() (all []*leaselimit.Limiter) {
	for _, r := range f.replicas {
		all = append(all, r.limiter)
	}
	return all
}

// registry has the metrics of the replicas, told apart by a label, as they would be by the instance of a scrape.
func (f *fleet) registry() *prometheus.Registry {
	reg := prometheus.NewRegistry()
	for i, r := range f.replicas {
		prometheus.WrapRegistererWith(prometheus.Labels{"replica": strconv.Itoa(i + 1)}, reg).MustRegister(metrics.NewCollector(r.limiter))
	}
	return reg
}
