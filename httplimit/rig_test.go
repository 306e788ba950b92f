package httplimit_test

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dunglas/httpsfv"
	"github.com/leaselimit/leaselimit"
	"github.com/leaselimit/leaselimit/httplimit"
	"github.com/leaselimit/leaselimit/lease"
	"github.com/leaselimit/leaselimit/membucket"
	"github.com/leaselimit/leaselimit/quota"
	"github.com/leaselimit/leaselimit/redisbucket"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// limited is the Config of a fixed limit, on a machine that may be busy.
func limited(limit quota.Limit) leaselimit.Config {
	return leaselimit.Config{Limits: quota.Fixed(limit), StoreTimeout: 10 * time.Second, Exact: true}
}

func newLimiter(t testing.TB, store lease.Store, cfg leaselimit.Config) *leaselimit.Limiter {
	t.Helper()
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	lim, err := leaselimit.New(store, cfg)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, lim.Close(context.Background())) })
	return lim
}

// limiter is one over a bucket of its own.
func limiter(t testing.TB, limit quota.Limit) *leaselimit.Limiter {
	t.Helper()
	return newLimiter(t, membucket.New(), limited(limit))
}

// cutOff is a limiter whose Redis is not there.
func cutOff(t testing.TB, policy leaselimit.FailurePolicy) *leaselimit.Limiter {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close()) // so that nobody listens there
	rdb := redis.NewClient(&redis.Options{Addr: l.Addr().String(), MaxRetries: -1, DialerRetries: 1})
	t.Cleanup(func() { assert.NoError(t, rdb.Close()) })
	cfg := limited(quota.PerMinute(4, 4))
	cfg.OnFailure = policy
	return newLimiter(t, redisbucket.New(rdb), cfg)
}

// decide is an Allower whose answer is known.
type decide func(tenant string, cost int64) (leaselimit.Decision, error)

func (f decide) AllowN(_ context.Context, tenant string, cost int64) (leaselimit.Decision, error) {
	return f(tenant, cost)
}

func always(d leaselimit.Decision) decide {
	return func(string, int64) (leaselimit.Decision, error) { return d, nil }
}

// counting counts what a handler's requests ask of a limiter.
type counting struct {
	httplimit.Allower

	n atomic.Int64
}

func (c *counting) AllowN(ctx context.Context, tenant string, cost int64) (leaselimit.Decision, error) {
	c.n.Add(1)
	return c.Allower.AllowN(ctx, tenant, cost)
}

// identity is the key of what authenticate found out.
type identity struct{}

// authenticate stands for a real authentication middleware.
func authenticate(next http.Handler) http.Handler {
	tokens := map[string]string{"Bearer a": "acme", "Bearer g": "globex"}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if tenant, ok := tokens[r.Header.Get("Authorization")]; ok {
			r = r.WithContext(context.WithValue(r.Context(), identity{}, tenant))
		}
		next.ServeHTTP(w, r)
	})
}

func verified(r *http.Request) (string, error) {
	tenant, _ := r.Context().Value(identity{}).(string)
	return tenant, nil
}

func acme(*http.Request) (string, error) { return "acme", nil }

var hello = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") })

// serve serves h on loopback.
func serve(t testing.TB, h http.Handler) *httptest.Server {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	return srv
}

// limit serves what acme may see of hello.
func limit(t testing.TB, lim httplimit.Allower, opts ...httplimit.Option) *httptest.Server {
	t.Helper()
	return serve(t, httplimit.Middleware(lim, acme, opts...)(hello))
}

// answer is a response whose body was read.
type answer struct {
	*http.Response

	body string
}

func do(t testing.TB, client *http.Client, req *http.Request) answer {
	t.Helper()
	resp, err := client.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return answer{resp, string(body)}
}

func get(t testing.TB, srv *httptest.Server, header ...string) answer {
	t.Helper()
	return do(t, srv.Client(), request(t, http.MethodGet, srv.URL, nil, header...))
}

func request(t testing.TB, method, url string, body io.Reader, header ...string) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, body)
	require.NoError(t, err)
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	return req
}

// problem is the body of a refusal.
func (a answer) problem(t testing.TB) map[string]any {
	t.Helper()
	assert.Equal(t, "application/problem+json", a.Header.Get("Content-Type"))
	var p map[string]any
	require.NoError(t, json.Unmarshal([]byte(a.body), &p), a.body)
	assert.InDelta(t, a.StatusCode, p["status"], 0)
	return p
}

// item is an item of a structured field, with parameters that are integers.
type item map[string]int64

// list parses a field with a library, and checks what the draft says of its values.
func list(t testing.TB, h http.Header, field string) map[string]item {
	t.Helper()
	values := h.Values(field)
	if len(values) == 0 {
		return nil
	}
	parsed, err := httpsfv.UnmarshalList(values)
	require.NoError(t, err, "%s: %q", field, values)
	require.NotEmpty(t, parsed)
	out := map[string]item{}
	for _, member := range parsed {
		it, ok := member.(httpsfv.Item)
		require.True(t, ok)
		name, ok := it.Value.(string)
		require.True(t, ok, "the name is a string")
		out[name] = item{}
		for _, key := range it.Params.Names() {
			value, _ := it.Params.Get(key)
			n, ok := value.(int64)
			require.True(t, ok, "%s is an integer", key)
			require.GreaterOrEqual(t, n, int64(0))
			require.True(t, key != "w" || n > 0, "a window is not 0")
			out[name][key] = n
		}
	}
	return out
}

var digits = regexp.MustCompile(`^[0-9]+$`)

// noNumbers checks that nothing tells of a limit.
func noNumbers(t testing.TB, h http.Header) {
	t.Helper()
	for name := range h {
		assert.NotContains(t, name, "Ratelimit", "%v", h)
	}
}
