package fleet_test

import (
	"flag"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leaselimit/leaselimit"
	"github.com/leaselimit/leaselimit/internal/fleet"
	"github.com/leaselimit/leaselimit/membucket"
	"github.com/leaselimit/leaselimit/quota"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var seed = flag.Uint64("seed", 1, "seed of the load")

// run runs c on virtual time, over a store in memory with a round trip of 1 ms.
func run(t *testing.T, c fleet.Config) (r fleet.Result) {
	t.Helper()
	c.RTT, c.Seed = time.Millisecond, *seed
	synctest.Test(t, func(t *testing.T) {
		c.Store = membucket.New()
		var err error
		r, err = fleet.Run(c)
		require.NoError(t, err)
	})
	t.Logf("seed %d, %v on %d replicas at %v: %v", c.Seed, c.Limit, c.Replicas, c.Load, r)
	assert.LessOrEqual(t, r.Overshoot, 0.1*float64(c.Limit.Capacity)+0.01, "above the bound")
	return r
}

// some is the loads of a test: with -short, which goes with the race detector, the middle one.
func some(loads ...float64) []float64 {
	if testing.Short() {
		return loads[len(loads)/2 : len(loads)/2+1]
	}
	return loads
}

// long is the length of a run: with -short a sixth of it.
func long(d time.Duration) time.Duration {
	if testing.Short() {
		return d / 6
	}
	return d
}

// TestOverload holds what an overloaded tenant costs the store, and how well it is shared.
func TestOverload(t *testing.T) {
	t.Parallel()
	at := func(load float64) fleet.Result {
		return run(t, fleet.Config{Limit: quota.PerSecond(1000, 1000), Replicas: 10, Load: load, Duration: long(time.Minute)})
	}
	five, twenty := at(5), at(20)
	for _, r := range []fleet.Result{five, twenty} {
		assert.InDelta(t, 1, r.Share(), 0.02, "admitted is not within 2 %% of the ideal")
	}
	assert.LessOrEqual(t, twenty.StoreCalls(), 0.02)
	assert.LessOrEqual(t, float64(twenty.Draws), 1.2*float64(five.Draws), "draws grow with the load")
}

// TestEqualReplicas: who gets how much of an overloaded tenant is chance at every draw, and evens out: over a few thousand draws
// of each replica to within 20 %.
func TestEqualReplicas(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		return // too short to be even
	}
	for _, load := range []float64{2, 20} {
		r := run(t, fleet.Config{Limit: quota.PerSecond(10, 100), Replicas: 10, Load: load, Duration: 40 * time.Minute})
		assert.LessOrEqual(t, float64(slices.Max(r.ByReplica)), 1.2*float64(slices.Min(r.ByReplica)), "%v", r.ByReplica)
	}
}

// TestHotReplica: nine replicas with little to do get no less for the tenth being overrun.
func TestHotReplica(t *testing.T) {
	t.Parallel()
	r := run(t, fleet.Config{
		Limit: quota.PerSecond(1000, 1000), Replicas: 10, Load: 20.45, Duration: 30 * time.Second,
		Weights: append([]float64{20}, slices.Repeat([]float64{0.05}, 9)...),
	})
	var got, ideal int64
	for i := 1; i < 10; i++ {
		got += r.ByReplica[i]
		ideal += r.IdealBy[i]
	}
	assert.GreaterOrEqual(t, got, ideal)
	assert.InDelta(t, 1, r.Share(), 0.02)
}

// TestUndershoot: nothing is lost below the limit, wherever the calls come in.
func TestUndershoot(t *testing.T) {
	t.Parallel()
	t.Run("one busy replica of ten", func(t *testing.T) {
		t.Parallel()
		r := run(t, fleet.Config{
			Limit: quota.PerSecond(1000, 1000), Replicas: 10, Load: 0.9, Duration: 30 * time.Second,
			Weights: append([]float64{1}, make([]float64, 9)...),
		})
		assert.Equal(t, r.Offered, r.Admitted)
	})
	t.Run("a slow tenant on twenty replicas", func(t *testing.T) {
		t.Parallel()
		r := run(t, fleet.Config{Limit: quota.PerMinute(60, 20), Replicas: 20, Load: 0.5, Duration: time.Hour})
		assert.Equal(t, r.Ideal, r.Admitted)
	})
}

// TestSmallLimits: leasing must not harm limits that are too small for it.
func TestSmallLimits(t *testing.T) {
	t.Parallel()
	limits := []quota.Limit{quota.PerSecond(2, 20), quota.PerMinute(1, 10), quota.PerSecond(10, 100)}
	for _, limit := range limits {
		for _, costs := range [][]int64{{1}, {1, 5, 50}} {
			costs = slices.DeleteFunc(costs, func(k int64) bool { return k > limit.Capacity })
			for _, n := range []int{1, 4, 10, 50} {
				t.Run(fmt.Sprintf("%v/costs %v/%d replicas", limit, costs, n), func(t *testing.T) {
					t.Parallel()
					for _, load := range some(0.1, 0.5, 0.9, 1.5, 5, 20) {
						tokens := 4000.0
						if load > 1 {
							tokens *= max(1, 5/load)
							if len(costs) > 1 { // so few calls pass that chance would decide
								tokens *= 4
							}
						}
						r := run(t, fleet.Config{
							Limit: limit, Replicas: n, Load: load, Costs: costs,
							Duration: time.Duration(tokens / limit.PerMillisecond() * 1e6),
						})
						assert.GreaterOrEqual(t, r.Share(), 0.97, "load %v", load)
						assert.LessOrEqual(t, r.StoreCalls(), 1.3, "load %v", load)
					}
				})
			}
		}
	}
}

// TestWaiting: from a capacity of 4 and one call in 5 s for each replica on, few admitted calls wait for the store.
func TestWaiting(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		limit    quota.Limit
		replicas int
	}{
		{quota.PerSecond(2, 20), 1},
		{quota.PerSecond(2, 20), 4},
		{quota.PerSecond(2, 20), 5},
		{quota.PerSecond(10, 100), 1},
		{quota.PerSecond(10, 100), 4},
		{quota.PerSecond(10, 100), 10},
		{quota.PerSecond(10, 100), 25},
		{quota.PerSecond(1000, 1000), 4},
		{quota.PerSecond(1000, 1000), 50},
		{quota.PerSecond(10_000, 50_000), 50},
	} {
		t.Run(fmt.Sprintf("%v on %d", c.limit, c.replicas), func(t *testing.T) {
			t.Parallel()
			for _, load := range some(0.1, 0.2, 0.5, 0.8, 0.9) {
				perReplica := c.limit.PerMillisecond() * 1000 * load / float64(c.replicas)
				if perReplica < 0.2 {
					continue
				}
				duration := time.Duration(min(6000, 60_000/(c.limit.PerMillisecond()*1000*load)) * float64(time.Second))
				r := run(t, fleet.Config{
					Limit: c.limit, Replicas: c.replicas, Load: load, Duration: max(10*time.Second, duration),
					Limiter: leaselimit.Config{Replicas: c.replicas},
				})
				assert.LessOrEqual(t, r.Waiting(), 0.05, "load %v", load)
			}
		})
	}
}
