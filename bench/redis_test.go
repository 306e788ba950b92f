package bench

import (
	"fmt"
	"testing"
	"time"

	"github.com/leaselimit/leaselimit"
	"github.com/leaselimit/leaselimit/bench/peer"
	"github.com/leaselimit/leaselimit/internal/faultproxy"
	"github.com/leaselimit/leaselimit/internal/redistest"
	"github.com/leaselimit/leaselimit/quota"
	"github.com/leaselimit/leaselimit/redisbucket"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Decisions over Redis on this machine. Loopback is the shortest trip that there is.
var overRedis = []peer.Peer{
	peer.OverRedis, peer.Waiting, peer.RedisRate, peer.Throttled, peer.Ulule, peer.ScriptGoRedis, peer.ScriptRueidis,
}

func BenchmarkRedisAllow(b *testing.B) {
	compare(b, peer.Work{Allow: true, Addr: overTCP(b)}, []int{1, many}, []int{1, 64}, overRedis...)
}

func BenchmarkRedisRefuse(b *testing.B) {
	compare(b, peer.Work{Addr: overTCP(b)}, []int{1, many}, []int{1, 64}, overRedis...)
}

// BenchmarkDraws has another tenant draw with each call: one at a time, and all of them at once, on loopback and over a network of 1 ms.
func BenchmarkDraws(b *testing.B) {
	slow := faultproxy.New(b, overTCP(b))
	slow.DelayReplies(time.Millisecond)
	for _, net := range []struct{ rtt, addr string }{{"0ms", overTCP(b)}, {"1ms", slow.Addr()}} {
		b.Run("rtt="+net.rtt, func(b *testing.B) {
			compare(b, peer.Work{Allow: true, Addr: net.addr}, []int{many}, []int{1, 64, many}, peer.Waiting)
		})
	}
}

// BenchmarkRoundTrip puts a network of so many milliseconds between: every reply comes later by as much. ping is what a bare
// PING takes then.
func BenchmarkRoundTrip(b *testing.B) {
	for _, rtt := range []time.Duration{500 * time.Microsecond, time.Millisecond, 5 * time.Millisecond} {
		b.Run(fmt.Sprintf("rtt=%v", rtt), func(b *testing.B) {
			proxy := faultproxy.New(b, overTCP(b))
			proxy.DelayReplies(rtt)
			w := peer.Work{Allow: true, Addr: proxy.Addr()}
			compare(b, w, []int{1}, []int{1, 64}, ping)
			compare(b, w, []int{1}, []int{1, 64}, overRedis...)
		})
	}
}

// ping decides nothing: it is the floor of every limiter that asks.
var ping = peer.Peer{Name: "ping", New: func(w peer.Work) (*peer.Limiter, error) {
	rdb := redis.NewClient(&redis.Options{Addr: w.Addr, PoolSize: 64})
	return &peer.Limiter{
		Decide: func(int) (bool, error) { return true, rdb.Ping(peer.Ctx).Err() },
		Close:  rdb.Close,
	}, nil
}}

// BenchmarkRedisOverload asks for one tenant as fast as one caller can, at a limit of 10,000 a second: nearly every call is
// refused. It asserts what was admitted.
func BenchmarkRedisOverload(b *testing.B) {
	const capacity, refill = 10_000, 10_000
	rdb := redistest.Client(b)
	lim, err := leaselimit.New(redisbucket.New(rdb, redisbucket.WithPrefix(redistest.Prefix(b))), leaselimit.Config{
		Limits: quota.Fixed(quota.PerSecond(refill, capacity)), Replicas: 1, StoreTimeout: peer.Patience,
	})
	require.NoError(b, err)
	defer func() { assert.NoError(b, lim.Close(peer.Ctx)) }()
	budget := float64(lim.Bound("a").Tokens)
	start := time.Now()
	b.Run("peer=leaselimit/tenants=1/callers=1", func(b *testing.B) {
		calls := lim.Stats().StoreCalls()
		for b.Loop() {
			if _, err := lim.Allow(peer.Ctx, "a"); err != nil {
				b.Fatal(err)
			}
		}
		s := lim.Stats()
		most := capacity + budget + refill*time.Since(start).Seconds()
		require.LessOrEqual(b, float64(s.Allowed()), most)
		require.Positive(b, s.Allowed())
		b.ReportMetric(float64(s.StoreCalls()-calls)/float64(b.N), "store-calls/op")
	})
}
