package httplimit_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leaselimit/leaselimit"
	"github.com/leaselimit/leaselimit/httplimit"
	"github.com/leaselimit/leaselimit/membucket"
	"github.com/leaselimit/leaselimit/quota"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Field reports, by their ids: what others' limiters told clients wrongly.

func TestHP1_WhoWaitsAsToldIsAdmitted(t *testing.T) {
	for wait, want := range map[time.Duration]int{200 * time.Millisecond: 1, 1200 * time.Millisecond: 2, 5 * time.Second: 5} {
		synctest.Test(t, func(t *testing.T) {
			h := httplimit.Middleware(limiter(t, quota.Limit{Capacity: 1, Refill: 1, Per: wait}), acme)(hello)
			call := func() *httptest.ResponseRecorder {
				w := httptest.NewRecorder()
				h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil))
				return w
			}
			require.Equal(t, http.StatusOK, call().Code)
			for range 5 {
				time.Sleep(time.Millisecond) // the limiter's answers are up to 2 us on the safe side
				got := call()
				require.Equal(t, http.StatusTooManyRequests, got.Code)
				require.Equal(t, strconv.Itoa(want), got.Header().Get("Retry-After"), "%v", wait)
				require.Equal(t, int64(want), list(t, got.Header(), "RateLimit")["default"]["t"])
				time.Sleep(time.Duration(want) * time.Second)
				require.Equal(t, http.StatusOK, call().Code)
			}
		})
	}
}

// Whatever a limiter says, clients get whole seconds from 1 on, or nothing.
func TestHP2_RetryAfterIsWholeSeconds(t *testing.T) {
	for wait, want := range map[time.Duration]string{
		-time.Second: "1", 0: "1", 1: "1", time.Second: "1", time.Second + 1: "2", 90*time.Minute - 1: "5400",
		leaselimit.Never - 1: "9223372037", leaselimit.Never: "",
	} {
		got := get(t, limit(t, always(leaselimit.Decision{Limit: quota.PerSecond(1, 1), RetryAfter: wait})))
		assert.Equal(t, want, got.Header.Get("Retry-After"), "%v", wait)
		if want != "" {
			assert.Regexp(t, digits, got.Header.Get("Retry-After"))
		}
	}
}

func TestHP4_ResetIsNoPointInTime(t *testing.T) {
	srv := limit(t, limiter(t, quota.PerMinute(2, 2)), httplimit.WithHeaders(allSets))
	for _, want := range []string{"30", "60", "60"} {
		got := get(t, srv)
		assert.Equal(t, want, got.Header.Get("X-RateLimit-Reset"))
		assert.LessOrEqual(t, list(t, got.Header, "RateLimit")["default"]["t"], int64(60))
	}
}

func TestHP5_NoSentinelLeaks(t *testing.T) {
	for _, l := range []quota.Limit{{}, {Capacity: 1}, quota.PerSecond(1, 1), quota.PerMinute(1, 5), quota.Unlimited} {
		srv := limit(t, limiter(t, l), httplimit.WithHeaders(allSets))
		for range 3 {
			got := get(t, srv)
			if got.StatusCode == http.StatusOK {
				assert.NotContains(t, got.Header, "Retry-After")
			}
			for name, values := range got.Header {
				if name != "Date" && name != "Content-Type" && name != "Cache-Control" {
					assert.NotContains(t, values[0], "-", name)
				}
			}
			assert.NotContains(t, got.body, "-1")
		}
	}
}

func TestHP6_RemainingIsAfterTheCall(t *testing.T) {
	srv := limit(t, limiter(t, quota.Limit{Capacity: 3}), httplimit.WithHeaders(allSets))
	for _, want := range []struct {
		status int
		left   int64
	}{{200, 2}, {200, 1}, {200, 0}, {429, 0}} {
		got := get(t, srv)
		assert.Equal(t, want.status, got.StatusCode)
		assert.Equal(t, want.left, list(t, got.Header, "RateLimit")["default"]["r"])
		assert.Equal(t, strconv.FormatInt(want.left, 10), got.Header.Get("X-RateLimit-Remaining"))
		assert.NotContains(t, got.Header, "Retry-After", "nothing is refilled")
		assert.NotContains(t, got.Header, "X-Ratelimit-Reset")
	}
}

func TestHP8_AV8_CostAboveTheCapacity(t *testing.T) {
	for _, cost := range []int64{6, 10, 1 << 62} {
		lim := limiter(t, quota.PerSecond(1, 5))
		got := get(t, limit(t, lim, httplimit.WithHeaders(allSets), httplimit.WithCost(func(*http.Request) int64 { return cost })))
		assert.Equal(t, http.StatusTooManyRequests, got.StatusCode)
		assert.NotContains(t, got.Header, "Retry-After")
		assert.NotContains(t, list(t, got.Header, "RateLimit")["default"], "t")
		assert.Contains(t, got.problem(t)["detail"], "never")
		left := list(t, got.Header, "RateLimit")["default"]["r"]
		assert.True(t, left >= 0 && left <= 5, "%d", left)
		d, err := lim.Peek(t.Context(), "acme")
		require.NoError(t, err)
		assert.Equal(t, int64(5), d.Remaining, "nothing was spent")
	}
}

