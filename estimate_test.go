package leaselimit_test

import (
	"context"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leaselimit/leaselimit"
	"github.com/leaselimit/leaselimit/lease"
	"github.com/leaselimit/leaselimit/membucket"
	"github.com/leaselimit/leaselimit/quota"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// estimate is a call of Estimate whose doings are over when it returns.
func estimate(t testing.TB, lim *leaselimit.Limiter, cost int64) leaselimit.Estimate {
	t.Helper()
	e, err := lim.Estimate(context.Background(), "acme", cost)
	require.NoError(t, err)
	synctest.Wait()
	return e
}

func settle(t testing.TB, e leaselimit.Estimate, actual int64) {
	t.Helper()
	require.NoError(t, e.Settle(context.Background(), actual))
	synctest.Wait()
}

// FR11: reserve, then settle. Whatever was estimated, what is charged is what it did cost.
func TestSettleChargesTheActualCost(t *testing.T) {
	for name, leased := range map[string]bool{"from the bucket": false, "from a lease": true} {
		for _, actual := range []int64{0, 1, 9, 10, 11, 30} {
			bubble(t, func(t *testing.T) {
				cfg := limited(still(100))
				if leased {
					cfg.LeaseSize, cfg.Replicas = 20, 1
				}
				store := membucket.New()
				lim := newLimiter(t, store, cfg)
				require.True(t, call(t, lim, "acme", 1).Allowed)
				e := estimate(t, lim, 10)
				require.True(t, e.Allowed)
				require.Equal(t, leased, e.Source == leaselimit.SourceLease, name)
				settle(t, e, actual)
				assert.Equal(t, 99-actual, left(t, lim), "%s, %d", name, actual)
				adds(t, lim.Stats(), 2)
				assert.Equal(t, int64(2), lim.Stats().Allowed())
				require.NoError(t, lim.Close(t.Context()))
				tokens, _ := level(t, store, "acme", still(100))
				assert.InDelta(t, 99-actual, tokens, 1e-6)
			})
		}
	}
}

// What goes back into a live lease is spent from there, without a word to the store.
func TestSettlePutsBackIntoTheLiveLease(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newTap()
		cfg := limited(quota.PerSecond(10, 1000))
		cfg.LeaseSize, cfg.Replicas = 100, 1
		lim := newLimiter(t, s, cfg)
		call(t, lim, "acme", 1)
		asked := len(s.draws()) + len(s.returns())
		for range 200 {
			settle(t, estimate(t, lim, 40), 0)
		}
		assert.Equal(t, asked, len(s.draws())+len(s.returns()))
		assert.Equal(t, int64(100), lim.Stats().TokensHeld)
		adds(t, lim.Stats(), 201)
	})
}

// What was reported as spent is not counted as out any more. Back in the lease it would be held and not counted, so it goes to
// the bucket.
func TestSettleAfterAReportGoesToTheBucket(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newTap()
		cfg := limited(still(1000))
		cfg.LeaseSize, cfg.Replicas, cfg.Exact = 50, 1, true
		lim := newLimiter(t, s, cfg)
		call(t, lim, "acme", 1)
		e := estimate(t, lim, 30) // the low-water mark: a draw that reports it
		require.Len(t, s.draws(), 2)
		settle(t, e, 5)
		var back int64
		for _, r := range s.returns() {
			back += r.Waiters
		}
		assert.Equal(t, int64(25), back)
		_, out := level(t, s, "acme", still(1000))
		assert.Equal(t, lim.Stats().TokensHeld, out, "what is held is counted")
		assert.Equal(t, int64(994), left(t, lim))
		adds(t, lim.Stats(), 2)
	})
}

