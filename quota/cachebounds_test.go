package quota_test

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leaselimit/leaselimit/quota"
	"github.com/stretchr/testify/assert"
)

// 100,000 tenants that expire together cause no more than MaxLookups lookups at a time, and every one is refreshed.
func TestCacheBoundsLookupsInFlight(t *testing.T) {
	n := 100_000
	if testing.Short() {
		n = 10_000
	}
	synctest.Test(t, func(t *testing.T) {
		names := make([]string, n)
		for i := range names {
			names[i] = fmt.Sprint("tenant-", i)
		}
		src := newTable(slow, names...)
		c := newCache(t, src, quota.CacheOptions{MaxTenants: n, MaxLookups: 50, TTL: time.Hour, MaxStale: 24 * time.Hour})
		for _, name := range names {
			want(t, c, name, slow)
		}
		src.set(func(s *table) { s.took = time.Second / 2; s.lookups, s.most = 0, 0 })
		after(61*time.Minute + 2*time.Second)
		start := time.Now()
		for _, name := range names {
			want(t, c, name, slow)
		}
		assert.Zero(t, time.Since(start), "nobody waits")
		assert.Greater(t, c.Stats().Queued, n-100)
		after(20 * time.Minute)
		assert.Equal(t, n, src.asked())
		assert.Equal(t, 50, src.most)
		assert.Zero(t, c.Stats().Queued)
	})
}

// New names in any number do not keep a known tenant from its refresh, nor the reverse.
func TestCacheQueuesTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var known []string
		for i := range 30 {
			known = append(known, fmt.Sprint("known-", i))
		}
		src := newTable(slow, append(known, "acme", "newcomer")...)
		c := newCache(t, src, quota.CacheOptions{MaxLookups: 1, Timeout: time.Minute})
		for tenant := range src.limits {
			if tenant != "newcomer" {
				want(t, c, tenant, slow)
			}
		}
		src.set(func(s *table) { s.took = time.Second; s.limits["acme"] = quick })
		var all sync.WaitGroup
		for i := range 30 {
			all.Go(func() { _, _ = c.Limit(t.Context(), fmt.Sprint("new-", i)) })
		}
		synctest.Wait()
		c.Invalidate("acme")
		after(3500 * time.Millisecond)
		want(t, c, "acme", quick)
		all.Wait()

		for _, tenant := range known {
			c.Invalidate(tenant)
		}
		synctest.Wait()
		start := time.Now()
		want(t, c, "newcomer", slow)
		assert.LessOrEqual(t, time.Since(start), 3*time.Second)
	})
}

// Tenants seen together are not due together.
func TestCacheSpreadsRefreshes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newTable(slow)
		c := newCache(t, src, quota.CacheOptions{TTL: 100 * time.Second, Default: &slow})
		due := func() (n int64) {
			before := c.Stats().StaleServes
			for i := range 1000 {
				want(t, c, fmt.Sprint("tenant-", i), slow)
			}
			synctest.Wait()
			return c.Stats().StaleServes - before
		}
		due()
		after(79 * time.Second)
		assert.Zero(t, due())
		after(11 * time.Second)
		assert.InDelta(t, 500, due(), 150) // a standard deviation is 16
		after(12 * time.Second)
		assert.InDelta(t, 500, due(), 150)
	})
}

func TestCacheInvalidate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newTable(slow, "acme", "other")
		src.took = time.Second / 10
		c := newCache(t, src, quota.CacheOptions{})
		c.Invalidate("acme")
		assert.Zero(t, src.asked(), "what is not cached is not looked up")
		want(t, c, "acme", slow)
		want(t, c, "other", slow)

		src.set(func(s *table) { s.limits["acme"] = quick })
		c.Invalidate("acme")
		want(t, c, "acme", slow)
		after(time.Second / 5)
		want(t, c, "acme", quick) // though nobody called

		{ // a lookup that began before is repeated
			c.Invalidate("acme")
			synctest.Wait() // it has read
			src.set(func(s *table) { s.limits["acme"] = slow })
			for range 10 {
				c.Invalidate("acme")
			}
			before := src.asked()
			after(time.Second)
			want(t, c, "acme", slow)
			assert.Equal(t, before+1, src.asked())
		}
		{ // all
			src.set(func(s *table) { s.limits["acme"], s.limits["other"] = quick, quick })
			before := src.asked()
			c.InvalidateAll()
			after(time.Second)
			assert.Equal(t, before, src.asked(), "not before somebody asks")
			want(t, c, "acme", slow)
			want(t, c, "other", slow)
			after(time.Second)
			want(t, c, "acme", quick)
			want(t, c, "other", quick)
		}
		{ // all, with a lookup under way
			c.Invalidate("acme")
			synctest.Wait()
			src.set(func(s *table) { s.limits["acme"] = slow })
			c.InvalidateAll()
			after(time.Second)
			want(t, c, "acme", slow)
		}
	})
}

// What is evicted is never seen again, not unlimited, and those in use stay.
func TestCacheIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newTable(slow, "hot")
		c := newCache(t, src, quota.CacheOptions{MaxTenants: 10})
		want(t, c, "hot", slow)
		for i := range 1000 {
			wantError(t, c, fmt.Sprint("name-", i), quota.ErrUnknownTenant)
			want(t, c, "hot", slow)
		}
		st := c.Stats()
		assert.Equal(t, 10, st.Entries)
		assert.EqualValues(t, 991, st.Evictions)
		assert.EqualValues(t, 1001, st.Misses, "the hot one was never evicted")
		src.set(func(s *table) { s.err = errGone })
		wantError(t, c, "name-0", errGone)
	})
}

// Names that cannot be looked up do not push out the last good answer of a tenant that calls.
func TestCacheKeepsWhatIsInUseWhileTheSourceIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newTable(slow, "hot")
		c := newCache(t, src, quota.CacheOptions{MaxTenants: 10})
		want(t, c, "hot", slow)
		src.set(func(s *table) { s.err = errGone })
		c.Invalidate("hot")
		synctest.Wait()
		for i := range 100 {
			want(t, c, "hot", slow)
			wantError(t, c, fmt.Sprint("name-", i), errGone)
		}
		assert.Positive(t, c.Stats().Evictions)
	})
}

// Any number of names behind a source that hangs is refused without keeping more than a bounded number of them.
func TestCacheIsBoundedBehindAHangingSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newTable(slow)
		src.took, src.deaf = time.Minute, true
		c := newCache(t, src, quota.CacheOptions{MaxTenants: 10, MaxLookups: 1})
		for round := range 10 {
			var all sync.WaitGroup
			for i := range 300 {
				all.Go(func() {
					name := fmt.Sprint("name-", round, "-", i)
					wantError(t, c, name, quota.ErrTimeout)
					c.Invalidate(name)
				})
			}
			all.Wait()
		}
		st := c.Stats()
		assert.Equal(t, 10, st.Entries)
		assert.LessOrEqual(t, st.Queued, 2000, "calls, and refreshes")
		assert.Equal(t, 1, src.asked())
	})
}
