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

// takeTap is a store whose takes a test sees, holds up or loses. It counts whatever reaches the store.
type takeTap struct {
	lease.Store

	takes [][]lease.Charge
	take  func(ctx context.Context, next func() (lease.TakeReply, error)) (lease.TakeReply, error)
}

func (s *takeTap) Take(ctx context.Context, charges []lease.Charge) (lease.TakeReply, error) {
	s.takes = append(s.takes, charges)
	next := func() (lease.TakeReply, error) { return s.Store.Take(context.WithoutCancel(ctx), charges) }
	if s.take == nil {
		return next()
	}
	return s.take(ctx, next)
}

func takeDown(context.Context, func() (lease.TakeReply, error)) (lease.TakeReply, error) {
	return lease.TakeReply{}, &lease.StoreError{Op: "take", Reason: lease.ReasonRefused, Err: errDown}
}

// classes makes a limiter for each limit, over one store: the classes a, b, and so on.
func classes(t testing.TB, store lease.Store, change func(*leaselimit.Config), limits ...quota.Limit) []*leaselimit.Limiter {
	t.Helper()
	var lims []*leaselimit.Limiter
	for i, l := range limits {
		cfg := limited(l)
		cfg.Class = string(rune('a' + i))
		if change != nil {
			change(&cfg)
		}
		lims = append(lims, newLimiter(t, store, cfg))
	}
	return lims
}

// all makes one call of AllowAll with costs, in the order of the limiters. What it set going is over when it returns.
func all(t testing.TB, lims []*leaselimit.Limiter, costs ...int64) leaselimit.Decision {
	t.Helper()
	d, err := leaselimit.AllowAll(context.Background(), "acme", charge(lims, costs...)...)
	require.NoError(t, err)
	synctest.Wait()
	return d
}

func charge(lims []*leaselimit.Limiter, costs ...int64) (charges []leaselimit.Charge) {
	for i, c := range costs {
		charges = append(charges, leaselimit.Charge{Limiter: lims[i], Cost: c})
	}
	return charges
}

// left is what is there of a class, in the bucket and in hand.
func left(t testing.TB, lim *leaselimit.Limiter) int64 {
	t.Helper()
	d, err := lim.Peek(context.Background(), "acme")
	require.NoError(t, err)
	return d.Remaining
}

// FR6: several limits at once, all or nothing: the one that could pass is not charged.
func TestAllOrNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := &takeTap{Store: membucket.New()}
		lims := classes(t, store, nil, quota.PerSecond(1, 100), quota.Limit{Capacity: 3, Refill: 1, Per: time.Hour})
		for range 3 {
			assert.True(t, all(t, lims, 2, 1).Allowed)
		}
		assert.Equal(t, int64(94), left(t, lims[0]))
		d := all(t, lims, 2, 1)
		assert.False(t, d.Allowed)
		assert.Equal(t, "b", d.Class, "the class that refuses")
		assert.Equal(t, quota.Limit{Capacity: 3, Refill: 1, Per: time.Hour}, d.Limit)
		assert.InDelta(t, time.Hour, d.RetryAfter, float64(time.Second))
		for range 20 {
			assert.False(t, all(t, lims, 2, 1).Allowed)
		}
		assert.Equal(t, int64(94), left(t, lims[0]), "nothing is charged by a refusal")
		assert.Equal(t, int64(0), left(t, lims[1]))

		time.Sleep(d.RetryAfter)
		assert.True(t, all(t, lims, 2, 1).Allowed, "a lone client that waits for RetryAfter is admitted")
		for _, l := range lims {
			adds(t, l.Stats(), 25)
		}
		assert.Equal(t, int64(21), lims[0].Stats().RefusedTogether)
		assert.Equal(t, int64(4), lims[0].Stats().Allowed())
	})
}

