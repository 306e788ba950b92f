package metrics

import (
	"github.com/leaselimit/leaselimit/quota"
	"github.com/prometheus/client_golang/prometheus"
)

// NewQuotaCollector returns a collector of the lookups of cache. name is the value of its label "cache", which tells caches apart:
// collectors of different names may be registered side by side.
func NewQuotaCollector(name string, cache *quota.Cache) prometheus.Collector {
	c := &quotaCollector{cache: cache}
	for _, m := range lookups {
		c.descs = append(c.descs,
			prometheus.NewDesc("leaselimit_quota_"+m.name, m.help, nil, prometheus.Labels{"cache": name}))
	}
	return c
}

type quotaCollector struct {
	cache *quota.Cache
	descs []*prometheus.Desc // one for each of lookups
}

// lookups are all series that come from CacheStats. A field more is a line more.
var lookups = []struct {
	name, help string
	kind       prometheus.ValueType
	value      func(*quota.CacheStats) float64
}{
	{
		"misses_total", "Calls that had to wait for a lookup.", prometheus.CounterValue,
		func(s *quota.CacheStats) float64 { return float64(s.Misses) },
	},
	{
		"stale_served_total", "Calls answered with a limit that was due to be looked up again.", prometheus.CounterValue,
		func(s *quota.CacheStats) float64 { return float64(s.StaleServes) },
	},
	{
		"fallbacks_total", "Calls answered with the default or an error, after a lookup that failed.", prometheus.CounterValue,
		func(s *quota.CacheStats) float64 { return float64(s.Fallbacks) },
	},
	{
		"lookups_total", "Lookups asked of the source.", prometheus.CounterValue,
		func(s *quota.CacheStats) float64 { return float64(s.Lookups) },
	},
	{
		"refreshes_total", "Lookups wanted in the background.", prometheus.CounterValue,
		func(s *quota.CacheStats) float64 { return float64(s.Refreshes) },
	},
	{
		"lookup_errors_total", "Lookups that failed, with invalid limits and timeouts.", prometheus.CounterValue,
		func(s *quota.CacheStats) float64 { return float64(s.LookupErrors) },
	},
	{
		"invalid_limits_total", "Lookups that failed since the limit was invalid.", prometheus.CounterValue,
		func(s *quota.CacheStats) float64 { return float64(s.InvalidLimits) },
	},
	{
		"unknown_tenants_total", "Lookups of tenants that the source does not know.", prometheus.CounterValue,
		func(s *quota.CacheStats) float64 { return float64(s.Negative) },
	},
	{
		"evictions_total", "Limits that made room for others.", prometheus.CounterValue,
		func(s *quota.CacheStats) float64 { return float64(s.Evictions) },
	},
	{
		"entries", "Limits in memory.", prometheus.GaugeValue,
		func(s *quota.CacheStats) float64 { return float64(s.Entries) },
	},
	{
		"lookups_queued", "Lookups that wait for their turn.", prometheus.GaugeValue,
		func(s *quota.CacheStats) float64 { return float64(s.Queued) },
	},
	{
		"lookups_in_flight", "Lookups under way, or pausing after a failure.", prometheus.GaugeValue,
		func(s *quota.CacheStats) float64 { return float64(s.InFlight) },
	},
	{
		"oldest_stale_seconds", "Age of the oldest limit that is used although lookups fail; 0 without one.", prometheus.GaugeValue,
		func(s *quota.CacheStats) float64 { return s.OldestStale.Seconds() },
	},
}

func (c *quotaCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range c.descs {
		ch <- d
	}
}

// Collect visits every limit in memory.
func (c *quotaCollector) Collect(ch chan<- prometheus.Metric) {
	s := c.cache.Stats()
	for i, m := range lookups {
		ch <- prometheus.MustNewConstMetric(c.descs[i], m.kind, m.value(&s))
	}
}
