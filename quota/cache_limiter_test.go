package quota_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/leaselimit/leaselimit"
	"github.com/leaselimit/leaselimit/membucket"
	"github.com/leaselimit/leaselimit/quota"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// passing is how many of n calls, one every gap, a limiter over the cache lets pass.
func passing(t *testing.T, lim *leaselimit.Limiter, n int, gap time.Duration) (passed int) {
	t.Helper()
	for range n {
		d, err := lim.Allow(t.Context(), "acme")
		require.NoError(t, err)
		if d.Allowed {
			passed++
		}
		time.Sleep(gap)
	}
	return passed
}

func newLimiter(t *testing.T, c *quota.Cache) *leaselimit.Limiter {
	t.Helper()
	lim, err := leaselimit.New(membucket.New(), leaselimit.Config{Limits: c, Exact: true})
	require.NoError(t, err)
	return lim
}

// A tenant above its limit, a source that takes 2 s, answers that are due every second: what passes is the limit.
func TestQC10_ExpiryLetsNothingThroughTheLimiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newTable(quota.PerMinute(1, 5), "acme")
		src.took = 2 * time.Second
		c := newCache(t, src, quota.CacheOptions{TTL: time.Second, Timeout: 3 * time.Second})
		lim := newLimiter(t, c)
		defer lim.Close(t.Context())
		passed := passing(t, lim, 10_000, 10*time.Millisecond)
		assert.InDelta(t, 5+100.0/60, passed, 1)
		assert.Positive(t, c.Stats().StaleServes)
	})
}

// A tenant that was told to come back in an hour comes back when its limit was raised, within the TTL and a call.
func TestQC1QC6_ARaiseIsInForceWithinTheTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newTable(quota.Limit{Capacity: 1, Refill: 1, Per: time.Hour}, "acme")
		c := newCache(t, src, quota.CacheOptions{TTL: 30 * time.Second})
		lim := newLimiter(t, c)
		defer lim.Close(t.Context())
		assert.Equal(t, 1, passing(t, lim, 10, time.Second))
		src.set(func(s *table) { s.limits["acme"] = quota.PerSecond(1000, 1000) })
		passing(t, lim, 40, time.Second)
		assert.Equal(t, 10, passing(t, lim, 10, time.Second))
	})
}
