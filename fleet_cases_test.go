package leaselimit_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leaselimit/leaselimit"
	"github.com/leaselimit/leaselimit/internal/adversary"
	sim "github.com/leaselimit/leaselimit/internal/fleet"
	"github.com/leaselimit/leaselimit/membucket"
	"github.com/leaselimit/leaselimit/quota"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The tests of this file are what several replicas do together: fairness, hoarding, and the bound.

// simulate runs a fleet in a bubble, over a store in memory with a round trip of 1 ms unless c says otherwise.
func simulate(t *testing.T, c sim.Config) (r sim.Result) {
	t.Helper()
	if c.RTT == 0 {
		c.RTT = ms
	}
	bubble(t, func(t *testing.T) {
		c.Store = membucket.New()
		var err error
		r, err = sim.Run(c)
		require.NoError(t, err)
	})
	t.Logf("seed %d, %v on %d replicas at %v: %v, proved %.1f, by replica %v",
		c.Seed, c.Limit, c.Replicas, c.Load, r, r.Proved, r.ByReplica)
	return r
}

// Two replicas that each want one and a half times the limit get half of it each, and all of it together.
func TestFH1_EqualDemandGetsEqualShares(t *testing.T) {
	t.Parallel()
	for _, limit := range []quota.Limit{quota.PerSecond(100, 100), quota.PerSecond(10, 20), quota.PerSecond(200, 20)} {
		for _, exact := range []bool{false, true} {
			t.Run(fmt.Sprintf("%v, exact %v", limit, exact), func(t *testing.T) {
				t.Parallel()
				r := simulate(t, sim.Config{
					Limit: limit, Replicas: 2, Load: 3, Duration: time.Minute, Seed: 1, Limiter: leaselimit.Config{Exact: exact},
				})
				for i, n := range r.ByReplica {
					assert.InDelta(t, 0.5, float64(n)/float64(r.Admitted), 0.1, "replica %d", i)
				}
				budget := 0.1 * float64(limit.Capacity)
				if exact {
					budget = 0
				}
				refilled := limit.PerMillisecond() * 60_000
				assert.GreaterOrEqual(t, float64(r.Admitted), 0.95*refilled)
				assert.LessOrEqual(t, float64(r.Admitted), refilled+float64(limit.Capacity)+budget)
				assert.LessOrEqual(t, r.Proved, budget+0.01)
			})
		}
	}
}

// refusedFrom is the share of the tokens asked for from a time on that was refused.
func refusedFrom(calls []sim.Call, from, to time.Duration) float64 {
	asked, refused := int64(0), int64(0)
	for _, c := range calls {
		if c.Start >= from && c.Start < to {
			if asked += c.Cost; !c.Allowed {
				refused += c.Cost
			}
		}
	}
	return float64(refused) / float64(max(1, asked))
}

// Load below the limit passes, however it is balanced and whatever the replicas believe their number to be, from two trust
// windows after it was balanced anew.
func TestFH4_UnevenLoadBelowTheLimitPasses(t *testing.T) {
	t.Parallel()
	const ttl, shift = 5 * time.Second, 40 * time.Second
	for name, shifts := range map[string][]sim.Shift{
		"the same all the time":   nil,
		"a fourth replica comes":  {{At: shift, Weights: []float64{40, 20, 10, 30}}},
		"the first replica goes":  {{At: shift, Weights: []float64{0, 67, 33, 0}}},
		"the weights turn around": {{At: shift, Weights: []float64{10, 20, 70, 0}}},
	} {
		for _, believed := range []int{0, 3, 10} {
			t.Run(fmt.Sprintf("%s, Replicas %d", name, believed), func(t *testing.T) {
				t.Parallel()
				r := simulate(t, sim.Config{
					Limit: quota.PerSecond(200, 200), Replicas: 4, Load: 0.95, Weights: []float64{70, 20, 10, 0}, Shifts: shifts,
					Duration: 2 * shift, Refusals: true, Seed: 1, Limiter: leaselimit.Config{LeaseTTL: ttl, Replicas: believed},
				})
				assert.LessOrEqual(t, refusedFrom(r.Log, 2*ttl, shift), 0.01)
				assert.LessOrEqual(t, refusedFrom(r.Log, shift+2*ttl, 2*shift), 0.01)
				assert.LessOrEqual(t, r.Proved, 20.01)
			})
		}
	}
}

