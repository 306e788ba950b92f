package bench

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/leaselimit/leaselimit"
	"github.com/leaselimit/leaselimit/bench/load"
	"github.com/leaselimit/leaselimit/bench/peer"
	"github.com/leaselimit/leaselimit/internal/faultproxy"
	"github.com/leaselimit/leaselimit/internal/redistest"
	"github.com/leaselimit/leaselimit/lease"
	"github.com/leaselimit/leaselimit/membucket"
	"github.com/leaselimit/leaselimit/quota"
	"github.com/leaselimit/leaselimit/redisbucket"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// steady is traffic below a limit, of one tenant, spread evenly over replicas.
type steady struct {
	name     string
	limit    quota.Limit
	replicas int
	rate     float64
	rtt      time.Duration // beside that of loopback

	mostCalls  float64 // to the store, for each call admitted
	mostWaited float64 // of the calls admitted, as a share
}

var steadies = []steady{
	{
		name: "rate=1000/replicas=1/rtt=0s", limit: quota.PerSecond(2000, 10_000), replicas: 1, rate: 1000,
		mostCalls: 0.01, mostWaited: 0.01,
	},
	{
		name: "rate=10000/replicas=4/rtt=0s", limit: quota.PerSecond(12_000, 50_000), replicas: 4, rate: 10_000,
		mostCalls: 0.003, mostWaited: 0.01,
	},
	{
		name: "rate=2000/replicas=1/rtt=1ms", limit: quota.PerSecond(4000, 20_000), replicas: 1, rate: 2000, rtt: time.Millisecond,
		mostCalls: 0.01, mostWaited: 0.01,
	},
}

const steadyCallers = 64

// BenchmarkSteady is an open loop: ns/op is the schedule's. How long calls take is in the other columns, and how late the
// machine woke a caller in "late".
func BenchmarkSteady(b *testing.B) {
	for _, s := range steadies {
		b.Run(s.name, func(b *testing.B) {
			addr := overTCP(b)
			if s.rtt > 0 {
				proxy := faultproxy.New(b, addr)
				proxy.DelayReplies(s.rtt)
				addr = proxy.Addr()
			}
			client := func() *redis.Client {
				rdb := redis.NewClient(&redis.Options{Addr: addr, PoolSize: steadyCallers})
				b.Cleanup(func() { assert.NoError(b, rdb.Close()) })
				return rdb
			}
			prefix := redistest.Prefix(b)
			fleet := s.fleet(b, func() lease.Store { return redisbucket.New(client(), redisbucket.WithPrefix(prefix)) })
			s.warm(fleet)
			b.Run("peer=leaselimit", func(b *testing.B) {
				before := sum(fleet)
				r := s.run(b, fleet, b.N)
				report(b, r, cost(before, sum(fleet)))
			})
			b.Run("peer=redis_rate", func(b *testing.B) {
				lim := redis_rate.NewLimiter(client())
				limit := redis_rate.Limit{Rate: int(s.limit.Refill), Burst: int(s.limit.Capacity), Period: s.limit.Per}
				var refused atomic.Int64
				r := s.schedule(b.N).Run(func(int) {
					if got, err := lim.Allow(peer.Ctx, prefix, limit); err != nil || got.Allowed != 1 {
						refused.Add(1)
					}
				})
				require.Zero(b, refused.Load())
				report(b, r, costs{perAdmitted: 1, waited: 1})
			})
		})
	}
}

// The counts of BenchmarkSteady on time that is not the machine's: the real lease code against the reference store. What is
// asserted are the targets.
func TestSteadyTrafficAsksRarelyAndWaitsForNobody(t *testing.T) {
	for _, s := range steadies {
		t.Run(s.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := far{membucket.New(), max(s.rtt, 100*time.Microsecond)}
				fleet := s.fleet(t, func() lease.Store { return store })
				s.warm(fleet)
				before := sum(fleet)
				s.run(t, fleet, int(s.rate)*20)
				c := cost(before, sum(fleet))
				t.Logf("%.5f store calls per call admitted, %.5f of them waited", c.perAdmitted, c.waited)
				assert.LessOrEqual(t, c.perAdmitted, s.mostCalls)
				assert.LessOrEqual(t, c.waited, s.mostWaited)
			})
		})
	}
}

