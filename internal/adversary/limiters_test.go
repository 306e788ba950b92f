package adversary_test

import (
	"log/slog"
	"testing"
	"testing/synctest"

	"github.com/leaselimit/leaselimit/internal/adversary"
	"github.com/leaselimit/leaselimit/membucket"
	"github.com/leaselimit/leaselimit/quota"
	"github.com/stretchr/testify/assert"
)

// TestBoundHoldsForLimiters is the same claim for the real lease code, calls and all.
func TestBoundHoldsForLimiters(t *testing.T) {
	t.Parallel()
	slog.SetDefault(slog.New(slog.DiscardHandler))
	n := max(1, count()/100)
	var s tally
	for seed := *first; seed < *first+n; seed++ {
		synctest.Test(t, func(*testing.T) {
			s.add(adversary.Limiters(seed, membucket.New()))
		})
	}
	t.Logf("seeds %d to %d: %+v", *first, *first+n-1, s)
	assert.Zero(t, s.violated, s.worst)
	assert.Greater(t, s.reached, s.reachable/30, "the adversary is weak")
}

// TestHoardersReachTheBudget: the bound is tight for limiters too. Hoarders that fill their leases, wait for the bucket to refill
// beside them and spend everything at once get nine tenths of every budget, and nothing in exact mode.
func TestHoardersReachTheBudget(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		limit            quota.Limit
		overshoot, share float64
		hoarders         int
	}{
		{quota.PerSecond(100, 1000), 0, 0.25, 1},
		{quota.PerSecond(100, 100), 0.1, 0.25, 1},
		{quota.PerSecond(100, 1000), 0.1, 0.25, 4},
		{quota.PerSecond(100, 1000), 0.25, 0.25, 4},
		{quota.PerSecond(1000, 1000), 0.5, 0.5, 1},
		{quota.PerSecond(20, 200), 0.5, 1, 4},
		{quota.PerSecond(1000, 1000), 1, 1, 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			o := adversary.Hoard(membucket.New(), tt.limit, tt.overshoot, tt.share, tt.hoarders)
			t.Logf("overshoot %.1f, %s", o.Overshoot, o.Setting)
			assert.False(t, o.Violated(), o.Setting)
			assert.GreaterOrEqual(t, o.Overshoot, 0.9*float64(o.Budget), o.Setting)
		})
	}
}