// With leases in hand for all of them nobody is asked, whether the call passes or not, and what was taken is back in its lease.
func TestAllFromLeases(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := &takeTap{Store: membucket.New()}
		lims := classes(t, store, func(c *leaselimit.Config) { c.LeaseSize, c.Replicas = 20, 1 },
			still(1000), quota.Limit{Capacity: 100, Refill: 1, Per: time.Hour})
		for _, l := range lims {
			call(t, l, "acme", 1)
		}
		d := all(t, lims, 5, 2)
		assert.True(t, d.Allowed)
		assert.Equal(t, leaselimit.SourceLease, d.Source)
		assert.Equal(t, int64(97), d.Remaining, "of the one with the fewest")
		assert.Equal(t, "b", d.Class)
		assert.Empty(t, store.takes)

		held := lims[0].Stats().TokensHeld
		require.Equal(t, int64(15), held)
		d = all(t, lims, 2, 101)
		assert.Equal(t, leaselimit.Never, d.RetryAfter)
		assert.Equal(t, held, lims[0].Stats().TokensHeld, "undone into the same lease")
		assert.Equal(t, int64(2), lims[0].Stats().Allowed())
		adds(t, lims[0].Stats(), 3)
		adds(t, lims[1].Stats(), 3)
		assert.Empty(t, store.takes)
	})
}

// While the store is asked for one limit, the call is not counted by another that could let it pass.
func TestAllCountsDecidedCalls(t *testing.T) {
	for _, allowed := range []bool{true, false} {
		bubble(t, func(t *testing.T) {
			store := &takeTap{Store: membucket.New()}
			replica := func() []*leaselimit.Limiter {
				return classes(t, store, func(c *leaselimit.Config) { c.LeaseSize, c.Replicas, c.Exact = 20, 1, true }, still(1000), still(100))
			}
			lims, others := replica(), replica()
			call(t, lims[0], "acme", 1)
			call(t, lims[1], "acme", 1)
			if !allowed {
				call(t, others[1], "acme", 70)
			}
			store.take = func(_ context.Context, next func() (lease.TakeReply, error)) (lease.TakeReply, error) {
				time.Sleep(20 * ms)
				return next()
			}
			go func() {
				d, err := leaselimit.AllowAll(t.Context(), "acme", charge(lims, 2, 30)...)
				assert.NoError(t, err)
				assert.Equal(t, allowed, d.Allowed)
			}()
			time.Sleep(10 * ms)
			synctest.Wait()
			require.Len(t, store.takes, 1)
			adds(t, lims[0].Stats(), 1)
			adds(t, lims[1].Stats(), 1)
			time.Sleep(20 * ms)
			adds(t, lims[0].Stats(), 2)
			adds(t, lims[1].Stats(), 2)
			assert.Equal(t, allowed, lims[0].Stats().AllowedLease == 1)
		})
	}
}

// What is in hand and what the bucket has pass together, in one trip, and come back to where they were.
func TestAllFromLeasesAndTheStore(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := &takeTap{Store: membucket.New()}
		lims := classes(t, store, func(c *leaselimit.Config) { c.LeaseSize, c.Replicas, c.Exact = 20, 1, true },
			still(100), still(10))
		call(t, lims[0], "acme", 1) // 20 in hand, 79 there
		d := all(t, lims, 99, 11)
		assert.Equal(t, leaselimit.Never, d.RetryAfter)
		assert.Equal(t, int64(20), lims[0].Stats().TokensHeld)
		require.Empty(t, store.takes)

		call(t, lims[1], "acme", 8)
		require.False(t, all(t, lims, 99, 5).Allowed)
		assert.Equal(t, int64(20), lims[0].Stats().TokensHeld, "in the same lease again")
		assert.Equal(t, int64(99), left(t, lims[0]))
		require.True(t, all(t, lims, 99, 2).Allowed)
		assert.Equal(t, int64(0), left(t, lims[0]))
		adds(t, lims[0].Stats(), 4)
		adds(t, lims[1].Stats(), 4)
	})
}

// Calls of AllowAll alone make leases, so that they too stop waiting.
func TestAllLeasesAhead(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := &takeTap{Store: membucket.New()}
		lims := classes(t, store, nil, quota.PerSecond(100, 1000), quota.PerSecond(100, 500))
		for range 1000 {
			require.True(t, all(t, lims, 1, 1).Allowed)
			time.Sleep(20 * time.Millisecond)
		}
		assert.Less(t, len(store.takes), 50, "of 1000 calls")
	})
}

