package seen

import (
	"context"
	"errors"
	"flag"
	"log/slog"
	"net/http"
	"os/exec"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leaselimit/leaselimit"
	"github.com/leaselimit/leaselimit/lease"
	"github.com/leaselimit/leaselimit/membucket"
	"github.com/leaselimit/leaselimit/metrics"
	"github.com/leaselimit/leaselimit/quota"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/stretchr/testify/require"
)

var out = flag.String("out", "", "folder to which screenshots are written")

// program is a program that a test runs.
func program(t *testing.T, name, debian string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	require.NoError(t, err, "apt-get install -y --no-install-recommends %s", debian)
	return path
}

// wire is a store at the end of a wire that takes a moment and can be cut.
type wire struct {
	lease.Store

	cut atomic.Bool
}

func (w *wire) Acquire(ctx context.Context, req lease.AcquireRequest) (lease.Grant, error) {
	time.Sleep(time.Millisecond)
	if w.cut.Load() {
		return lease.Grant{}, &lease.StoreError{Op: "acquire", Reason: lease.ReasonRefused, Err: errors.New("dial tcp 10.0.0.7:6379: connect: connection refused")}
	}
	return w.Store.Acquire(ctx, req)
}

// service is a program with two limiters, whose tenants call all the time.
type service struct {
	api, export *leaselimit.Limiter
	limits      *quota.Cache
	wire        *wire
	down        atomic.Bool // the source of limits
}

const hostile = `<img src=x onerror=alert(1)>"'</td><script>alert(document.domain)</script>`

var tenants = []string{
	"acme", "globex", "initech", hostile, "umbrella-corporation-of-greater-metropolitan-north-by-northwest-0123456789abcdef",
	"hooli", "soylent", "stark", "wayne", "日本語のテナント",
}

func newService(t *testing.T) *service {
	t.Helper()
	s := &service{wire: &wire{Store: membucket.New()}}
	source := quota.SourceFunc(func(_ context.Context, tenant string) (quota.Limit, error) {
		if s.down.Load() {
			return quota.Limit{}, errors.New("no database")
		}
		if tenant == "acme" {
			return quota.PerSecond(20, 20), nil
		}
		return quota.PerSecond(100, 1000), nil
	})
	var err error
	quiet := slog.New(slog.DiscardHandler)
	s.limits, err = quota.NewCache(source, quota.CacheOptions{TTL: 500 * time.Millisecond, Logger: quiet})
	require.NoError(t, err)
	t.Cleanup(s.limits.Close)
	limiter := func(cfg leaselimit.Config) *leaselimit.Limiter {
		cfg.Logger, cfg.Replicas, cfg.StoreTimeout, cfg.LeaseTTL = quiet, 2, 500*time.Millisecond, 2*time.Second
		l, err := leaselimit.New(s.wire, cfg)
		require.NoError(t, err)
		t.Cleanup(func() { _ = l.Close(context.Background()) })
		return l
	}
	s.api = limiter(leaselimit.Config{Class: "api", Limits: s.limits})
	s.export = limiter(leaselimit.Config{Class: "export", Limits: quota.Fixed(quota.PerMinute(5, 5)), Shadow: true, MaxTenants: 4})
	return s
}

// traffic calls until ctx is done.
func (s *service) traffic(ctx context.Context) {
	for i := 0; ctx.Err() == nil; i++ {
		for j, name := range tenants {
			for range 1 + (len(tenants)-j)/3 {
				_, _ = s.api.Allow(ctx, name)
			}
		}
		if i%10 == 0 {
			_, _ = s.export.Allow(ctx, tenants[i/10%len(tenants)])
			_, _ = s.api.Peek(ctx, "globex")
			_, _ = s.export.AllowN(ctx, "acme", 50)
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

// start calls until the test ends.
func (s *service) start(t *testing.T) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.traffic(ctx)
	}()
	t.Cleanup(func() { stop(); <-done })
}

// metrics is what Prometheus scrapes.
func (s *service) metrics(t *testing.T) http.Handler {
	t.Helper()
	busiest, err := metrics.NewTenantCollector(metrics.TenantOptions{Names: []string{"acme"}, Top: 5}, s.api, s.export)
	require.NoError(t, err)
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(metrics.NewCollector(s.api, s.export), busiest, metrics.NewQuotaCollector("limits", s.limits))
	return promhttp.HandlerFor(reg, promhttp.HandlerOpts{})
}

// run calls for a while.
func (s *service) run(t *testing.T, d time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	s.traffic(ctx)
}
