package metrics_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leaselimit/leaselimit/metrics"
	"github.com/leaselimit/leaselimit/quota"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestMC7_TheBusiestTenantsAreFew(t *testing.T) {
	lim := limiter(t, "a")
	for i := range 500 {
		for range 1 + i/100 {
			_, err := lim.Allow(t.Context(), fmt.Sprint("crowd-", i))
			require.NoError(t, err)
		}
	}
	for range 100 {
		_, err := lim.Allow(t.Context(), "busy")
		require.NoError(t, err)
	}
	c, err := metrics.NewTenantCollector(metrics.TenantOptions{Names: []string{"crowd-7", "busy", "nobody"}, Top: 5}, lim)
	require.NoError(t, err)
	assert.LessOrEqual(t, testutil.CollectAndCount(c), 2*(3+5))
	assert.InDelta(t, 10, value(t, c, "leaselimit_tenant_decisions_total", labels{"tenant": "busy", "outcome": "allowed"}), 0)
	assert.InDelta(t, 90, value(t, c, "leaselimit_tenant_decisions_total", labels{"tenant": "busy", "outcome": "refused"}), 0)
	assert.InDelta(t, 1, value(t, c, "leaselimit_tenant_decisions_total", labels{"tenant": "crowd-7"}), 0)

	top, err := metrics.NewTenantCollector(metrics.TenantOptions{Top: 1}, lim)
	require.NoError(t, err)
	assert.InDelta(t, 100, value(t, top, "leaselimit_tenant_decisions_total", labels{"tenant": "busy"}), 0)
	assert.Equal(t, 2, testutil.CollectAndCount(top))
}

// A surge is seen in seconds, however many calls another tenant made before.
func TestTheBusiestAreThoseOfLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lim := limiter(t, "a")
		for range 10_000 {
			_, err := lim.Allow(t.Context(), "yesterday")
			require.NoError(t, err)
			time.Sleep(time.Millisecond)
		}
		time.Sleep(40 * time.Second) // not so long that it has left memory
		for range 5000 {
			_, err := lim.Allow(t.Context(), "now")
			require.NoError(t, err)
			time.Sleep(time.Millisecond)
		}
		top := lim.Tenants(1)
		require.Len(t, top, 1)
		assert.Equal(t, "now", top[0].Tenant)
		assert.Empty(t, lim.Tenants(0))
		assert.Len(t, lim.Tenants(10), 2)
	})
}

func TestTenantsAreHashed(t *testing.T) {
	lim := limiter(t, "a")
	for _, name := range []string{"acme", "\xff\xfe"} {
		_, err := lim.Allow(t.Context(), name)
		require.NoError(t, err)
	}
	hashed := func(key string) (all []string) {
		c, err := metrics.NewTenantCollector(metrics.TenantOptions{Top: 10, HashKey: []byte(key)}, lim)
		require.NoError(t, err)
		for _, s := range gather(t, c) {
			assert.Regexp(t, "^[0-9a-f]{16}$", s.labels["tenant"])
			all = append(all, s.labels["tenant"])
		}
		return all
	}
	first, again := hashed("k"), hashed("k")
	assert.ElementsMatch(t, first, again)
	assert.NotSubset(t, first, hashed("l"))
	c, err := metrics.NewTenantCollector(metrics.TenantOptions{Top: 10}, lim)
	require.NoError(t, err)
	assert.InDelta(t, 1, value(t, c, "leaselimit_tenant_decisions_total", labels{"tenant": "\uFFFD"}), 0, "a label is UTF-8")
}

func TestTenantOptionsAreChecked(t *testing.T) {
	a := limiter(t, "a")
	for want, opts := range map[string]metrics.TenantOptions{
		"neither Names nor Top is set": {}, "Top is -1, must be 0 to 1000": {Top: -1}, "Top is 1001, must be 0 to 1000": {Top: 1001},
	} {
		_, err := metrics.NewTenantCollector(opts, a)
		require.ErrorContains(t, err, want)
	}
	_, err := metrics.NewTenantCollector(metrics.TenantOptions{Top: 1}, a, limiter(t, "a"))
	require.ErrorContains(t, err, `two limiters of the class "a"`)
}

func TestLookupsAreCounted(t *testing.T) {
	source := quota.SourceFunc(func(_ context.Context, tenant string) (quota.Limit, error) {
		if tenant == "bad" {
			return quota.Limit{}, errors.New("no database")
		}
		return quota.PerSecond(1, 1), nil
	})
	cache, err := quota.NewCache(source, quota.CacheOptions{})
	require.NoError(t, err)
	defer cache.Close()
	for range 3 {
		_, err = cache.Limit(t.Context(), "good")
		require.NoError(t, err)
	}
	_, err = cache.Limit(t.Context(), "bad")
	require.Error(t, err)
	c := metrics.NewQuotaCollector("tiers", cache)
	assert.InDelta(t, 2, value(t, c, "leaselimit_quota_misses_total", labels{"cache": "tiers"}), 0)
	assert.InDelta(t, 1, value(t, c, "leaselimit_quota_lookup_errors_total", nil), 0)
	assert.InDelta(t, 2, value(t, c, "leaselimit_quota_entries", nil), 0)
}