func TestAllTakesWhatIsUnreportedAlong(t *testing.T) {
	bubble(t, func(t *testing.T) {
		lims := classes(t, membucket.New(), func(c *leaselimit.Config) { c.LeaseSize, c.Replicas, c.Exact = 4, 1, true },
			quota.PerSecond(10, 10), still(10))
		call(t, lims[0], "acme", 1)
		require.Equal(t, 2, calls(t, lims[0], "acme", 2)) // spent of the lease, and not reported
		time.Sleep(5 * time.Second)
		d := all(t, lims, 9, 1)
		time.Sleep(d.RetryAfter)
		assert.True(t, d.Allowed || all(t, lims, 9, 1).Allowed, "%v", d)
		assert.Less(t, d.RetryAfter, 2*time.Second, "not until the epoch ages out")
	})
}

func TestAllNeedsNoStoreForTheUnlimited(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := &takeTap{Store: membucket.New()}
		lims := classes(t, store, nil, quota.Unlimited, still(5), quota.Unlimited)
		require.True(t, all(t, lims, math.MaxInt64, 3, 1).Allowed)
		d := all(t, lims, 1, 3, 1)
		assert.False(t, d.Allowed)
		assert.Equal(t, "b", d.Class)
		for _, c := range store.takes {
			assert.Len(t, c, 1)
		}
		d = all(t, lims[:1], 7)
		assert.True(t, d.Allowed)
		assert.Equal(t, int64(math.MaxInt64), d.Remaining)
		adds(t, lims[0].Stats(), 3)
		adds(t, lims[2].Stats(), 2)
	})
}

func TestAllOfOneClassTwiceIsTheSum(t *testing.T) {
	bubble(t, func(t *testing.T) {
		lim := newLimiter(t, membucket.New(), limited(still(10)))
		twice := func(a, b int64) (leaselimit.Decision, error) {
			return leaselimit.AllowAll(t.Context(), "acme", leaselimit.Charge{Limiter: lim, Cost: a}, leaselimit.Charge{Limiter: lim, Cost: b})
		}
		d, err := twice(3, 4)
		require.NoError(t, err)
		assert.True(t, d.Allowed)
		d, err = twice(2, 2)
		require.NoError(t, err)
		assert.False(t, d.Allowed)
		d, err = twice(math.MaxInt64, math.MaxInt64)
		require.NoError(t, err)
		assert.Equal(t, leaselimit.Never, d.RetryAfter)
		_, err = twice(5, -5)
		require.ErrorIs(t, err, leaselimit.ErrInvalidCost)
		synctest.Wait()
		assert.Equal(t, int64(3), left(t, lim))
		adds(t, lim.Stats(), 4)
	})
}

func TestAllInShadow(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := membucket.New()
		lims := classes(t, store, nil, still(100))
		cfg := limited(still(2))
		cfg.Class, cfg.Shadow = "shadow", true
		lims = append(lims, newLimiter(t, store, cfg))
		assert.False(t, all(t, lims, 1, 2).Shadowed)
		for _, cost := range []int64{1, 1, 3} { // the third can never pass
			d := all(t, lims, 10, cost)
			assert.True(t, d.Allowed, "a shadow refuses nothing")
			assert.True(t, d.Shadowed)
			assert.Equal(t, "shadow", d.Class)
		}
		assert.Equal(t, int64(69), left(t, lims[0]), "the others are charged")
		assert.Equal(t, int64(3), lims[1].Stats().Shadowed)
		d := all(t, lims, 70, 1)
		assert.False(t, d.Allowed)
		assert.Equal(t, "a", d.Class)
		adds(t, lims[0].Stats(), 5)
		adds(t, lims[1].Stats(), 5)
	})
}

