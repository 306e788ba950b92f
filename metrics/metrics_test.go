package metrics_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/leaselimit/leaselimit"
	"github.com/leaselimit/leaselimit/membucket"
	"github.com/leaselimit/leaselimit/metrics"
	"github.com/leaselimit/leaselimit/quota"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func limiter(t *testing.T, class string) *leaselimit.Limiter {
	t.Helper()
	lim, err := leaselimit.New(membucket.New(), leaselimit.Config{
		Class: class, Limits: quota.Fixed(quota.Limit{Capacity: 10}), LeaseSize: 10, LeaseShare: 1, Replicas: 1,
		StoreTimeout: 10 * time.Second, // a busy machine is no failed store
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, lim.Close(context.Background())) })
	return lim
}

func TestOB5_OB6_DecisionsAddUp(t *testing.T) {
	a, b := limiter(t, "a"), limiter(t, "b")
	for range 100 {
		_, err := a.Allow(t.Context(), "tenant")
		require.NoError(t, err)
	}
	_, err := b.AllowN(t.Context(), "tenant", 11)
	require.NoError(t, err)
	_, err = b.AllowN(t.Context(), "tenant", 0)
	require.ErrorIs(t, err, leaselimit.ErrInvalidCost)

	sums := map[string]float64{}
	for _, s := range gather(t, metrics.NewCollector(a, b)) {
		sums[s.name+" "+s.labels["class"]+" "+s.labels["outcome"]] += s.value
	}
	assert.InDelta(t, 10, sums["leaselimit_decisions_total a allowed"], 0)
	assert.InDelta(t, 90, sums["leaselimit_decisions_total a refused"], 0)
	assert.InDelta(t, 1, sums["leaselimit_decisions_total b refused"], 0)
	assert.InDelta(t, 1, sums["leaselimit_errors_total b "], 0)
}

// A counter that falls is taken by Prometheus for one that began anew, and all of it for a rise.
func TestCountersDoNotFallWhenTokensArePutBack(t *testing.T) {
	lim := limiter(t, "a")
	_, err := lim.Allow(t.Context(), "tenant")
	require.NoError(t, err)
	c := metrics.NewCollector(lim)
	read := func() (totals []float64) {
		for _, s := range gather(t, c) {
			if strings.HasSuffix(s.name, "_total") {
				totals = append(totals, s.value)
			}
		}
		return totals
	}
	e, err := lim.Estimate(t.Context(), "tenant", 3)
	require.NoError(t, err)
	require.Equal(t, leaselimit.SourceLease, e.Source)
	before := read()
	require.NoError(t, e.Settle(t.Context(), 1))
	for i, v := range read() {
		assert.GreaterOrEqual(t, v, before[i])
	}
	fates := map[string]float64{}
	for _, s := range gather(t, c) {
		fates[s.labels["fate"]] += s.value
	}
	assert.InDelta(t, 2, fates["undone"], 0)
	assert.InDelta(t, 3, fates["spent"], 0)
}

func TestMC7_SeriesDoNotDependOnTenants(t *testing.T) {
	lim := limiter(t, "a")
	c := metrics.NewCollector(lim)
	before := testutil.CollectAndCount(c)
	for i := range 1000 {
		_, err := lim.Allow(t.Context(), fmt.Sprint(i))
		require.NoError(t, err)
	}
	assert.Equal(t, before, testutil.CollectAndCount(c))
}

func TestOB3_TwoLimitersInOneRegistry(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	a, b, c := limiter(t, "a"), limiter(t, "b"), limiter(t, "a")
	require.NoError(t, reg.Register(metrics.NewCollector(a)))
	require.NoError(t, reg.Register(metrics.NewCollector(b)), "the class tells them apart")
	require.Error(t, reg.Register(metrics.NewCollector(c)), "the same class is told apart, not mixed in")
	other := prometheus.WrapRegistererWith(prometheus.Labels{"limiter": "c"}, prometheus.NewRegistry())
	require.NoError(t, other.Register(metrics.NewCollector(c)))
	_, err := reg.Gather()
	require.NoError(t, err)
	one := prometheus.NewPedanticRegistry()
	require.NoError(t, one.Register(metrics.NewCollector(a, b, c)), "limiters of one class add up in one collector")
	_, err = one.Gather()
	require.NoError(t, err)
}

func TestNames(t *testing.T) {
	lim := limiter(t, "a")
	_, err := lim.Allow(t.Context(), "tenant")
	require.NoError(t, err)
	cache, err := quota.NewCache(quota.Fixed(quota.PerSecond(1, 1)), quota.CacheOptions{})
	require.NoError(t, err)
	t.Cleanup(cache.Close)
	tenants, err := metrics.NewTenantCollector(metrics.TenantOptions{Top: 5}, lim)
	require.NoError(t, err)
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(metrics.NewCollector(lim), tenants, metrics.NewQuotaCollector("tiers", cache))
	problems, err := testutil.GatherAndLint(reg)
	require.NoError(t, err)
	assert.Empty(t, problems)
}

type sample struct {
	name   string
	labels map[string]string
	value  float64
}

func gather(t *testing.T, c prometheus.Collector) (all []sample) {
	t.Helper()
	reg := prometheus.NewPedanticRegistry()
	require.NoError(t, reg.Register(c))
	families, err := reg.Gather()
	require.NoError(t, err)
	for _, f := range families {
		assert.True(t, strings.HasPrefix(f.GetName(), "leaselimit_"))
		for _, m := range f.GetMetric() {
			s := sample{name: f.GetName(), labels: map[string]string{}}
			for _, l := range m.GetLabel() {
				s.labels[l.GetName()] = l.GetValue()
			}
			s.value = m.GetCounter().GetValue() + m.GetGauge().GetValue()
			all = append(all, s)
		}
	}
	return all
}