// The longer it takes, the more of it has been refilled in its place.
func TestSettleLateGoesBackLessTheRefill(t *testing.T) {
	for wait, want := range map[time.Duration]float64{0: 100, 4 * time.Second: 4 + 96, 5 * time.Minute: 100} {
		bubble(t, func(t *testing.T) {
			store := membucket.New()
			lim := newLimiter(t, store, limited(quota.PerSecond(1, 100)))
			e := estimate(t, lim, 100)
			time.Sleep(wait)
			settle(t, e, 0)
			tokens, _ := level(t, store, "acme", quota.PerSecond(1, 100))
			assert.InDelta(t, want, tokens, 0.1, "after %v", wait)
		})
	}
	// An hour later nothing of it is left, and what others spent meanwhile stays spent.
	bubble(t, func(t *testing.T) {
		store := membucket.New()
		lim := newLimiter(t, store, limited(quota.PerSecond(1, 100)))
		e := estimate(t, lim, 100)
		time.Sleep(time.Hour)
		drain(t, store, "acme", quota.PerSecond(1, 100), 0)
		settle(t, e, 0)
		tokens, _ := level(t, store, "acme", quota.PerSecond(1, 100))
		assert.Zero(t, tokens, "or 200 would pass at one moment")
	})
}

// Extra takes what is in hand, then the bucket, into debt of one capacity at most, which refill pays back.
func TestSettleIntoBoundedDebt(t *testing.T) {
	bubble(t, func(t *testing.T) {
		limit := quota.PerSecond(10, 100)
		store := membucket.New()
		cfg := limited(limit)
		cfg.LeaseSize, cfg.Replicas = 10, 1
		lim := newLimiter(t, store, cfg)
		settle(t, estimate(t, lim, 1), 161) // 10 in hand, 89 there, and debt
		tokens, out := level(t, store, "acme", limit)
		assert.InDelta(t, -61, tokens, 1e-6)
		assert.Zero(t, out, "what is in hand is spent first, and reported")
		d := call(t, lim, "acme", 1)
		assert.False(t, d.Allowed)
		assert.Equal(t, leaselimit.SourcePrecheck, d.Source, "debt is known here")
		assert.InDelta(t, 6200*time.Millisecond, d.RetryAfter, float64(10*time.Millisecond))
		time.Sleep(d.RetryAfter)
		e := estimate(t, lim, 1)
		require.True(t, e.Allowed)

		settle(t, e, math.MaxInt64)
		tokens, _ = level(t, store, "acme", limit)
		assert.InDelta(t, -100, tokens, 1e-6, "one capacity; the rest is forgiven")
		adds(t, lim.Stats(), 3)
		waiters := lim.Stats().TokensWaiters
		assert.True(t, waiters > 0 && waiters < 1000, "what is forgiven was not charged, and would overflow: %d", waiters)
		require.NoError(t, lim.Reset(t.Context(), "acme"))
		assert.Equal(t, int64(100), left(t, lim), "debt, too")
	})
}

// Every other estimate has one answer.
func TestSettleOfWhatChargedNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ctx := t.Context()
		store := &takeTap{Store: membucket.New()}
		tap := newTapOn(store)
		lim := newLimiter(t, tap, limited(still(10)))

		e := estimate(t, lim, 11)
		assert.Equal(t, leaselimit.Never, e.RetryAfter)
		require.NoError(t, e.Settle(ctx, 5), "refused: nothing is charged")
		require.ErrorIs(t, e.Settle(ctx, 5), leaselimit.ErrSettled)
		assert.Equal(t, int64(10), left(t, lim))

		e = estimate(t, lim, 4)
		require.ErrorIs(t, e.Settle(ctx, -1), leaselimit.ErrInvalidActual)
		require.NoError(t, e.Settle(ctx, 3))
		require.ErrorIs(t, e.Settle(ctx, 0), leaselimit.ErrSettled)
		synctest.Wait()
		assert.Equal(t, int64(7), left(t, lim))

		shadow := limited(still(10))
		shadow.Shadow = true
		in := newLimiter(t, tap, shadow)
		e = estimate(t, in, 8)
		require.True(t, e.Shadowed)
		settle(t, e, 9)
		settle(t, e, 0)
		assert.Equal(t, int64(7), left(t, lim), "in shadow")

		free := newLimiter(t, tap, limited(quota.Unlimited))
		e = estimate(t, free, math.MaxInt64)
		settle(t, e, 5)

		tap.onAcquire(down)
		e, err := lim.Tenant("acme").Estimate(ctx, 2)
		require.NoError(t, err)
		require.True(t, e.Degraded())
		tap.onAcquire(nil)
		time.Sleep(2 * time.Second)
		settle(t, e, 9)
		assert.Equal(t, int64(7), left(t, lim), "recovery charges nothing")
		assert.Empty(t, store.takes)

		var zero leaselimit.Estimate
		require.NoError(t, zero.Settle(ctx, 3))

		_, err = lim.Estimate(ctx, "acme", 0)
		require.ErrorIs(t, err, leaselimit.ErrInvalidCost)
		_, err = lim.Estimate(ctx, "", 1)
		require.ErrorIs(t, err, leaselimit.ErrInvalidTenant)

		e = estimate(t, lim, 2)
		require.True(t, e.Allowed)
		require.NoError(t, lim.Close(ctx))
		for _, actual := range []int64{0, 2, 5} {
			require.ErrorIs(t, e.Settle(ctx, actual), leaselimit.ErrClosed)
		}
		tokens, _ := level(t, store, "acme", still(10))
		assert.InDelta(t, 5, tokens, 1e-6, "after Close the estimate stands")
	})
}

