package quota_test

import (
	"context"
	"fmt"
	"io"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leaselimit/leaselimit/quota"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestCacheKeepsTheLastGoodValueForMaxStale(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newTable(slow, "acme")
		c := newCache(t, src, quota.CacheOptions{MaxStale: 10 * time.Minute})
		want(t, c, "acme", slow)
		start := time.Now()
		src.set(func(s *table) { s.err = errGone })
		for time.Since(start) < 10*time.Minute-time.Second {
			want(t, c, "acme", slow)
			after(time.Second)
		}
		assert.Less(t, src.asked(), 40, "the pauses between failures grow to the TTL")
		assert.InDelta(t, 10*time.Minute, c.Stats().OldestStale, float64(2*time.Second))
		after(2 * time.Second)
		wantError(t, c, "acme", errGone)

		src.set(func(s *table) { s.err = nil })
		after(time.Minute)
		want(t, c, "acme", slow)
		assert.Zero(t, c.Stats().OldestStale)
	})
}

func TestCacheFallsBackToDefaultAndNeverToUnlimited(t *testing.T) {
	for name, fail := range map[string]func(*table){
		"an error":                         func(s *table) { s.err = errGone },
		"a hanging source":                 func(s *table) { s.took = time.Hour },
		"a source that hangs and is deaf":  func(s *table) { s.took, s.deaf = 10*time.Second, true },
		"an invalid limit":                 func(s *table) { s.limits["acme"] = quota.Limit{Capacity: -1} },
		"a limit of almost unlimited":      func(s *table) { s.limits["acme"] = quota.Limit{Capacity: math.MaxInt64, Refill: 1, Per: 1} },
		"an error that hides in a timeout": func(s *table) { s.err = context.DeadlineExceeded },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				src := newTable(slow)
				fail(src)
				withDefault := newCache(t, src, quota.CacheOptions{Default: &quick})
				without := newCache(t, src, quota.CacheOptions{})
				for range 20 {
					start := time.Now()
					want(t, withDefault, "acme", quick)
					assert.LessOrEqual(t, time.Since(start), time.Second, "Timeout")
					limit, err := without.Limit(t.Context(), "acme")
					require.Error(t, err)
					require.NotErrorIs(t, err, context.DeadlineExceeded, "the caller has all the time in the world")
					require.Equal(t, quota.Limit{}, limit)
					after(100 * time.Millisecond)
				}
				assert.LessOrEqual(t, src.asked(), 10)
				after(15 * time.Second)
				assert.Zero(t, withDefault.Stats().InFlight+without.Stats().InFlight)
			})
		})
	}
}

// A panic of the source is a failure of that lookup, as a panic of a store is one of that draw. There is no caller to recover from it.
func TestAPanicOfTheSourceIsAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src, broken := newTable(slow, "acme"), false
		c := newCache(t, quota.SourceFunc(func(ctx context.Context, tenant string) (quota.Limit, error) {
			if broken || tenant == "bolt" {
				panic("nil map")
			}
			return src.Limit(ctx, tenant)
		}), quota.CacheOptions{})
		_, err := c.Limit(t.Context(), "bolt")
		require.ErrorContains(t, err, "nil map")
		want(t, c, "acme", slow)
		after(time.Hour / 2)
		broken = true
		want(t, c, "acme", slow)
		after(time.Second)
		want(t, c, "acme", slow)
		assert.Equal(t, int64(2), c.Stats().LookupErrors)
	})
}

// An error is not kept for longer than a short pause, and the source is not asked more often than that.
func TestCacheBacksOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newTable(slow, "acme")
		src.err = errGone
		c := newCache(t, src, quota.CacheOptions{Backoff: time.Second})
		for range 100 {
			wantError(t, c, "acme", errGone)
		}
		assert.Equal(t, 1, src.asked())
		src.set(func(s *table) { s.err = nil })
		after(time.Second)
		want(t, c, "acme", slow)
		st := c.Stats()
		assert.EqualValues(t, 99, st.Fallbacks)
		assert.EqualValues(t, 2, st.Misses)
		assert.EqualValues(t, 1, st.LookupErrors)
		assert.Zero(t, st.InvalidLimits)
	})
}

