package metrics_test

import (
	"context"
	"fmt"
	"time"

	"github.com/leaselimit/leaselimit"
	"github.com/leaselimit/leaselimit/membucket"
	"github.com/leaselimit/leaselimit/metrics"
	"github.com/leaselimit/leaselimit/quota"
	"github.com/prometheus/client_golang/prometheus"
)

func Example() {
	cache, err := quota.NewCache(quota.Fixed(quota.Limit{Capacity: 5}), quota.CacheOptions{})
	if err != nil {
		panic(err)
	}
	defer cache.Close()
	lim, err := leaselimit.New(membucket.New(), leaselimit.Config{Limits: cache, StoreTimeout: time.Second})
	if err != nil {
		panic(err)
	}
	defer lim.Close(context.Background())
	busiest, err := metrics.NewTenantCollector(metrics.TenantOptions{Top: 20}, lim)
	if err != nil {
		panic(err)
	}
	reg := prometheus.NewRegistry()
	reg.MustRegister(metrics.NewCollector(lim), metrics.NewQuotaCollector("tiers", cache), busiest)

	for range 7 {
		_, _ = lim.Allow(context.Background(), "acme")
	}
	families, err := reg.Gather()
	if err != nil {
		panic(err)
	}
	for _, f := range families {
		if f.GetName() == "leaselimit_tenant_decisions_total" {
			for _, m := range f.GetMetric() {
				fmt.Println(m.GetLabel()[1].GetValue(), m.GetCounter().GetValue())
			}
		}
	}
	// Output:
	// allowed 5
	// refused 2
}