// Ten replicas hold as much as they may, the bucket is full beside them, and then all of them spend for a second.
func TestFH5_LocalLeasesOvershootByTheBudgetAtMost(t *testing.T) {
	t.Parallel()
	for _, overshoot := range []float64{0, 0.1, 0.5, 1} {
		t.Run(fmt.Sprint("100 a second, MaxOvershoot ", overshoot), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				const capacity, refill, replicas = 100, 100, 10
				store := membucket.New()
				cfg := limited(quota.PerSecond(refill, capacity))
				cfg.MaxOvershoot, cfg.Exact = overshoot, overshoot == 0
				cfg.LeaseShare, cfg.LeaseSize, cfg.Replicas = 1, 10, 1
				var lims []*leaselimit.Limiter
				for range replicas {
					lims = append(lims, newLimiter(t, store, cfg))
					require.True(t, call(t, lims[len(lims)-1], "acme", 1).Allowed)
				}
				time.Sleep(2 * time.Second)
				synctest.Wait()
				held := int64(0)
				for _, lim := range lims {
					held += lim.Stats().TokensHeld
				}

				admitted, begin := 0, time.Now()
				for time.Since(begin) < time.Second {
					for _, lim := range lims {
						admitted += calls(t, lim, "acme", 2)
					}
					time.Sleep(ms)
				}
				bound := capacity + refill + int(lims[0].Bound("acme").Tokens)
				t.Logf("%d held, %d admitted in a second, bound %d", held, admitted, bound)
				assert.Positive(t, held)
				assert.LessOrEqual(t, admitted, bound)
				assert.GreaterOrEqual(t, admitted, capacity+refill*9/10)
			})
		})
	}
	t.Run("without refill", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			store, admitted := membucket.New(), 0
			cfg := limited(still(100))
			cfg.LeaseShare, cfg.LeaseSize, cfg.Replicas = 1, 10, 1
			var lims []*leaselimit.Limiter
			for range 10 {
				lims = append(lims, newLimiter(t, store, cfg))
				admitted += calls(t, lims[len(lims)-1], "acme", 1)
			}
			for range 1000 {
				for _, lim := range lims {
					admitted += calls(t, lim, "acme", 1)
				}
				time.Sleep(ms)
			}
			assert.Equal(t, 100, admitted)
		})
	})
}

// What is admitted too much does not depend on how slow the store is.
func TestFH6_OvershootDoesNotGrowWithLatency(t *testing.T) {
	t.Parallel()
	limit := quota.PerSecond(1000, 1000)
	for _, exact := range []bool{false, true} {
		for _, load := range []float64{0.9, 2} {
			t.Run(fmt.Sprintf("exact %v, load %v", exact, load), func(t *testing.T) {
				t.Parallel()
				for _, rtt := range []time.Duration{ms, 50 * ms} {
					r := simulate(t, sim.Config{
						Limit: limit, Replicas: 4, Load: load, Duration: 10 * time.Second, RTT: rtt, Seed: 1,
						Limiter: leaselimit.Config{Exact: exact, StoreTimeout: time.Second, LeaseTTL: 5 * time.Second},
					})
					budget := 0.1 * float64(limit.Capacity)
					if exact {
						budget = 0
					}
					assert.LessOrEqual(t, r.Proved, budget+2.01, "round trip %v", rtt)
					assert.LessOrEqual(t, r.Overshoot, budget+2.01, "round trip %v, by when the calls returned", rtt)
				}
			})
		}
	}
}