// The same over Redis and in real time, for seconds. The machine may be slow to answer, so the bound on those that wait is
// loose here.
func TestSteadyTrafficOverRedisAsksRarely(t *testing.T) {
	for _, s := range steadies {
		t.Run(s.name, func(t *testing.T) {
			prefix := redistest.Prefix(t)
			fleet := s.fleet(t, func() lease.Store {
				return redisbucket.New(redistest.Client(t), redisbucket.WithPrefix(prefix))
			})
			s.warm(fleet)
			before := sum(fleet)
			t.Log(s.run(t, fleet, int(s.rate)*2))
			c := cost(before, sum(fleet))
			t.Logf("%.5f store calls per call admitted, %.5f of them waited", c.perAdmitted, c.waited)
			assert.LessOrEqual(t, c.perAdmitted, 2*s.mostCalls)
			assert.LessOrEqual(t, c.waited, 0.1)
		})
	}
}

// fleet is a limiter for each replica.
func (s steady) fleet(tb testing.TB, store func() lease.Store) []*leaselimit.Limiter {
	tb.Helper()
	fleet := make([]*leaselimit.Limiter, s.replicas)
	for i := range fleet {
		lim, err := leaselimit.New(store(), leaselimit.Config{
			Limits: quota.Fixed(s.limit), Replicas: s.replicas, StoreTimeout: peer.Patience,
		})
		require.NoError(tb, err)
		tb.Cleanup(func() { assert.NoError(tb, lim.Close(context.Background())) })
		fleet[i] = lim
	}
	return fleet
}

func (s steady) schedule(calls int) load.Schedule {
	return load.Schedule{Rate: s.rate, Calls: calls, Callers: steadyCallers}
}

// warm is half a second of the same traffic: the first call of a tenant has to wait.
func (s steady) warm(fleet []*leaselimit.Limiter) {
	s.schedule(int(s.rate) / 2).Run(func(i int) { _, _ = fleet[i%len(fleet)].Allow(peer.Ctx, "acme") })
}

// run makes the calls. All must be allowed.
func (s steady) run(tb testing.TB, fleet []*leaselimit.Limiter, calls int) load.Result {
	tb.Helper()
	var refused, failed atomic.Int64
	r := s.schedule(calls).Run(func(i int) {
		d, err := fleet[i%len(fleet)].Allow(peer.Ctx, "acme")
		switch {
		case err != nil || d.Degraded():
			failed.Add(1)
		case !d.Allowed:
			refused.Add(1)
		}
	})
	require.Zero(tb, failed.Load())
	require.Zero(tb, refused.Load())
	return r
}

func sum(fleet []*leaselimit.Limiter) leaselimit.Stats {
	var s leaselimit.Stats
	for _, l := range fleet {
		s = s.Plus(l.Stats())
	}
	return s
}

// costs are shares of the calls admitted.
type costs struct{ perAdmitted, waited float64 }

func cost(before, after leaselimit.Stats) costs {
	admitted := float64(max(1, after.Allowed()-before.Allowed()))
	return costs{
		perAdmitted: float64(after.StoreCalls()-before.StoreCalls()) / admitted,
		waited:      float64(after.Waited-before.Waited) / admitted,
	}
}

func report(b *testing.B, r load.Result, c costs) {
	b.Helper()
	for _, q := range []float64{50, 99, 99.9} {
		b.ReportMetric(float64(r.Latency.ValueAtQuantile(q)), fmt.Sprintf("p%v-ns", q))
	}
	b.ReportMetric(float64(r.Late.ValueAtQuantile(99)), "late-p99-ns")
	b.ReportMetric(c.perAdmitted, "store-calls/admitted")
	b.ReportMetric(100*c.waited, "%waited")
}

// far is a store with a round trip.
type far struct {
	lease.Store

	rtt time.Duration
}

func (f far) Acquire(ctx context.Context, req lease.AcquireRequest) (lease.Grant, error) {
	time.Sleep(f.rtt / 2)
	g, err := f.Store.Acquire(ctx, req)
	time.Sleep(f.rtt / 2)
	return g, err
}

func (f far) Return(ctx context.Context, items []lease.Return) error {
	time.Sleep(f.rtt)
	return f.Store.Return(ctx, items)
}
