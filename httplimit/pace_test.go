package httplimit_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leaselimit/leaselimit/httplimit"
	"github.com/leaselimit/leaselimit/quota"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// pacing are the options of a client that only paces itself.
var pacing = []httplimit.TransportOption{httplimit.WithPacing(), httplimit.WithMaxAttempts(1)}

func TestPacingKeepsWithinTheLimit(t *testing.T) {
	for _, limit := range []quota.Limit{
		quota.PerSecond(20, 40), quota.PerSecond(10, 10), quota.PerMinute(30, 6), quota.PerMinute(30, 1), quota.PerMinute(600, 30),
	} {
		t.Run(limit.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				base := pipe(t, httplimit.Middleware(limiter(t, limit), acme)(hello))
				count := func(c *http.Client, d time.Duration, callers int) (admitted, refused int) {
					var all sync.WaitGroup
					var mu sync.Mutex
					end := time.Now().Add(d)
					for range callers {
						all.Go(func() {
							for time.Now().Before(end) {
								status := do(t, c, request(t, http.MethodGet, url, nil)).StatusCode
								mu.Lock()
								if status == http.StatusOK {
									admitted++
								} else {
									refused++
								}
								mu.Unlock()
								time.Sleep(time.Millisecond)
							}
						})
					}
					all.Wait()
					return admitted, refused
				}
				c := &http.Client{Transport: httplimit.NewTransport(base, pacing...)}
				admitted, refused := count(c, 5*time.Minute, 1)
				most := float64(limit.Capacity) + 300_000*limit.PerMillisecond()
				t.Logf("%v: %d admitted of %.0f, %d refused", limit, admitted, most, refused)
				assert.LessOrEqual(t, float64(refused), 0.01*float64(admitted), "%v", limit)
				share := 0.95
				if limit.Capacity == 1 { // every request is held, and 17.5 % longer on average
					share = 0.82
				}
				assert.GreaterOrEqual(t, float64(admitted), share*most, "%v", limit)

				_, impolite := count(&http.Client{Transport: base}, time.Second, 1)
				assert.Greater(t, impolite, 500, "without pacing")
			})
		})
	}
}

// Callers that share a transport leave one by one.
func TestPacingOfManyCallers(t *testing.T) {
	low := reply{status: http.StatusOK, header: http.Header{
		"Ratelimit-Policy": {`"a";q=100;w=50, "b";q=1000`}, "Ratelimit": {`a;r=5;t=10, "b";r=900;t=1000`},
	}}
	polite(t, []reply{low}, pacing, func(t *testing.T, s *script, c *http.Client) {
		do(t, c, request(t, http.MethodGet, url, nil))
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() { do(t, c, request(t, http.MethodGet, url, nil)) })
		}
		all.Wait()
		for _, wait := range s.waits() {
			assert.GreaterOrEqual(t, wait, 2200*time.Millisecond)
			assert.LessOrEqual(t, wait, 2500*time.Millisecond)
		}
	})
}

// A burst above the limit: who was refused comes back one by one, at the rate of the limit, though the fields count whole seconds.
func TestPacingOfABurst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const callers = 80
		var arrivals atomic.Int64
		there := make(chan struct{}) // once all are
		limited := httplimit.Middleware(limiter(t, quota.PerSecond(20, 40)), acme)(hello)
		base := pipe(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if arrivals.Add(1) == callers {
				close(there)
			}
			<-there
			limited.ServeHTTP(w, r)
			time.Sleep(200 * time.Millisecond)
		}))
		c := &http.Client{Transport: httplimit.NewTransport(base, httplimit.WithPacing())}
		start := time.Now()
		var all sync.WaitGroup
		for range callers {
			all.Go(func() {
				assert.Equal(t, http.StatusOK, do(t, c, request(t, http.MethodGet, url, nil)).StatusCode)
			})
		}
		all.Wait()
		assert.EqualValues(t, callers+40, arrivals.Load(), "nobody is refused twice")
		// They are told 1 s, the refill of 40 takes 2, and each answer 0.2.
		assert.LessOrEqual(t, time.Since(start), 4*time.Second)
	})
}