func TestHP11_AStoreThatIsAwayIsNoLimit(t *testing.T) {
	refused := get(t, limit(t, limiter(t, quota.Limit{})))
	assert.Equal(t, http.StatusTooManyRequests, refused.StatusCode)

	closed := get(t, limit(t, cutOff(t, leaselimit.FailClosed)))
	assert.Equal(t, http.StatusServiceUnavailable, closed.StatusCode)
	assert.Equal(t, "1", closed.Header.Get("Retry-After"))
	assert.Contains(t, closed.problem(t)["type"], "temporary-reduced-capacity")
	noNumbers(t, closed.Header)

	// This replica's share of the limit is a limit.
	srv := limit(t, cutOff(t, leaselimit.FailLocal), httplimit.WithHeaders(allSets))
	assert.Equal(t, http.StatusOK, get(t, srv).StatusCode)
	local := get(t, srv)
	assert.Equal(t, http.StatusTooManyRequests, local.StatusCode)
	assert.Equal(t, "60", local.Header.Get("Retry-After"), "a token of a quarter of 4 a minute")
	assert.Contains(t, local.problem(t)["type"], "quota-exceeded")
	noNumbers(t, local.Header)
}

func TestHP14_HealthChecksAreServedAndNotCharged(t *testing.T) {
	lim := &counting{Allower: limiter(t, quota.Limit{Capacity: 1})}
	srv := serve(t, authenticate(httplimit.Middleware(lim, verified,
		httplimit.WithExempt(func(r *http.Request) bool { return r.URL.Path == "/healthz" }),
		httplimit.WithExempt(httplimit.IsPreflight))(hello)))
	for range 3 {
		got := do(t, srv.Client(), request(t, http.MethodGet, srv.URL+"/healthz", nil)) // without credentials
		assert.Equal(t, http.StatusOK, got.StatusCode)
		noNumbers(t, got.Header)
	}
	assert.Zero(t, lim.n.Load())
	assert.Equal(t, http.StatusOK, get(t, srv, "Authorization", "Bearer a").StatusCode)
	assert.Equal(t, http.StatusTooManyRequests, get(t, srv, "Authorization", "Bearer a").StatusCode)
}

func TestHP15_BrowsersMayReadTheFields(t *testing.T) {
	h := http.Header{}
	h.Add("Access-Control-Expose-Headers", "ETag, retry-after")
	h.Add("Access-Control-Expose-Headers", "X-Request-Id")
	httplimit.Expose(h)
	httplimit.Expose(h)
	assert.Equal(t, []string{
		"ETag, retry-after", "X-Request-Id",
		"RateLimit, RateLimit-Policy, X-RateLimit-Limit, X-RateLimit-Remaining, X-RateLimit-Reset",
	}, h.Values("Access-Control-Expose-Headers"))

	// Whatever the middleware writes is in the list.
	got := get(t, limit(t, always(leaselimit.Decision{Limit: quota.PerSecond(1, 1)}), httplimit.WithHeaders(allSets)))
	for _, name := range httplimit.ExposedHeaders() {
		assert.NotEmpty(t, got.Header.Get(name), name)
		got.Header.Del(name)
	}
	noNumbers(t, got.Header)

	preflight := func(method, origin, asks string) bool {
		return httplimit.IsPreflight(&http.Request{Method: method, Header: http.Header{
			"Origin": {origin}, "Access-Control-Request-Method": {asks},
		}})
	}
	assert.True(t, preflight("OPTIONS", "https://app.example", "PUT"))
	assert.False(t, preflight("GET", "https://app.example", "PUT"))
	assert.False(t, preflight("OPTIONS", "", "PUT"))
	assert.False(t, preflight("OPTIONS", "https://app.example", ""))
}

// list, which all tests use, parses with a library.
func TestHP17_FieldsAreStructuredAsInTheDraft(t *testing.T) {
	srv := limit(t, limiter(t, quota.PerMinute(6, 10)))
	got := get(t, srv)
	assert.Equal(t, map[string]item{"default": {"q": 10, "w": 100}}, list(t, got.Header, "RateLimit-Policy"))
	assert.Equal(t, map[string]item{"default": {"r": 9, "t": 90}}, list(t, got.Header, "RateLimit"))
	assert.NotContains(t, got.Header, "X-Ratelimit-Limit", "only if asked for")
	for range 9 {
		get(t, srv)
	}
	got = get(t, srv)
	require.Equal(t, http.StatusTooManyRequests, got.StatusCode)
	assert.Equal(t, got.Header.Get("Retry-After"), strconv.FormatInt(list(t, got.Header, "RateLimit")["default"]["t"], 10),
		"Retry-After is not before the end of the window")
}

