package leaselimit_test

import (
	"context"
	"testing"
	"time"

	"github.com/leaselimit/leaselimit"
	"github.com/leaselimit/leaselimit/membucket"
	"github.com/leaselimit/leaselimit/quota"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Where parts of the limiter meet.

// A step of the sweep that was about to begin when Close came takes nothing along, and is the last.
func TestASweepAfterCloseTakesNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		lim := newLimiter(t, newTap(), limited(quota.PerSecond(10, 100)))
		for _, name := range []string{"a", "b", "c"} {
			require.Equal(t, 10, calls(t, lim, name, 10))
		}
		require.NoError(t, lim.Close(t.Context()))
		before := lim.Stats()
		for range 5 {
			time.Sleep(2 * time.Minute)
			lim.Sweep()
		}
		assert.Equal(t, before.Allowed(), lim.Stats().Allowed())
		assert.Equal(t, before.Tenants, lim.Stats().Tenants)
	})
}

// A replica whose calls are too dear to be leased for is counted among the others, too.
func TestReplicasThatOnlyTakeAreCounted(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := membucket.New()
		var lims []*leaselimit.Limiter
		for range 6 {
			lims = append(lims, newLimiter(t, store, limited(quota.PerSecond(1000, 1000))))
		}
		for range 30 {
			for _, lim := range lims {
				_, err := leaselimit.AllowAll(t.Context(), "acme", leaselimit.Charge{Limiter: lim, Cost: 300})
				require.NoError(t, err)
				time.Sleep(50 * ms)
			}
		}
		for _, lim := range lims {
			assert.Equal(t, int64(6), lim.Stats().Replicas)
		}
	})
}

// AllowAll and Estimate are seen like any other call.
func TestAllowAllAndEstimateAreObserved(t *testing.T) {
	bubble(t, func(t *testing.T) {
		seen := map[bool]int{}
		cfg := limited(still(100))
		cfg.Observer = &leaselimit.Observer{
			Sample:  1,
			Decided: func(_ context.Context, _ string, _ int64, d leaselimit.Decision) { seen[d.Allowed]++ },
		}
		lim := newLimiter(t, newTap(), cfg)
		for range 3 {
			_, err := leaselimit.AllowAll(t.Context(), "acme", leaselimit.Charge{Limiter: lim, Cost: 60})
			require.NoError(t, err)
		}
		_, err := lim.Estimate(t.Context(), "acme", 20)
		require.NoError(t, err)
		assert.Equal(t, map[bool]int{true: 2, false: 2}, seen)
		s, ok := lim.TenantStats("acme")
		require.True(t, ok)
		assert.Equal(t, [2]int64{2, 2}, [2]int64{s.Allowed, s.Refused})
	})
}
