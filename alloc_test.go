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

// TestAllocations: what is decided from memory allocates nothing.
func TestAllocations(t *testing.T) {
	ctx := context.Background()
	for name, coarse := range map[string]time.Duration{"exact clock": 0, "coarse clock": ms} {
		t.Run(name, func(t *testing.T) {
			cfg := limited(quota.PerSecond(1, 1_000_000))
			cfg.LeaseSize, cfg.LeaseShare, cfg.Replicas = 400_000, 1, 1
			cfg.StoreTimeout, cfg.CoarseClock = 10*time.Second, coarse
			lim := newLimiter(t, membucket.New(), cfg)
			handle := lim.Tenant("acme")
			_, err := handle.Allow(ctx)
			require.NoError(t, err)
			check := func(what string, source leaselimit.Source, allowed bool, f func() (leaselimit.Decision, error)) {
				t.Helper()
				var d leaselimit.Decision
				assert.Zero(t, testing.AllocsPerRun(1000, func() {
					if d, err = f(); err != nil || d.Source != source || d.Allowed != allowed {
						panic(what + ": " + d.String())
					}
				}), what)
			}
			check("by string, with a lease in hand", leaselimit.SourceLease, true, func() (leaselimit.Decision, error) {
				return lim.Allow(ctx, "acme")
			})
			check("by handle, with a lease in hand", leaselimit.SourceLease, true, func() (leaselimit.Decision, error) {
				return handle.Allow(ctx)
			})
			check("of cost 3", leaselimit.SourceLease, true, func() (leaselimit.Decision, error) {
				return handle.AllowN(ctx, 3)
			})

			empty := limited(quota.Limit{Capacity: 2, Refill: 1, Per: time.Hour})
			empty.StoreTimeout, empty.CoarseClock = 10*time.Second, coarse
			lim = newLimiter(t, membucket.New(), empty)
			handle = lim.Tenant("acme")
			for range 4 {
				_, err := handle.Allow(ctx)
				require.NoError(t, err)
			}
			check("refused, by string", leaselimit.SourcePrecheck, false, func() (leaselimit.Decision, error) {
				return lim.Allow(ctx, "acme")
			})
			check("refused, by handle", leaselimit.SourcePrecheck, false, func() (leaselimit.Decision, error) {
				return handle.Allow(ctx)
			})
			check("above the capacity", leaselimit.SourcePrecheck, false, func() (leaselimit.Decision, error) {
				return handle.AllowN(ctx, 3)
			})
		})
	}
}