func TestHP22_NoFiguresWithoutTheStore(t *testing.T) {
	for _, policy := range []leaselimit.FailurePolicy{leaselimit.FailOpen, leaselimit.FailLocal, leaselimit.FailClosed} {
		var degraded int
		srv := limit(t, cutOff(t, policy), httplimit.WithHeaders(allSets),
			httplimit.WithObserver(func(_ *http.Request, e httplimit.Event) {
				if e.Decision.Degraded() {
					degraded++
				}
			}))
		for i := range 3 {
			got := get(t, srv)
			noNumbers(t, got.Header)
			admitted := policy == leaselimit.FailOpen || (policy == leaselimit.FailLocal && i == 0)
			assert.Equal(t, admitted, got.StatusCode == http.StatusOK, "%v: %d", policy, got.StatusCode)
			assert.Equal(t, !admitted, got.Header.Get("Retry-After") != "")
		}
		assert.Equal(t, 3, degraded, "the service is told")
	}
}

func TestAV1_CostsBelowOneAreFaultsOfTheService(t *testing.T) {
	for _, cost := range []int64{0, -100} {
		lim := limiter(t, quota.Limit{Capacity: 2})
		get(t, limit(t, lim))
		srv := limit(t, lim, httplimit.WithLogger(slog.New(slog.DiscardHandler)),
			httplimit.WithCost(func(*http.Request) int64 { return cost }))
		assert.Equal(t, http.StatusInternalServerError, get(t, srv).StatusCode)
		d, err := lim.Peek(t.Context(), "acme")
		require.NoError(t, err)
		assert.Equal(t, int64(1), d.Remaining)
	}
}

// An invalid limit admits nothing, and is no limit that a client exceeds.
func TestAV3_AV4_InvalidLimitsAdmitNothing(t *testing.T) {
	for _, l := range []quota.Limit{{Capacity: 5, Refill: 1}, {Capacity: -1}, {Capacity: 5, Refill: 1, Per: -time.Second}} {
		cfg := limited(quota.Limit{})
		cfg.Limits = quota.SourceFunc(func(context.Context, string) (quota.Limit, error) { return l, nil })
		got := get(t, limit(t, newLimiter(t, membucket.New(), cfg), httplimit.WithLogger(slog.New(slog.DiscardHandler))))
		assert.Equal(t, http.StatusServiceUnavailable, got.StatusCode)
		assert.NotContains(t, got.Header, "Retry-After")
	}
}

// A limiter for each request is wrong, as the documentation says: each asks the store anew. But the limit holds.
func TestAV7_LimiterBuiltInTheHandler(t *testing.T) {
	store := membucket.New()
	srv := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		lim, err := leaselimit.New(store, limited(quota.Limit{Capacity: 20}))
		if !assert.NoError(t, err) {
			return
		}
		httplimit.Middleware(lim, acme)(hello).ServeHTTP(w, r)
	}))
	admitted := 0
	for range 100 {
		if get(t, srv).StatusCode == http.StatusOK {
			admitted++
		}
	}
	assert.LessOrEqual(t, admitted, 20)
	assert.Positive(t, admitted)
	// That no limiter leaves a goroutine is seen at the end of all tests.
}

func TestAV12_NoTenant(t *testing.T) {
	lim := &counting{Allower: limiter(t, quota.Limit{Capacity: 1})}
	srv := serve(t, authenticate(httplimit.Middleware(lim, verified)(hello)))
	for range 3 {
		got := get(t, srv, "X-Tenant", "acme")
		assert.Equal(t, http.StatusUnauthorized, got.StatusCode)
		assert.Equal(t, map[string]any{"title": "Unauthorized", "status": 401.0}, got.problem(t))
		noNumbers(t, got.Header)
	}
	assert.Zero(t, lim.n.Load(), "they share no bucket")

	t.Run("error", func(t *testing.T) {
		cause := errors.New("token expired")
		var told error
		tenant := func(*http.Request) (string, error) { return "acme", cause }
		srv := serve(t, httplimit.Middleware(lim, tenant, httplimit.WithError(
			func(w http.ResponseWriter, _ *http.Request, err error) {
				told = err
				w.WriteHeader(http.StatusForbidden)
			}))(hello))
		assert.Equal(t, http.StatusForbidden, get(t, srv).StatusCode)
		require.ErrorIs(t, told, httplimit.ErrNoTenant)
		require.ErrorIs(t, told, cause)
	})
	t.Run("anonymous, by choice", func(t *testing.T) {
		tenant := func(r *http.Request) (string, error) {
			if name, _ := verified(r); name != "" {
				return name, nil
			}
			return "anonymous", nil
		}
		srv := serve(t, httplimit.Middleware(limiter(t, quota.Limit{Capacity: 1}), tenant)(hello))
		assert.Equal(t, 200, get(t, srv).StatusCode)
		assert.Equal(t, 429, get(t, srv).StatusCode)
	})
}

func TestAV17_ACapacityOfZeroRefusesAll(t *testing.T) {
	srv := limit(t, limiter(t, quota.Limit{Refill: 10, Per: time.Second}))
	for range 3 {
		got := get(t, srv)
		assert.Equal(t, http.StatusTooManyRequests, got.StatusCode)
		assert.Equal(t, map[string]item{"default": {"q": 0}}, list(t, got.Header, "RateLimit-Policy"))
		assert.NotContains(t, got.Header, "Retry-After")
	}
}
