package leaselimit_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/leaselimit/leaselimit/quota"
	"github.com/stretchr/testify/assert"
)

// A tenant far above its limit gets the limit, no less, and costs the store a few calls a second.
func TestOverloadGetsTheWholeLimitForAFewStoreCalls(t *testing.T) {
	for _, tt := range []struct{ capacity, refill int64 }{{1, 1}, {2, 1}, {4, 1}, {20, 1}, {10, 10}, {100, 100}, {1000, 100}} {
		for _, exact := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d at %d/s, exact %v", tt.capacity, tt.refill, exact), func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					const seconds = 100
					s := newTap()
					limit := quota.PerSecond(tt.refill, tt.capacity)
					cfg := limited(limit)
					cfg.Exact = exact
					lim := newLimiter(t, s, cfg)
					drain(t, s, "acme", limit, 0)
					admitted := int64(0)
					for range seconds * 500 {
						time.Sleep(2 * ms)
						if d, err := lim.Allow(t.Context(), "acme"); assert.NoError(t, err) && d.Allowed {
							admitted++
						}
					}
					assert.GreaterOrEqual(t, admitted, tt.refill*seconds*97/100)
					assert.LessOrEqual(t, admitted, tt.refill*seconds+lim.Bound("acme").Tokens)
					assert.LessOrEqual(t, len(s.draws()), 10*seconds)
				})
			})
		}
	}
}
