package bench

import (
	"testing"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/leaselimit/leaselimit"
	"github.com/leaselimit/leaselimit/internal/redistest"
	"github.com/leaselimit/leaselimit/quota"
	"github.com/leaselimit/leaselimit/redisbucket"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Decisions over Redis on this machine, beside redis_rate, which asks Redis for every call. Loopback is the shortest trip that
// there is: over a network the distance grows.

// BenchmarkRedisAllow allows every call. leaselimit decides from leases that it draws as it goes; leaselimit-waiting has
// every call wait for Redis, because it costs more than may be held.
func BenchmarkRedisAllow(b *testing.B) {
	compare(b, 1, true,
		subject{"leaselimit", func(tb testing.TB, n int) func(int) bool {
			lim, all := overRedis(tb, leaselimit.Config{Limits: quota.Fixed(quota.PerSecond(plenty, plenty))}), names(n)
			return func(i int) bool {
				d, err := lim.Allow(ctx, all[i])
				return err == nil && d.Allowed && !d.Degraded()
			}
		}},
		subject{"leaselimit-waiting", func(tb testing.TB, n int) func(int) bool {
			cfg := leaselimit.Config{Limits: quota.Fixed(quota.PerSecond(plenty, plenty)), MaxHold: 1}
			lim, all := overRedis(tb, cfg), names(n)
			return func(i int) bool {
				d, err := lim.AllowN(ctx, all[i], 2)
				return err == nil && d.Allowed && d.Source == leaselimit.SourceStore
			}
		}},
		subject{"redis_rate", func(tb testing.TB, n int) func(int) bool {
			allow := redisRate(tb, redis_rate.PerSecond(int(plenty)), names(n))
			return func(i int) bool { return allow(i) == 1 }
		}},
	)
}

// BenchmarkRedisOverload asks for one tenant as fast as one caller can, at a limit of 10,000 a second: nearly every call is
// refused. It asserts what was admitted.
func BenchmarkRedisOverload(b *testing.B) {
	const capacity, refill = 10_000, 10_000
	b.Run("peer=leaselimit", func(b *testing.B) {
		lim := overRedis(b, leaselimit.Config{Limits: quota.Fixed(quota.PerSecond(refill, capacity))})
		budget := float64(lim.Bound("a").Tokens)
		overload(b, capacity+budget, refill, func() bool { return decide(lim.Allow(ctx, "a")).Allowed })
		b.ReportMetric(perCall(b, lim.Stats().StoreCalls()), "store-calls/op")
	})
	b.Run("peer=redis_rate", func(b *testing.B) {
		allow := redisRate(b, redis_rate.Limit{Rate: refill, Burst: capacity, Period: time.Second}, names(1))
		overload(b, capacity, refill, func() bool { return allow(0) == 1 })
		b.ReportMetric(1, "store-calls/op")
	})
}

// overload checks admitted <= at once + refill*t.
func overload(b *testing.B, atOnce, refill float64, allow func() bool) {
	admitted := 0
	start := time.Now()
	for b.Loop() {
		if allow() {
			admitted++
		}
	}
	most := atOnce + refill*time.Since(start).Seconds()
	require.Positive(b, admitted)
	require.LessOrEqual(b, float64(admitted), most)
	b.ReportMetric(float64(admitted)/time.Since(start).Seconds(), "admitted/s")
}

func overRedis(tb testing.TB, cfg leaselimit.Config) *leaselimit.Limiter {
	tb.Helper()
	cfg.Replicas, cfg.StoreTimeout = 1, patience
	store := redisbucket.New(redistest.Client(tb), redisbucket.WithPrefix(redistest.Prefix(tb)))
	lim, err := leaselimit.New(store, cfg)
	require.NoError(tb, err)
	tb.Cleanup(func() { assert.NoError(tb, lim.Close(ctx)) })
	return lim
}

// redisRate returns what a limiter of redis_rate allows of one call.
func redisRate(tb testing.TB, limit redis_rate.Limit, all []string) func(i int) int {
	tb.Helper()
	lim := redis_rate.NewLimiter(redistest.Client(tb))
	prefix := redistest.Prefix(tb)
	for i := range all {
		all[i] = prefix + all[i]
		tb.Cleanup(func() { assert.NoError(tb, lim.Reset(ctx, all[i])) })
	}
	return func(i int) int {
		r, err := lim.Allow(ctx, all[i], limit)
		if err != nil {
			panic(err)
		}
		return r.Allowed
	}
}