// A caller's context that is done, and a store that is away, keep Settle from nothing but the extra.
func TestSettleIsBounded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := &takeTap{Store: membucket.New()}
		lim := newLimiter(t, store, limited(still(100)))
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		e := estimate(t, lim, 10)
		require.NoError(t, e.Settle(gone, 4))
		synctest.Wait()
		assert.Equal(t, int64(96), left(t, lim))
		e = estimate(t, lim, 10)
		if err := e.Settle(gone, 12); err != nil {
			require.ErrorIs(t, err, context.Canceled)
		}
		synctest.Wait()
		assert.Equal(t, int64(84), left(t, lim), "charged in any case")

		store.take = takeDown
		e = estimate(t, lim, 10)
		err := e.Settle(t.Context(), 20)
		require.Error(t, err)
		assert.Equal(t, lease.ReasonRefused, lease.ReasonOf(err))
		require.ErrorIs(t, e.Settle(t.Context(), 20), leaselimit.ErrSettled, "it is sent once")
		store.take = func(context.Context, func() (lease.TakeReply, error)) (lease.TakeReply, error) {
			time.Sleep(time.Hour)
			return lease.TakeReply{}, errDown
		}
		time.Sleep(time.Second)
		e = estimate(t, lim, 10)
		begin := time.Now()
		require.Error(t, e.Settle(t.Context(), 20))
		assert.Equal(t, 50*time.Millisecond, time.Since(begin))
		time.Sleep(time.Hour)
	})
}

// An evicted tenant's estimate is settled all the same, and a changed limit gives nothing back.
func TestSettleOfAnEvictedTenantAndAfterAChange(t *testing.T) {
	bubble(t, func(t *testing.T) {
		limit := still(100)
		cfg := leaselimit.Config{MaxTenants: 1, LeaseSize: 20, Replicas: 1, Limits: quota.SourceFunc(
			func(context.Context, string) (quota.Limit, error) { return limit, nil })}
		lim := newLimiter(t, membucket.New(), cfg)
		call(t, lim, "acme", 1)
		e := estimate(t, lim, 10)
		f := estimate(t, lim, 5)
		call(t, lim, "other", 1)
		settle(t, e, 4)
		settle(t, f, 8)
		assert.Equal(t, int64(99-4-8), left(t, lim))

		e = estimate(t, lim, 50)
		limit.Capacity = 60
		call(t, lim, "acme", 1)
		was := left(t, lim)
		settle(t, e, 1)
		assert.Equal(t, was, left(t, lim))
	})
}

// What is settled above the estimates passes the bound by the debt, of one capacity at most, and the refill pays it back: in the long
// run the actual cost is the limit.
func TestSettleAboveTheEstimatesIsPaidBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		limit := quota.PerSecond(10, 100)
		store := membucket.New()
		var lims []*leaselimit.Limiter
		for range 3 {
			lims = append(lims, newLimiter(t, store, limited(limit)))
		}
		const seconds = 500
		var actual, most int64
		for i := range seconds * 10 {
			time.Sleep(100 * time.Millisecond)
			for _, l := range lims {
				e := estimate(t, l, 5)
				if !e.Allowed {
					continue
				}
				settle(t, e, 20)
				actual += 20
			}
			most = max(most, actual-int64(i+1)) // refilled is 1 in each round
		}
		assert.LessOrEqual(t, most, int64(100+10+100), "capacity, budget and debt")
		assert.Greater(t, most, int64(110), "the debt is used")
		assert.InDelta(t, seconds*10+100, actual, 110)
	})
}
