package httplimit_test

import (
	"maps"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leaselimit/leaselimit/httplimit"
	"github.com/leaselimit/leaselimit/internal/patience"
	"github.com/leaselimit/leaselimit/quota"
	"github.com/stretchr/testify/assert"
)

// A thousand clients that were refused at the same moment come back over 15 % of what they were told to wait, and none of them
// early. Each has a transport of its own, as if on a machine of its own.
func TestRefusedClientsDoNotReturnTogether(t *testing.T) {
	const clients = 1000
	for _, tt := range []struct {
		limit quota.Limit
		wait  time.Duration // what all of them are told
	}{
		{quota.PerMinute(60, 1), time.Second},
		{quota.PerMinute(6, 1), 10 * time.Second},
		{quota.PerMinute(3, 1), 20 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			var mu sync.Mutex
			var returns []time.Duration
			lim := limiter(t, tt.limit)
			start := time.Now()
			base := pipe(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if at := time.Since(start); at > 0 {
					mu.Lock()
					returns = append(returns, at)
					mu.Unlock()
				}
				httplimit.Middleware(lim, acme)(hello).ServeHTTP(w, r)
			}))
			_, err := lim.Allow(t.Context(), "acme") // the last token
			assert.NoError(t, err)
			synctest.Wait()
			time.Sleep(time.Millisecond)
			start = time.Now()
			var all sync.WaitGroup
			for range clients {
				c := &http.Client{Transport: httplimit.NewTransport(base, httplimit.WithMaxAttempts(2))}
				all.Go(func() { do(t, c, request(t, http.MethodGet, url, nil)) })
			}
			all.Wait()

			assert.Len(t, returns, clients)
			bins := map[int]int{} // of 100 ms
			instants := map[time.Duration]int{}
			for _, at := range returns {
				bins[int(at/(100*time.Millisecond))]++
				instants[at]++
			}
			heaviest := slices.Max(slices.Collect(maps.Values(bins)))
			t.Logf("told %v: back from %v to %v, at most %d in 100 ms", tt.wait, slices.Min(returns), slices.Max(returns), heaviest)
			assert.GreaterOrEqual(t, slices.Min(returns), tt.wait*110/100)
			assert.LessOrEqual(t, slices.Max(returns), tt.wait*125/100)
			even := clients * int(100*time.Millisecond) / int(tt.wait*15/100)
			assert.LessOrEqual(t, heaviest, even+even/2+10, "as good as evenly")
			assert.LessOrEqual(t, slices.Max(slices.Collect(maps.Values(instants))), 3, "at one instant")
		})
	}
}

// A spread of the answers has also those clients come back apart that wait exactly as told, none of them early. Polite ones are not
// all back in the same few tenths of a second.
func TestWithRetrySpread(t *testing.T) {
	const clients, spread = 1000, 10 * time.Second
	for _, polite := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			lim := limiter(t, quota.PerMinute(60, 1))
			_, err := lim.Allow(t.Context(), "acme") // the last token
			assert.NoError(t, err)
			synctest.Wait()
			time.Sleep(time.Millisecond)
			var observed atomic.Int64
			base := pipe(t, httplimit.Middleware(lim, acme, httplimit.WithRetrySpread(spread),
				httplimit.WithObserver(func(_ *http.Request, e httplimit.Event) {
					if e.Decision.RetryAfter <= time.Second {
						observed.Add(1)
					}
				}))(hello))
			returns := make(chan time.Duration, clients)
			start := time.Now()
			var all sync.WaitGroup
			for range clients {
				all.Go(func() {
					got := do(t, &http.Client{Transport: base}, request(t, http.MethodGet, url, nil))
					assert.Equal(t, http.StatusTooManyRequests, got.StatusCode)
					told, err := strconv.Atoi(got.Header.Get("Retry-After"))
					assert.NoError(t, err)
					assert.Equal(t, int64(told), list(t, got.Header, "RateLimit")["default"]["t"])
					wait := time.Duration(told) * time.Second
					if polite {
						wait = patience.Jitter(wait)
					}
					time.Sleep(wait)
					returns <- time.Since(start)
				})
			}
			all.Wait()
			close(returns)
			assert.EqualValues(t, clients, observed.Load(), "the service sees the decision as it was")
			bins := map[time.Duration]int{} // of 100 ms
			first, last := time.Hour, time.Duration(0)
			for at := range returns {
				bins[at.Truncate(100*time.Millisecond)]++
				first, last = min(first, at), max(last, at)
			}
			heaviest := slices.Max(slices.Collect(maps.Values(bins)))
			t.Logf("polite %v: back from %v to %v, at most %d in 100 ms", polite, first, last, heaviest)
			assert.GreaterOrEqual(t, first, time.Second)
			most := 160 // of 100 told each second, which is beyond 6 standard deviations
			if polite {
				most = 90 // 33 are due in the fullest tenth of a second, of those told 2 s
			}
			assert.LessOrEqual(t, heaviest, most)
		})
	}
}
