package leaselimit_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leaselimit/leaselimit"
	"github.com/leaselimit/leaselimit/lease"
	"github.com/leaselimit/leaselimit/membucket"
	"github.com/leaselimit/leaselimit/quota"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// Field cases of groups 1 and 2 at the limiter: units and clocks.

// Two replicas whose clocks differ: their time never crosses the wire.
func TestCL1_ClocksOfReplicasDoNotMatter(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := membucket.New()
		limit := quota.PerSecond(20, 10)
		first := newLimiter(t, store, limited(limit))
		time.Sleep(10 * time.Second) // clocks count from New
		second := newLimiter(t, store, limited(limit))
		admitted := int64(0)
		for i := range 1000 {
			lim := first
			if i%2 == 0 {
				lim = second
			}
			if call(t, lim, "acme", 1).Allowed {
				admitted++
			}
			time.Sleep(ms)
		}
		assert.LessOrEqual(t, admitted, 10+20+first.Bound("acme").Tokens)
		assert.GreaterOrEqual(t, admitted, int64(25))
	})
}

// A replica that did not run while its lease ended spends nothing of it. Here the store is away, so the lease cannot be
// replaced, and the return is held up, so nothing but the clock ends it.
func TestCL6_NothingIsSpentOfALeaseThatHasEnded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newTap()
		cfg := limited(still(100))
		cfg.LeaseTTL, cfg.LeaseSize, cfg.OnFailure, cfg.Replicas = 2*time.Second, 20, leaselimit.FailClosed, 1
		lim := newLimiter(t, s, cfg)
		require.True(t, call(t, lim, "acme", 1).Allowed)
		require.Equal(t, int64(20), lim.Stats().TokensHeld)
		s.onAcquire(down)
		time.Sleep(time.Minute)
		assert.Zero(t, calls(t, lim, "acme", 100))
		st := lim.Stats()
		assert.Zero(t, st.AllowedLease)
		assert.Equal(t, int64(20), st.TokensReturned)
	})
}

func TestAR13_AFastPollerGetsEveryToken(t *testing.T) {
	for _, every := range []time.Duration{10 * ms, 500 * ms} {
		t.Run(every.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := newTap()
				limit := quota.PerSecond(1, 1)
				lim := newLimiter(t, s, limited(limit))
				drain(t, s, "acme", limit, 0)
				admitted := 0
				for range int(10 * time.Second / every) {
					time.Sleep(every)
					admitted += calls(t, lim, "acme", 1)
				}
				assert.InDelta(t, 10, admitted, 1)
			})
		})
	}
}

func TestAR21_TheFirstSecondPassesCapacityAndRefill(t *testing.T) {
	bubble(t, func(t *testing.T) {
		lim := newLimiter(t, newTap(), limited(quota.PerSecond(10, 10)))
		admitted := 0
		for range 1000 {
			admitted += calls(t, lim, "acme", 1)
			time.Sleep(ms)
		}
		assert.LessOrEqual(t, admitted, 20+1, "capacity, refill and a budget of one")
		assert.GreaterOrEqual(t, admitted, 17)
	})
}

func TestAR22_ASmallShareIsNotNothing(t *testing.T) {
	for capacity := int64(1); capacity <= 3; capacity++ {
		for _, share := range []float64{0.01, 0.25, 1} {
			for _, size := range []int64{0, 1, 5} {
				t.Run(fmt.Sprintf("%d, share %v, size %d", capacity, share, size), func(t *testing.T) {
					bubble(t, func(t *testing.T) {
						cfg := limited(still(capacity))
						cfg.LeaseShare, cfg.LeaseSize = share, size
						lim := newLimiter(t, newTap(), cfg)
						assert.Equal(t, int(capacity), calls(t, lim, "acme", 10))
						assert.False(t, call(t, lim, "acme", 1).Allowed)
					})
				})
			}
		}
	}
}

// A deficit that is nearly nothing must not become a loop of questions.
func TestAR24_ATinyDeficitDoesNotBusyTheStore(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newTap()
		limit := quota.PerSecond(1, 10)
		lim := newLimiter(t, s, limited(limit))
		drain(t, s, "acme", limit, 0)
		time.Sleep(time.Second - time.Microsecond) // one millionth is missing
		d := call(t, lim, "acme", 1)
		if !d.Allowed {
			assert.Positive(t, d.RetryAfter)
		}
		others := 0
		for range 10_000 {
			drain(t, s, "acme", limit, 0) // others take each token first
			d := call(t, lim, "acme", 1)
			if !d.Allowed {
				require.Positive(t, d.RetryAfter, "strictly after now")
			}
			others++
			time.Sleep(100 * time.Microsecond)
		}
		assert.LessOrEqual(t, len(s.draws()), 20, "in a second")
	})
}