func TestWhenPacingDoesNotHold(t *testing.T) {
	for name, header := range map[string]http.Header{
		"plenty":       {"Ratelimit-Policy": {`"a";q=100`}, "Ratelimit": {`"a";r=51;t=60`}},
		"from a cache": {"Ratelimit": {`"a";r=0;t=10`}, "Age": {"3"}},
		"malformed":    {"Ratelimit": {`"a";r=0;t=`}},
		"old draft":    {"Ratelimit": {`limit=100, remaining=0, reset=10`}},
		"negative":     {"Ratelimit": {`"a";r=-1;t=10`}},
		"no number":    {"Ratelimit": {`"a";r=0;t="10"`}},
		"no window":    {"Ratelimit": {`"a";r=0`}},
		"inner list":   {"Ratelimit": {`("a" "b");r=0;t=10`}},
		"absurd":       {"Ratelimit": {`"a";r=0;t=999999999999999`}}, // longer than WithMaxWait
		"none":         {},
	} {
		t.Run(name, func(t *testing.T) {
			polite(t, []reply{{status: 200, header: header}}, pacing, func(t *testing.T, s *script, c *http.Client) {
				for range 3 {
					do(t, c, request(t, http.MethodGet, url, nil))
				}
				assert.Equal(t, []time.Duration{0, 0}, s.waits())
			})
		})
	}
	empty := reply{status: http.StatusOK, header: http.Header{"Ratelimit": {`"a";r=0;t=20`}}}
	t.Run("past the deadline", func(t *testing.T) {
		polite(t, []reply{empty}, pacing, func(t *testing.T, s *script, c *http.Client) {
			c.Timeout = 5 * time.Second
			for range 3 {
				do(t, c, request(t, http.MethodGet, url, nil))
			}
			assert.Equal(t, []time.Duration{0, 0}, s.waits())
		})
	})
	t.Run("out of date", func(t *testing.T) {
		polite(t, []reply{empty}, pacing, func(t *testing.T, s *script, c *http.Client) {
			do(t, c, request(t, http.MethodGet, url, nil))
			time.Sleep(21 * time.Second)
			do(t, c, request(t, http.MethodGet, url, nil))
			assert.Equal(t, []time.Duration{21 * time.Second}, s.waits())
		})
	})
	t.Run("another origin", func(t *testing.T) {
		polite(t, []reply{empty}, pacing, func(t *testing.T, s *script, c *http.Client) {
			do(t, c, request(t, http.MethodGet, url, nil))
			do(t, c, request(t, http.MethodGet, "http://other.test/", nil))
			do(t, c, request(t, http.MethodGet, url, nil))
			assert.Zero(t, s.waits()[0])
			assert.GreaterOrEqual(t, s.waits()[1], 22*time.Second)
		})
	})
}

// An answer that a cache has just fetched is as good as the server's.
func TestPacingHeedsFreshAnswers(t *testing.T) {
	low := reply{status: http.StatusOK, header: http.Header{"Ratelimit": {`"a";r=0;t=20`}, "Age": {"0"}}}
	polite(t, []reply{low}, pacing, func(t *testing.T, s *script, c *http.Client) {
		do(t, c, request(t, http.MethodGet, url, nil))
		do(t, c, request(t, http.MethodGet, url, nil))
		assert.GreaterOrEqual(t, s.waits()[0], 22*time.Second)
	})
}

func TestCancelledWhileItIsHeld(t *testing.T) {
	low := reply{status: http.StatusOK, header: http.Header{"Ratelimit": {`"a";r=0;t=20`}}}
	polite(t, []reply{low}, pacing, func(t *testing.T, s *script, c *http.Client) {
		do(t, c, request(t, http.MethodGet, url, nil))
		cause := errors.New("shutting down")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(cause) })
		body := &closed{Reader: strings.NewReader("body")}
		start := time.Now()
		resp, err := c.Do(request(t, http.MethodPost, url, body).WithContext(ctx)) //nolint:bodyclose // there is none
		require.ErrorIs(t, err, cause)
		assert.Nil(t, resp)
		assert.Equal(t, time.Second, time.Since(start))
		assert.Equal(t, 1, body.n, "the body that was not sent is closed")
		assert.Len(t, s.arrivals, 1)
	})
}

// What a request is held counts against its patience as much as what it waits after a refusal.
func TestPacingAndRetriesShareTheWait(t *testing.T) {
	refused := busy(http.StatusTooManyRequests, "10")
	refused.header["Ratelimit"] = []string{`"a";r=0;t=10`}
	low := reply{status: http.StatusOK, header: http.Header{"Ratelimit": {`"a";r=0;t=10`}}}
	opts := []httplimit.TransportOption{httplimit.WithPacing(), httplimit.WithMaxWait(21 * time.Second)}
	polite(t, []reply{low, refused}, opts, func(t *testing.T, s *script, c *http.Client) {
		do(t, c, request(t, http.MethodGet, url, nil))
		assert.Equal(t, http.StatusTooManyRequests, do(t, c, request(t, http.MethodGet, url, nil)).StatusCode)
		assert.Len(t, s.arrivals, 2, "there was no time for another attempt")
	})
}
