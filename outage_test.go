package leaselimit_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"testing"
	"time"

	"github.com/leaselimit/leaselimit"
	"github.com/leaselimit/leaselimit/internal/redistest"
	"github.com/leaselimit/leaselimit/lease"
	"github.com/leaselimit/leaselimit/quota"
	"github.com/leaselimit/leaselimit/redisbucket"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// RF12: what is admitted in an outage is bounded from its begin on: no failure makes a new beginning, and it can be seen.
func TestRF12_AnOutageDoesNotBeginAnew(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newTap()
		s.onAcquire(down)
		cfg := limited(quota.PerSecond(40, 40))
		cfg.Replicas = 4
		lim := newLimiter(t, s, cfg)
		admitted, begin := 0, time.Now()
		for time.Since(begin) < 2*time.Minute {
			admitted += calls(t, lim, "acme", 1)
			time.Sleep(20 * ms)
		}
		assert.LessOrEqual(t, admitted, 10+10*120)
		assert.GreaterOrEqual(t, admitted, 10*119)
		st := lim.Stats()
		assert.True(t, st.BreakerOpen)
		assert.InDelta(t, 120, st.DegradedFor.Seconds(), 1)
		assert.Greater(t, st.Failures[lease.ReasonRefused], int64(100))
		assert.EqualValues(t, admitted, st.AllowedFallback)
	})
}

// RF13: however the store fails, the answer is the policy's and no error.
func TestRF13_EveryFailureIsDecidedByThePolicy(t *testing.T) {
	faults := map[string]acquireHook{
		"connect": down,
		"send": func(context.Context, lease.AcquireRequest, acquireNext) (lease.Grant, error) {
			return lease.Grant{}, io.ErrClosedPipe
		},
		"read": func(_ context.Context, _ lease.AcquireRequest, next acquireNext) (lease.Grant, error) {
			_, _ = next()
			return lease.Grant{}, io.ErrUnexpectedEOF
		},
		"hang":  hang,
		"panic": func(context.Context, lease.AcquireRequest, acquireNext) (lease.Grant, error) { panic("at the disco") },
	}
	for _, reason := range lease.Reasons() {
		faults[string(reason)] = func(context.Context, lease.AcquireRequest, acquireNext) (lease.Grant, error) {
			return lease.Grant{}, &lease.StoreError{Op: "acquire", Reason: reason, Err: errors.New("an answer")}
		}
	}
	for name, fault := range faults {
		for _, policy := range []leaselimit.FailurePolicy{leaselimit.FailLocal, leaselimit.FailOpen, leaselimit.FailClosed} {
			t.Run(fmt.Sprint(name, " ", policy), func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					s := newTap()
					s.onAcquire(fault)
					cfg := limited(still(1000))
					cfg.OnFailure = policy
					lim := newLimiter(t, s, cfg)
					for range 20 {
						d := call(t, lim, "acme", 1) // which takes no error
						require.True(t, d.Degraded())
						require.Equal(t, policy != leaselimit.FailClosed, d.Allowed)
						time.Sleep(100 * ms)
					}
					st, sum := lim.Stats(), int64(0)
					for _, n := range st.Failures {
						sum += n
					}
					assert.Positive(t, sum)
					bucket := name == string(lease.ReasonWrongType) || name == string(lease.ReasonMalformed)
					assert.Equal(t, !bucket, st.BreakerOpen)
				})
			})
		}
	}
}

// RF18: what timed out in an outage is not drawn when the server is back, but for what it had been sent before anybody knew.
func TestRF18_NothingIsOwedAfterAnOutage(t *testing.T) {
	server := redistest.Start(t)
	rdb := server.Client(t, func(o *redis.Options) { o.ContextTimeoutEnabled = true })
	store := redisbucket.New(rdb)
	warm(t, store)
	cfg := limited(still(100))
	cfg.OnFailure, cfg.StoreTimeout = leaselimit.FailClosed, 200*ms
	lim := newLimiter(t, store, cfg)
	server.Pause()
	for n := 0; n < 50 || !lim.Stats().BreakerOpen; n++ {
		require.Less(t, n, 1000, "the breaker stays closed")
		d, err := lim.Allow(t.Context(), "acme")
		require.NoError(t, err)
		require.True(t, d.Degraded())
		<-time.After(5 * ms)
	}
	server.Resume()
	// Probes find out. A call would draw, and fail where only the machine is slow.
	require.Eventually(t, func() bool { return !lim.Stats().BreakerOpen }, time.Minute, 5*ms)
	failed := lim.Stats().DrawFailures
	require.NoError(t, lim.Close(t.Context()))
	tokens, _ := level(t, store, "acme", still(100))
	assert.GreaterOrEqual(t, tokens, float64(100-failed), "at most what the draws asked for that were sent")
	assert.LessOrEqual(t, failed, int64(4))
}

// While Redis hangs there are no more goroutines behind it than draws were sent before that was found out.
func TestNoGoroutinesPileUpWhileTheStoreHangs(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newTap()
		s.onAcquire(func(context.Context, lease.AcquireRequest, acquireNext) (lease.Grant, error) {
			time.Sleep(3 * time.Second) // a client that does not mind contexts
			return lease.Grant{}, &lease.StoreError{Op: "acquire", Reason: lease.ReasonTimeout, Err: context.DeadlineExceeded}
		})
		lim := newLimiter(t, s, limited(still(1000)))
		for i := range 3 {
			require.True(t, call(t, lim, fmt.Sprint("first", i), 1).Degraded())
		}
		require.True(t, lim.Stats().BreakerOpen)
		before := runtime.NumGoroutine()
		for i := range 5000 {
			begin := time.Now()
			require.True(t, call(t, lim, fmt.Sprint(i), 1).Degraded())
			require.Zero(t, time.Since(begin))
			time.Sleep(ms)
		}
		assert.LessOrEqual(t, runtime.NumGoroutine(), before+20, "probes")
	})
}