// The stores cut off what is below a microsecond, at the refusal and after the wait. That is for RetryAfter to add.
func TestRetryAfterIsLongEnoughToTheMicrosecond(t *testing.T) {
	bubble(t, func(t *testing.T) {
		lim := newLimiter(t, membucket.New(), limited(quota.PerSecond(3, 1)))
		require.True(t, call(t, lim, "acme", 1).Allowed)
		d := call(t, lim, "acme", 1)
		require.False(t, d.Allowed)
		time.Sleep(d.RetryAfter)
		again := call(t, lim, "acme", 1)
		assert.True(t, again.Allowed, "%v; then %v", d, again)
	})
}

// A client that is alone and waits for RetryAfter is admitted, whatever it did before.
func TestWhoWaitsForRetryAfterIsAdmitted(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { loneClient(t, 0) })
}

// The same with a coarse clock: what is read from memory is past, and must not refuse what has been refilled since.
func TestWhoWaitsForRetryAfterIsAdmittedByACoarseClock(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		loneClient(t, rapid.SampledFrom([]time.Duration{ms, 5 * ms, 10 * ms}).Draw(t, "coarse"))
	})
}

func loneClient(t *rapid.T, coarse time.Duration) {
	capacity := rapid.Int64Range(1, 300).Draw(t, "capacity")
	limit := quota.Limit{
		Capacity: capacity, Refill: rapid.Int64Range(1, 500).Draw(t, "refill"),
		Per: rapid.SampledFrom([]time.Duration{time.Second, 7 * time.Second, time.Minute, 999_999_937}).Draw(t, "per"),
	}
	cfg := limited(limit)
	cfg.Exact = rapid.Bool().Draw(t, "exact")
	cfg.LeaseTTL = rapid.SampledFrom([]time.Duration{time.Second, 5 * time.Second, 30 * time.Second}).Draw(t, "ttl")
	cfg.CoarseClock = coarse
	rapid.SyncTest(t, func(t *rapid.T) {
		lim, err := leaselimit.New(membucket.New(), cfg)
		require.NoError(t, err)
		defer lim.Close(context.Background())
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			cost := rapid.Int64Range(1, max(1, capacity/rapid.SampledFrom([]int64{2, 4, 30}).Draw(t, "part"))).Draw(t, "cost")
			burst := rapid.IntRange(1, 60).Draw(t, "burst")
			pace := time.Duration(rapid.Int64Range(0, 20_000_000).Draw(t, "pace"))
			var d leaselimit.Decision
			for range burst {
				if d, err = lim.AllowN(context.Background(), "acme", cost); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				if !d.Allowed && rapid.Bool().Draw(t, "stop") {
					break
				}
				time.Sleep(pace)
			}
			if d, err = lim.AllowN(context.Background(), "acme", cost); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if d.Allowed {
				continue
			}
			if d.RetryAfter <= 0 || d.RetryAfter == leaselimit.Never {
				t.Fatalf("cost %d of %v: %v", cost, limit, d)
			}
			time.Sleep(d.RetryAfter)
			again, err := lim.AllowN(context.Background(), "acme", cost)
			if err != nil || !again.Allowed {
				t.Fatalf("cost %d of %v: %v; then %v %v", cost, limit, d, again, err)
			}
			synctest.Wait()
		}
	})
}

// The same for a cost that needs nearly the whole bucket, whose refill stops where leases are out: what was spent of them and
// not reported yet counts as out, too.
func TestWhoWaitsForTheWholeCapacityIsAdmitted(t *testing.T) {
	bubble(t, func(t *testing.T) {
		cfg := limited(quota.PerSecond(100, 100))
		cfg.Exact, cfg.LeaseSize, cfg.Replicas = true, 20, 1
		lim := newLimiter(t, membucket.New(), cfg)
		require.True(t, call(t, lim, "acme", 1).Allowed)
		require.True(t, call(t, lim, "acme", 70).Allowed) // twenty of them from the lease
		d := call(t, lim, "acme", 100)
		require.False(t, d.Allowed)
		time.Sleep(d.RetryAfter)
		again := call(t, lim, "acme", 100)
		assert.True(t, again.Allowed, "%v; then %v", d, again)
	})
}

// An answer is no older than its question: a slow store does not make the pre-check refuse what it has by now.
func TestThePreCheckAllowsForTheRoundTrip(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newTap()
		limit := quota.PerSecond(100, 10)
		lim := newLimiter(t, s, limited(limit))
		drain(t, s, "acme", limit, 0)
		s.onAcquire(func(_ context.Context, _ lease.AcquireRequest, next acquireNext) (lease.Grant, error) {
			time.Sleep(30 * ms) // on the way there
			return next()
		})
		p := start(t.Context(), lim, "acme", 5)
		time.Sleep(30 * ms)
		synctest.Wait()
		require.False(t, p.Allowed)
		time.Sleep(p.RetryAfter)
		p = start(t.Context(), lim, "acme", 5)
		time.Sleep(30 * ms)
		synctest.Wait()
		assert.True(t, p.Allowed)
	})
}
