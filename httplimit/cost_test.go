package httplimit_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leaselimit/leaselimit"
	"github.com/leaselimit/leaselimit/httplimit"
	"github.com/leaselimit/leaselimit/lease"
	"github.com/leaselimit/leaselimit/membucket"
	"github.com/leaselimit/leaselimit/quota"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// tap counts the draws from a store.
type tap struct {
	lease.Store

	draws atomic.Int64
}

func (s *tap) Acquire(ctx context.Context, req lease.AcquireRequest) (lease.Grant, error) {
	s.draws.Add(1)
	return s.Store.Acquire(ctx, req)
}

// A tenant without tokens that calls 10,000 times a second, by a handler that is built as the documentation shows it, asks the
// store as often as calls to the limiter do: hardly ever.
func TestPF10_DeniedTenantAsksAsRarelyAsTheBareLimiter(t *testing.T) {
	draws := func(call func(t *testing.T, lim *leaselimit.Limiter) (once func() bool)) (n int64) {
		synctest.Test(t, func(t *testing.T) {
			store := &tap{Store: membucket.New()}
			lim := newLimiter(t, store, limited(quota.PerMinute(6, 5)))
			once := call(t, lim)
			admitted := 0
			for range 10_000 {
				if once() {
					admitted++
				}
				time.Sleep(100 * time.Microsecond)
			}
			assert.Equal(t, 5, admitted)
			n = store.draws.Load()
		})
		return n
	}
	bare := draws(func(t *testing.T, lim *leaselimit.Limiter) func() bool {
		return func() bool {
			d, err := lim.Allow(t.Context(), "acme")
			return err == nil && d.Allowed
		}
	})
	layered := draws(func(t *testing.T, lim *leaselimit.Limiter) func() bool {
		mux := http.NewServeMux()
		mux.Handle("/", authenticate(httplimit.Middleware(lim, verified)(hello)))
		base := pipe(t, mux)
		return func() bool {
			return do(t, &http.Client{Transport: base}, request(t, http.MethodGet, url, nil, "Authorization", "Bearer a")).StatusCode == 200
		}
	})
	t.Logf("draws in 10,000 calls: %d by the limiter, %d by the middleware", bare, layered)
	assert.InDelta(t, bare, layered, 2)
	assert.Less(t, layered, int64(20))
}

// leased is a limiter that has a lease which outlasts the test.
func leased(tb testing.TB) *leaselimit.Limiter {
	tb.Helper()
	cfg := leaselimit.Config{
		Limits: quota.Fixed(quota.PerSecond(1_000_000, 1_000_000_000)), LeaseShare: 1, Replicas: 1,
		LeaseSize: 400_000_000, StoreTimeout: 10 * time.Second, LeaseTTL: time.Hour,
	}
	lim := newLimiter(tb, membucket.New(), cfg)
	_, err := lim.Allow(tb.Context(), "acme")
	require.NoError(tb, err)
	return lim
}

// quiet is a ResponseWriter whose header is used once for each request, as a server's is.
type quiet struct{ header http.Header }

func (w *quiet) Header() http.Header         { return w.header }
func (w *quiet) Write(p []byte) (int, error) { return len(p), nil }
func (w *quiet) WriteHeader(int)             {}

var empty = http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})

// once has h handle a request, with a fresh header.
func once(h http.Handler) func() {
	r := httptest.NewRequestWithContext(context.Background(), http.MethodGet, "/", nil)
	return func() { h.ServeHTTP(&quiet{make(http.Header)}, r) }
}

func TestAllocationsOfAnAdmittedRequest(t *testing.T) {
	lim := leased(t)
	bare := testing.AllocsPerRun(1000, once(empty))
	for sets, most := range map[httplimit.HeaderSet]float64{0: 0, httplimit.RateLimitDraft11: 3, allSets: 3} {
		got := testing.AllocsPerRun(1000, once(httplimit.Middleware(lim, acme, httplimit.WithHeaders(sets))(empty)))
		t.Logf("sets %b: %.0f allocations more than %.0f", sets, got-bare, bare)
		assert.LessOrEqual(t, got-bare, most, "sets %b", sets)
	}
}

func BenchmarkMiddleware(b *testing.B) {
	lim := leased(b)
	blocked := limiter(b, quota.Limit{})
	for name, h := range map[string]http.Handler{
		"handler=bare":             empty,
		"handler=limited":          httplimit.Middleware(lim, acme)(empty),
		"handler=limited/sets=0":   httplimit.Middleware(lim, acme, httplimit.WithHeaders(0))(empty),
		"handler=limited/sets=all": httplimit.Middleware(lim, acme, httplimit.WithHeaders(allSets))(empty),
		"handler=refused":          httplimit.Middleware(blocked, acme)(empty),
	} {
		b.Run(name, func(b *testing.B) {
			f := once(h)
			b.ReportAllocs()
			for b.Loop() {
				f()
			}
		})
	}
}
