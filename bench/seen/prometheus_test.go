package seen

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/leaselimit/leaselimit/internal/childproc"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const docs = "../../docs"

func TestTheAlertsFire(t *testing.T) {
	for _, args := range [][]string{
		{"check", "rules", filepath.Join(docs, "alerts.yml")},
		{"test", "rules", filepath.Join(docs, "alerts_test.yml")},
	} {
		text, err := exec.CommandContext(t.Context(), program(t, "promtool", "prometheus"), args...).CombinedOutput()
		require.NoError(t, err, "%s", text)
	}
}

// queries are all queries of the dashboard, and of the alerts, as a browser would send them.
func queries(t *testing.T) (all []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(docs, "grafana", "leaselimit.json"))
	require.NoError(t, err)
	var dashboard struct {
		Panels []struct {
			ID      int
			Title   string
			Targets []struct{ Expr string }
		}
	}
	require.NoError(t, json.Unmarshal(text, &dashboard))
	ids := map[int]bool{}
	fill := strings.NewReplacer("$__rate_interval", "5s", "$job", ".*", "$class", ".*")
	for _, p := range dashboard.Panels {
		require.False(t, ids[p.ID], "two panels with the id %d", p.ID)
		ids[p.ID] = true
		for _, target := range p.Targets {
			q := fill.Replace(target.Expr)
			require.NotContains(t, q, "$", p.Title)
			all = append(all, q)
		}
	}
	require.Greater(t, len(all), 25)
	return all
}

// aPrometheus scrapes target every second.
func aPrometheus(t *testing.T, target string, flags ...string) (address string) {
	t.Helper()
	dir := t.TempDir()
	rules, err := filepath.Abs(filepath.Join(docs, "alerts.yml"))
	require.NoError(t, err)
	config := fmt.Sprintf(`
global: {scrape_interval: 1s, evaluation_interval: 1s}
rule_files: [%q]
scrape_configs:
  - job_name: api
    static_configs: [{targets: [%q]}]
`, rules, strings.TrimPrefix(target, "http://"))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "prometheus.yml"), []byte(config), 0o600))
	port, err := childproc.Ports.Take() // Prometheus has no port 0
	require.NoError(t, err)
	t.Cleanup(func() { childproc.Ports.Put(port) }) // once it has ended
	address = net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	log, err := os.Create(filepath.Join(dir, "log"))
	require.NoError(t, err)
	flags = append(flags, "--config.file="+filepath.Join(dir, "prometheus.yml"), "--storage.tsdb.path="+filepath.Join(dir, "data"),
		"--web.listen-address="+address)
	cmd := exec.CommandContext(t.Context(), program(t, "prometheus", "prometheus"), flags...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Wait() // the context of the test has ended it
		if t.Failed() {
			text, _ := os.ReadFile(log.Name())
			t.Logf("prometheus: %s", text)
		}
		_ = log.Close()
	})
	return "http://" + address
}

// ask is what a query finds now; nothing before Prometheus listens.
func ask(ctx context.Context, address, query string) (result []struct {
	Metric map[string]string
	Value  [2]any
}, err error,
) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address+"/api/v1/query?query="+url.QueryEscape(query), nil)
	if err != nil {
		return nil, err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		return nil, err
	}
	var body struct {
		Status, Error string
		Data          struct {
			Result json.RawMessage
		}
	}
	if err := json.Unmarshal(text, &body); err != nil || body.Status != "success" {
		return nil, fmt.Errorf("%w: %s", err, text)
	}
	return result, json.Unmarshal(body.Data.Result, &result)
}

func TestEveryQueryFindsSomething(t *testing.T) {
	s := newService(t)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.traffic(ctx)
	}()
	defer func() { stop(); <-done }()
	server := httptest.NewServer(s.metrics(t))
	defer server.Close()
	address := aPrometheus(t, server.URL)

	native := aPrometheus(t, server.URL, "--enable-feature=native-histograms")

	for _, q := range queries(t) {
		finds(t, address, q)
	}
	finds(t, native, `histogram_quantile(0.99, rate(leaselimit_store_call_duration_seconds{op="acquire"}[5s])) > 0`)

	// An outage of the store and of the source of limits is there to be seen.
	s.wire.cut.Store(true)
	s.down.Store(true)
	for _, q := range []string{
		`leaselimit_degraded == 1`,
		`rate(leaselimit_store_calls_total{reason="refused"}[5s]) > 0`,
		`rate(leaselimit_decisions_total{source="fallback"}[5s]) > 0`,
		`leaselimit_quota_oldest_stale_seconds > 0`,
		`ALERTS{alertname="LeaselimitDegraded", alertstate="pending"}`,
	} {
		finds(t, address, q)
	}
}

// finds waits until a query finds something.
func finds(t *testing.T, address, query string) {
	t.Helper()
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		found, err := ask(t.Context(), address, query)
		assert.NoError(c, err)
		assert.NotEmpty(c, found)
	}, time.Minute, 200*time.Millisecond, query)
}

var series = regexp.MustCompile(`leaselimit_[a-z_]+`)

// docs/metrics.md lists what there is, and nothing else.
func TestTheListOfSeriesIsWhole(t *testing.T) {
	s := newService(t)
	s.run(t, time.Second)
	w := httptest.NewRecorder()
	s.metrics(t).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil))
	there := map[string]bool{}
	for line := range strings.SplitSeq(w.Body.String(), "\n") {
		if fields := strings.Fields(line); len(fields) == 4 && fields[1] == "TYPE" {
			there[fields[2]] = true
		}
	}
	text, err := os.ReadFile(filepath.Join(docs, "metrics.md"))
	require.NoError(t, err)
	for _, name := range series.FindAllString(string(text), -1) {
		if strings.HasPrefix(name, "leaselimit_serve_") {
			continue // of the command
		}
		base := strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(name, "_bucket"), "_sum"), "_count")
		assert.True(t, there[name] || there[base], "%s is in metrics.md and not there", name)
	}
	for name := range there {
		assert.Contains(t, string(text), "`"+name, "metrics.md does not have it")
	}
}