func TestAllErrors(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := membucket.New()
		lims := classes(t, store, nil, still(10), still(10))
		other := classes(t, membucket.New(), nil, still(10))
		for name, tt := range map[string]struct {
			done    bool
			tenant  string
			charges []leaselimit.Charge
			want    error
		}{
			"no charges":       {false, "acme", nil, leaselimit.ErrInvalidCharges},
			"no limiter":       {false, "acme", []leaselimit.Charge{{Cost: 1}}, leaselimit.ErrInvalidCharges},
			"different stores": {false, "acme", charge([]*leaselimit.Limiter{lims[0], other[0]}, 1, 1), leaselimit.ErrInvalidCharges},
			"a cost of 0":      {false, "acme", charge(lims, 1, 0), leaselimit.ErrInvalidCost},
			"a negative cost":  {false, "acme", charge(lims, 1, -5), leaselimit.ErrInvalidCost},
			"no tenant":        {false, "", charge(lims, 1, 1), leaselimit.ErrInvalidTenant},
			"a context done":   {true, "acme", charge(lims, 1, 1), context.Canceled},
		} {
			ctx, cancel := context.WithCancel(t.Context())
			if tt.done {
				cancel()
			}
			d, err := leaselimit.AllowAll(ctx, tt.tenant, tt.charges...)
			cancel()
			require.ErrorIs(t, err, tt.want, name)
			assert.Zero(t, d, name)
		}
		for _, l := range lims {
			assert.Equal(t, int64(4), l.Stats().Errors, "once for each call that got as far")
			assert.Equal(t, int64(10), left(t, l))
		}
		_, err := leaselimit.AllowAllInto(t.Context(), "acme", make([]leaselimit.Decision, 1), charge(lims, 1, 1)...)
		require.ErrorIs(t, err, leaselimit.ErrInvalidCharges)

		require.True(t, all(t, lims, 1, 1).Allowed)
		require.NoError(t, lims[1].Close(t.Context()))
		_, err = leaselimit.AllowAll(t.Context(), "acme", charge(lims, 1, 1)...)
		require.ErrorIs(t, err, leaselimit.ErrClosed)
		assert.Equal(t, int64(9), left(t, lims[0]))
	})
}

// Each limiter's policy decides for it, and what one lets pass is undone where another refuses.
func TestAllWithoutTheStore(t *testing.T) {
	for name, tt := range map[string]struct {
		policies [2]leaselimit.FailurePolicy
		passes   int
		class    string
	}{
		"local and open":    {[2]leaselimit.FailurePolicy{leaselimit.FailLocal, leaselimit.FailOpen}, 10, "a"},
		"local and closed":  {[2]leaselimit.FailurePolicy{leaselimit.FailLocal, leaselimit.FailClosed}, 0, "b"},
		"open and open":     {[2]leaselimit.FailurePolicy{leaselimit.FailOpen, leaselimit.FailOpen}, 15, ""},
		"two local buckets": {[2]leaselimit.FailurePolicy{leaselimit.FailLocal, leaselimit.FailLocal}, 5, "b"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				store := &takeTap{Store: membucket.New(), take: takeDown}
				i := -1
				lims := classes(t, store, func(c *leaselimit.Config) {
					i++
					c.OnFailure, c.Replicas = tt.policies[i], 2
				}, still(20), still(10))
				passed := 0
				for range 15 {
					d := all(t, lims, 1, 1)
					assert.True(t, d.Degraded())
					if d.Allowed {
						passed++
					} else {
						assert.Equal(t, tt.class, d.Class)
						assert.Positive(t, d.RetryAfter)
					}
				}
				assert.Equal(t, tt.passes, passed)
				adds(t, lims[0].Stats(), 15)
				adds(t, lims[1].Stats(), 15)
				assert.Less(t, len(store.takes), 15, "a store that is down is left alone for a while")
				store.take = nil
				time.Sleep(5 * time.Second)
				assert.False(t, all(t, lims, 1, 1).Degraded())
				assert.Equal(t, int64(19), left(t, lims[0]), "nothing is charged from the outage")
			})
		})
	}
}

// Leases in hand are spent while the store is away, also in part.
func TestAllSpendsLeasesWithoutTheStore(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := &takeTap{Store: membucket.New(), take: takeDown}
		lims := classes(t, store, func(c *leaselimit.Config) {
			c.LeaseSize, c.Replicas, c.OnFailure = 20, 1, leaselimit.FailClosed
		}, still(100), still(1000))
		call(t, lims[0], "acme", 1)
		held := lims[0].Stats().TokensHeld
		d := all(t, lims, 5, 5)
		assert.False(t, d.Allowed)
		assert.Equal(t, "b", d.Class)
		assert.Equal(t, held, lims[0].Stats().TokensHeld, "undone into the same lease")
		time.Sleep(time.Second) // the store is left alone for a while
		call(t, lims[1], "acme", 1)
		assert.True(t, all(t, lims, 5, 5).Allowed)
	})
}

