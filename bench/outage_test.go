package bench

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leaselimit/leaselimit"
	"github.com/leaselimit/leaselimit/bench/load"
	"github.com/leaselimit/leaselimit/bench/peer"
	"github.com/leaselimit/leaselimit/internal/redistest"
	"github.com/leaselimit/leaselimit/lease"
	"github.com/leaselimit/leaselimit/quota"
	"github.com/leaselimit/leaselimit/redisbucket"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// outage is one of the sizes that are measured and not timed. A p99 of 10 s is one of 10,000 calls; of less it is mostly chance.
var outage = flag.Duration("outage", time.Second, "for how long BenchmarkOutage measures calls with Redis, and then without")

// BenchmarkOutage kills a Redis under steady traffic, an open loop, and starts it again. healthy are calls before; open are
// calls when the breaker is open and the last lease is spent, so that each is decided by FailLocal. recovery runs from when
// Redis was seen to answer until the limiter knows it, which nobody calls meanwhile.
func BenchmarkOutage(b *testing.B) {
	const rate, tenants, callers = 1000, 100, 16
	b.Run(fmt.Sprintf("rate=%d/tenants=%d", rate, tenants), func(b *testing.B) {
		server := redistest.Start(b)
		rdb := server.Client(b, func(o *redis.Options) {
			o.ContextTimeoutEnabled, o.DialerRetries = true, 1 // as docs/operations.md has it
		})
		back := make(chan time.Time, 1)
		lim, err := leaselimit.New(redisbucket.New(rdb), leaselimit.Config{
			Limits: quota.Fixed(quota.PerSecond(10*rate/tenants, 10*rate/tenants)), Replicas: 1, StoreTimeout: peer.Patience,
			Logger: slog.New(slog.DiscardHandler), // not in the middle of the benchmark's line
			Observer: &leaselimit.Observer{StateChanged: func(degraded bool, _ lease.Reason) {
				if !degraded {
					back <- time.Now()
				}
			}},
		})
		require.NoError(b, err)
		defer func() { assert.NoError(b, lim.Close(context.Background())) }()
		names := namesFrom(0, tenants)
		// run makes calls for so long, all of which must be allowed. It counts those that the failure policy decided.
		run := func(d time.Duration) (r load.Result, degraded int64) {
			var refused, byPolicy atomic.Int64
			r = load.Schedule{Rate: rate, Calls: int(d.Seconds() * rate), Callers: callers}.Run(func(i int) {
				d, err := lim.Allow(peer.Ctx, names[i%tenants])
				if err != nil || !d.Allowed {
					refused.Add(1)
				}
				if d.Degraded() {
					byPolicy.Add(1)
				}
			})
			require.Zero(b, refused.Load())
			return r, byPolicy.Load()
		}

		// until makes calls until every tenant's was decided by the failure policy, or none.
		until := func(degraded bool) {
			tick := time.NewTicker(time.Second / rate)
			defer tick.Stop()
			for i, row := 0, 0; row < tenants; i++ {
				d, err := lim.Allow(peer.Ctx, names[i%tenants])
				require.NoError(b, err)
				if row++; d.Degraded() != degraded {
					row = 0
				}
				<-tick.C
			}
		}

		run(time.Second) // until demand is known, calls have to wait now and then
		healthy, degraded := run(*outage)
		require.Zero(b, degraded)

		server.Stop()
		until(true)
		open, degraded := run(*outage)
		require.Equal(b, open.Latency.TotalCount(), degraded)

		server.Restart()
		answered := time.Now()
		recovery := max(0, (<-back).Sub(answered))
		until(false)

		quantile := func(r load.Result, q float64) float64 { return float64(r.Latency.ValueAtQuantile(q)) }
		b.ReportMetric(0, "ns/op") // of all this together says nothing
		for name, r := range map[string]load.Result{"healthy": healthy, "open": open} {
			b.ReportMetric(quantile(r, 50), name+"-p50-ns")
			b.ReportMetric(quantile(r, 99), name+"-p99-ns")
		}
		b.ReportMetric(quantile(open, 99)/quantile(healthy, 99), "open/healthy-p99")
		b.ReportMetric(float64(recovery), "recovery-ns")
	})
}