// The same where the budget is reached: hoarders fill their leases, wait and spend everything at once.
func TestFH6_HoardersGetNoMoreFromASlowStore(t *testing.T) {
	t.Parallel()
	for _, overshoot := range []float64{0, 0.1, 0.5} {
		for _, delay := range []time.Duration{ms, 50 * ms} { // of the answer alone, which is the worst
			bubble(t, func(t *testing.T) {
				s := newTap()
				s.onAcquire(late(delay))
				o := adversary.Hoard(s, quota.PerSecond(1000, 1000), overshoot, max(0.25, overshoot), 4)
				t.Logf("answers after %v: overshoot %.1f, %s", delay, o.Overshoot, o.Setting)
				assert.False(t, o.Violated(), o.Setting)
			})
		}
	}
}

// Five replicas share one limit; they do not have one each.
func TestFH13_FiveReplicasAreOneLimit(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		store, admitted := membucket.New(), 0
		var lims []*leaselimit.Limiter
		for range 5 {
			lims = append(lims, newLimiter(t, store, limited(still(100))))
		}
		for range 200 {
			for _, lim := range lims {
				admitted += calls(t, lim, "acme", 1)
			}
			time.Sleep(ms)
		}
		assert.Equal(t, 100, admitted)
	})
}

// What idle replicas hold is there for others when their leases end, without a crash or a Close.
func TestFH14_IdleReplicasGiveBack(t *testing.T) {
	t.Parallel()
	for _, closed := range []bool{false, true} {
		t.Run(fmt.Sprintf("closed %v", closed), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				store := membucket.New()
				cfg := limited(still(60))
				cfg.LeaseShare, cfg.LeaseSize, cfg.Replicas = 1, 19, 1
				var idle []*leaselimit.Limiter
				for range 3 { // one token for the caller, 19 to hold
					idle = append(idle, newLimiter(t, store, cfg))
					require.Equal(t, 1, calls(t, idle[len(idle)-1], "acme", 1))
				}
				_, out := level(t, store, "acme", still(60))
				fourth := newLimiter(t, store, limited(still(60)))
				before := calls(t, fourth, "acme", 60)
				assert.LessOrEqual(t, int64(before), 57-out)

				wait := terms(still(60)).TTL
				if closed {
					wait = 10 * ms
					for _, lim := range idle {
						require.NoError(t, lim.Close(context.Background()))
					}
				}
				time.Sleep(wait)
				synctest.Wait()
				// The fourth was refused, and asks in the background from then on: in the mean once in a quarter of a window.
				after, begin, first := 0, time.Now(), time.Duration(-1)
				for time.Since(begin) < terms(still(60)).TTL && before+after < 57 {
					after += calls(t, fourth, "acme", 1)
					if after > 0 && first < 0 {
						first = time.Since(begin)
					}
					time.Sleep(100 * ms)
				}
				t.Logf("%d out while three are idle; the fourth got %d, and %d from %v after the return", out, before, after, first)
				assert.GreaterOrEqual(t, out, int64(50))
				assert.Equal(t, 57, before+after)
			})
		})
	}
}

// A draw grants what its caller needs and a lease of the size that is set, and leaves the rest in the bucket.
func TestFH15_ADrawLeavesTheBucket(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		size     int64
		replicas int
		share    float64
	}{{20, 1, 0.25}, {20, 0, 0.25}, {20, 1, 1}, {0, 1, 1}, {0, 0, 0}} {
		t.Run(fmt.Sprintf("%+v", tt), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s, limit := newTap(), quota.PerSecond(1, 100)
				cfg := limited(limit)
				cfg.LeaseSize, cfg.Replicas, cfg.LeaseShare = tt.size, tt.replicas, tt.share
				lim := newLimiter(t, s, cfg)
				require.True(t, call(t, lim, "acme", 1).Allowed)
				draws := s.draws()
				require.Len(t, draws, 1)
				g := draws[0].grant
				assert.Equal(t, int64(1), g.Waiters)
				assert.LessOrEqual(t, g.Surplus, int64(20))
				tokens, _ := level(t, s, "acme", limit)
				assert.InDelta(t, float64(99-g.Surplus), tokens, 0.01)
			})
		})
	}
}