// A late answer brings nothing that stays taken: neither after the timeout nor for a caller who has gone.
func TestALateTakeGoesBack(t *testing.T) {
	for name, wait := range map[string]time.Duration{"a caller who has gone": 20 * time.Millisecond, "the timeout": time.Hour} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				store := &takeTap{Store: membucket.New()}
				store.take = func(_ context.Context, next func() (lease.TakeReply, error)) (lease.TakeReply, error) {
					r, err := next()
					time.Sleep(100 * time.Millisecond)
					return r, err
				}
				lims := classes(t, store, func(c *leaselimit.Config) { c.OnFailure = leaselimit.FailClosed }, still(10), still(20))
				ctx, cancel := context.WithTimeout(t.Context(), wait)
				defer cancel()
				d, err := leaselimit.AllowAll(ctx, "acme", charge(lims, 4, 5)...)
				assert.False(t, d.Allowed)
				if wait < time.Second {
					require.ErrorIs(t, err, context.DeadlineExceeded)
				} else {
					require.NoError(t, err)
					assert.True(t, d.Degraded())
				}
				time.Sleep(time.Second)
				assert.Equal(t, int64(10), left(t, lims[0]))
				assert.Equal(t, int64(20), left(t, lims[1]))
				adds(t, lims[0].Stats(), 1)
			})
		})
	}
}

// The decisions on each limit tell which of them refuses.
func TestAllInto(t *testing.T) {
	bubble(t, func(t *testing.T) {
		lims := classes(t, membucket.New(), nil, still(10), still(5), still(3))
		into := make([]leaselimit.Decision, 4)
		charges := charge(lims, 1, 6, 2)
		charges = append(charges, leaselimit.Charge{Limiter: lims[0], Cost: 1})
		d, err := leaselimit.AllowAllInto(t.Context(), "acme", into, charges...)
		require.NoError(t, err)
		assert.Equal(t, into[1], d)
		assert.True(t, into[0].Allowed)
		assert.False(t, into[1].Allowed)
		assert.True(t, into[2].Allowed)
		assert.Equal(t, into[0], into[3], "the same limit")
		assert.Equal(t, int64(10), into[0].Remaining)

		charges[1].Cost = 2
		_, err = leaselimit.AllowAllInto(t.Context(), "acme", into, charges...)
		require.NoError(t, err)
		for i, want := range []int64{8, 3, 1, 8} {
			assert.True(t, into[i].Allowed)
			assert.Equal(t, want, into[i].Remaining)
			assert.Equal(t, charges[i].Limiter.Class(), into[i].Class)
		}
	})
}

func TestAllAllocatesNothingWithLeasesInHand(t *testing.T) {
	lims := classes(t, membucket.New(), func(c *leaselimit.Config) {
		c.LeaseSize, c.LeaseShare, c.Replicas, c.StoreTimeout = 400_000, 1, 1, 10*time.Second
	}, quota.PerSecond(1, 1_000_000), quota.PerSecond(1, 1_000_000), quota.Unlimited)
	ctx := context.Background()
	for _, l := range lims {
		_, err := l.Allow(ctx, "acme")
		require.NoError(t, err)
	}
	never := classes(t, membucket.New(), nil, still(1))
	assert.Zero(t, testing.AllocsPerRun(1000, func() {
		d, err := leaselimit.AllowAll(ctx, "acme", leaselimit.Charge{lims[0], 1}, leaselimit.Charge{lims[1], 2}, leaselimit.Charge{lims[2], 1})
		if err != nil || d.Source != leaselimit.SourceLease || !d.Allowed {
			panic(d.String())
		}
	}))
	assert.Zero(t, testing.AllocsPerRun(1000, func() {
		if d, err := leaselimit.AllowAll(ctx, "acme", leaselimit.Charge{never[0], 2}); err != nil || d.Allowed {
			panic(d.String())
		}
	}))
	assert.Zero(t, testing.AllocsPerRun(1000, func() {
		e, err := lims[0].Estimate(ctx, "acme", 5)
		if err != nil || e.Settle(ctx, 2) != nil || e.Source != leaselimit.SourceLease {
			panic(e.String())
		}
	}))
}
