package bench

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/leaselimit/leaselimit"
	"github.com/leaselimit/leaselimit/quota"
	"github.com/maypok86/otter/v2"
	"github.com/stretchr/testify/require"
)

// What a warm lookup of a limit takes: quota.Cache, otter with the refresh and expiry that the cache would need of it, otter
// without, and a sync.Map that does nothing but keep.
func BenchmarkLimitLookup(b *testing.B) {
	expiring := &otter.Options[string, quota.Limit]{
		ExpiryCalculator:  otter.ExpiryWriting[string, quota.Limit](time.Hour),
		RefreshCalculator: otter.RefreshWriting[string, quota.Limit](45 * time.Second),
	}
	for _, n := range []int{1, 10_000} {
		compare(b, n, true,
			lookups("quota.Cache", cached),
			lookups("otter", inOtter(expiring)),
			lookups("otter-without-time", inOtter(&otter.Options[string, quota.Limit]{})),
			lookups("sync.Map", inSyncMap))
	}
}

// What a warm lookup adds to a decision.
func BenchmarkAllowWithCache(b *testing.B) {
	limit := quota.PerSecond(1, plenty)
	for _, n := range []int{1, 10_000} {
		compare(b, n, true,
			allowing("fixed", func(testing.TB, []string) quota.Source { return quota.Fixed(limit) }),
			allowing("func", func(testing.TB, []string) quota.Source { return always(limit) }),
			allowing("cache", func(tb testing.TB, names []string) quota.Source { return newCache(tb, names, limit) }))
	}
}

type lookup func(tenant string) (quota.Limit, bool)

func lookups(name string, of func(tb testing.TB, names []string, limit quota.Limit) lookup) subject {
	return subject{name, func(tb testing.TB, n int) func(int) bool {
		all, limit := names(n), quota.PerSecond(2, 20)
		get := of(tb, all, limit)
		return func(i int) bool {
			got, ok := get(all[i])
			return ok && got == limit
		}
	}}
}

func allowing(name string, source func(tb testing.TB, names []string) quota.Source) subject {
	return subject{name, func(tb testing.TB, n int) func(int) bool {
		all := names(n)
		// One lease is more than the benchmark spends.
		lim := newLimiter(tb, leaselimit.Config{
			Limits: source(tb, all), LeaseShare: 1, LeaseSize: plenty / 4, LeaseTTL: time.Hour,
		})
		for _, tenant := range all {
			_, err := lim.Allow(ctx, tenant)
			require.NoError(tb, err)
		}
		return func(i int) bool {
			d, err := lim.Allow(ctx, all[i])
			return err == nil && d.Allowed
		}
	}}
}

func always(limit quota.Limit) quota.Source {
	return quota.SourceFunc(func(context.Context, string) (quota.Limit, error) { return limit, nil })
}

func newCache(tb testing.TB, names []string, limit quota.Limit) *quota.Cache {
	tb.Helper()
	c, err := quota.NewCache(always(limit), quota.CacheOptions{})
	require.NoError(tb, err)
	tb.Cleanup(c.Close)
	for _, name := range names {
		_, err := c.Limit(ctx, name)
		require.NoError(tb, err)
	}
	return c
}

func cached(tb testing.TB, names []string, limit quota.Limit) lookup {
	c := newCache(tb, names, limit)
	return func(tenant string) (quota.Limit, bool) {
		got, err := c.Limit(ctx, tenant)
		return got, err == nil
	}
}

func inOtter(opts *otter.Options[string, quota.Limit]) func(testing.TB, []string, quota.Limit) lookup {
	return func(tb testing.TB, names []string, limit quota.Limit) lookup {
		tb.Helper()
		opts.MaximumSize = 100_000
		c := otter.Must(opts)
		tb.Cleanup(func() { c.StopAllGoroutines() })
		for _, name := range names {
			c.Set(name, limit)
		}
		return c.GetIfPresent
	}
}

func inSyncMap(_ testing.TB, names []string, limit quota.Limit) lookup {
	var m sync.Map
	for _, name := range names {
		m.Store(name, &limit)
	}
	return func(tenant string) (quota.Limit, bool) {
		if v, ok := m.Load(tenant); ok {
			return *v.(*quota.Limit), true
		}
		return quota.Limit{}, false
	}
}