// However long a source has failed, and however long the first pause is, a pause is the TTL at most.
func TestCacheBacksOffForTheTTLAtMost(t *testing.T) {
	for _, backoff := range []time.Duration{1, time.Second, 10 * time.Second, 17 * time.Second, 45 * time.Second} {
		t.Run(backoff.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				src := newTable(slow, "acme")
				src.err = errGone
				c := newCache(t, src, quota.CacheOptions{Backoff: backoff})
				for n := 1; n < 100; n++ {
					wantError(t, c, "acme", errGone)
					require.Equal(t, n, src.asked())
					after(45 * time.Second)
				}
				src.set(func(s *table) { s.err = nil })
				want(t, c, "acme", slow)
			})
		})
	}
}

// A failure after a failure is the newer one, and not an answer that is kept.
func TestCacheKeepsNoFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newTable(slow)
		src.err = errGone
		c := newCache(t, src, quota.CacheOptions{})
		wantError(t, c, "acme", errGone)
		src.set(func(s *table) { s.err = io.ErrUnexpectedEOF })
		c.Invalidate("acme")
		synctest.Wait()
		wantError(t, c, "acme", io.ErrUnexpectedEOF)
		st := c.Stats()
		assert.EqualValues(t, 1, st.Fallbacks)
		assert.Zero(t, st.StaleServes)
		assert.Zero(t, st.OldestStale)
	})
}

// A source that is away for all tenants is asked MaxLookups times in 50 ms, at most.
func TestCacheSparesASourceThatIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newTable(slow)
		src.err = errGone
		c := newCache(t, src, quota.CacheOptions{MaxLookups: 4, Default: &quick})
		var all sync.WaitGroup
		for i := range 5000 {
			all.Go(func() { want(t, c, fmt.Sprint("tenant-", i), quick) })
		}
		all.Wait() // each of them waits for Timeout, 1s, at most
		assert.LessOrEqual(t, src.asked(), 4*(20+1))
		assert.Equal(t, 5000, c.Stats().Entries)
	})
}

func TestCacheUnknownTenants(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newTable(slow)
		c := newCache(t, src, quota.CacheOptions{})
		for range 10 {
			wantError(t, c, "nobody", quota.ErrUnknownTenant)
		}
		assert.Equal(t, 1, src.asked(), "a negative answer is kept")
		withDefault := newCache(t, src, quota.CacheOptions{Default: &quick})
		for range 10 {
			want(t, withDefault, "nobody", quick)
		}
		assert.Equal(t, 2, src.asked())
		st := withDefault.Stats()
		assert.EqualValues(t, 1, st.Negative)
		assert.Zero(t, st.LookupErrors, "it is an answer")

		src.set(func(s *table) { s.limits["nobody"] = slow })
		c.Invalidate("nobody")
		synctest.Wait()
		want(t, c, "nobody", slow)
	})
}

// A limit that turns bad in the source: the last good one stays in force, and is counted.
func TestAV3_BadDynamicLimitKeepsTheLastGoodOne(t *testing.T) {
	for _, bad := range []quota.Limit{
		{Capacity: 5, Refill: 1},
		{Capacity: 5, Refill: 1, Per: -time.Second},
		{Capacity: -1},
		{Capacity: quota.MaxTokens + 1},
		{Capacity: math.MaxInt64, Refill: math.MaxInt64},
	} {
		t.Run(fmt.Sprintf("%+v", bad), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				src := newTable(slow, "acme")
				c := newCache(t, src, quota.CacheOptions{Default: &quick})
				want(t, c, "acme", slow)
				src.set(func(s *table) { s.limits["acme"] = bad })
				c.Invalidate("acme")
				synctest.Wait()
				for range 10 {
					want(t, c, "acme", slow)
				}
				st := c.Stats()
				assert.EqualValues(t, 1, st.InvalidLimits)
				assert.EqualValues(t, 1, st.LookupErrors)
				assert.EqualValues(t, 10, st.StaleServes)
			})
		})
	}
}

// Somebody's bad rows do not slow the lookups of others: the source is well.
func TestCacheDoesNotPauseForInvalidLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newTable(quota.Limit{Capacity: -1}, "a", "b", "c")
		c := newCache(t, src, quota.CacheOptions{MaxLookups: 1})
		start := time.Now()
		for tenant := range src.limits {
			wantError(t, c, tenant, quota.ErrInvalid)
		}
		assert.Zero(t, time.Since(start))
	})
}
