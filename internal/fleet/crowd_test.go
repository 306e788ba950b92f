package fleet_test

import (
	"flag"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leaselimit/leaselimit"
	"github.com/leaselimit/leaselimit/internal/fleet"
	"github.com/leaselimit/leaselimit/membucket"
	"github.com/leaselimit/leaselimit/quota"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var crowds = flag.Bool("crowd", false, "run the crowds of docs/scale.md in full (minutes, and gigabytes of memory)")

// tier is what a tenant pays for: of ten tenants two are pro, one is burst-heavy and seven are free. The most popular one is pro.
func tier(tenant int) quota.Limit {
	switch tenant % 10 {
	case 0, 5:
		return quota.PerSecond(50, 200)
	case 3:
		return quota.PerSecond(10, 100)
	}
	return quota.PerSecond(2, 20)
}

// crowd runs c on virtual time and holds the bound of every tenant.
func crowd(t *testing.T, c fleet.Crowd) (r fleet.CrowdResult) {
	t.Helper()
	c.Limit, c.RTT, c.Zipf, c.Seed = tier, time.Millisecond, 1.1, *seed
	c.Limiter = leaselimit.Config{Replicas: c.Spread}
	if c.Spread == 0 {
		c.Limiter.Replicas = c.Replicas
	}
	begin := time.Now()
	synctest.Test(t, func(t *testing.T) {
		c.Store = membucket.New()
		var err error
		r, err = c.Run()
		require.NoError(t, err)
	})
	t.Logf("seed %d, %d replicas, %d tenants on %d each (0: all), %g calls/s for %v: %v; in %v", c.Seed, c.Replicas, c.Tenants, c.Spread, c.Rate,
		c.Duration, r, time.Since(begin).Round(time.Second))
	for k, n := range r.ByTenant {
		l := tier(k)
		// What is refilled during a round trip is what calls in flight can add.
		bound := float64(l.Capacity) + l.PerMillisecond()*1000*(c.Duration+c.RTT).Seconds() + 0.1*float64(l.Capacity)
		if !assert.LessOrEqual(t, float64(n.Admitted), bound+1e-6, "tenant %d", k) {
			break
		}
	}
	return r
}

// TestCrowd: what many replicas cost the store depends on how many of them a tenant's calls go to, and the costliest tenant on how
// many replicas ask for it, not on how many calls it makes. With -crowd these are the runs of docs/scale.md.
func TestCrowd(t *testing.T) {
	if *crowds {
		for _, c := range []fleet.Crowd{
			{Replicas: 4, Tenants: 20_000, Rate: 20_000, Duration: time.Minute},
			{Replicas: 1000, Tenants: 10_000, Spread: 4, Rate: 20_000, Duration: time.Minute},
			{Replicas: 1000, Tenants: 100_000, Spread: 4, Rate: 20_000, Duration: time.Minute},
			{Replicas: 1000, Tenants: 10_000, Spread: 32, Rate: 20_000, Duration: time.Minute},
			{Replicas: 1000, Tenants: 10_000, Rate: 20_000, Duration: time.Minute},
			{Replicas: 1000, Tenants: 10_000, Rate: 80_000, Duration: 15 * time.Second},
		} {
			crowd(t, c)
			runtime.GC() // of the crowd before
		}
		return
	}
	c := fleet.Crowd{Replicas: 50, Tenants: 200, Rate: 2000, Duration: 10 * time.Second}
	all := crowd(t, c)
	c.Spread = 4
	some := crowd(t, c)
	assert.Less(t, 1.5*some.Steps(), all.Steps(), "few replicas to a tenant do not pay")

	// A replica that is refused asks once in a horizon, C/8r: here every 0.5 s.
	first := all.ByTenant[0]
	assert.Greater(t, float64(first.Calls), 5*float64(first.Admitted), "not overloaded")
	assert.Less(t, float64(first.Steps), 1.5*50*(10/0.5), "an overloaded tenant is asked for too often")
}
