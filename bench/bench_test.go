package bench

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/leaselimit/leaselimit/bench/peer"
	"github.com/leaselimit/leaselimit/internal/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) {
	flag.Parse()
	if flag.Lookup("test.bench").Value.String() != "" {
		logging.Disable() // or go-redis writes into the middle of the lines of a benchmark that stops Redis
		describe()
	}
	redistest.Main(m)
}

// many is the number of tenants of the benchmarks with more than one.
const many = 10_000

// compare measures one call of each peer, with as many tenants and as many callers at once. Each call must be decided as
// w.Allow says. A peer is made ready once for each number of tenants, not for each run.
func compare(b *testing.B, w peer.Work, tenants, callers []int, peers ...peer.Peer) {
	for _, p := range peers {
		if p.NeverRefuses && !w.Allow {
			continue
		}
		for _, n := range tenants {
			b.Run(fmt.Sprintf("peer=%s/tenants=%d", p.Name, n), func(b *testing.B) {
				w.Tenants = n
				if w.Addr != "" {
					w.Prefix = redistest.Prefix(b) // for names; what is left of them is deleted at the end
				}
				lim := prepare(b, p, w)
				for _, c := range callers {
					b.Run(fmt.Sprintf("callers=%d", c), func(b *testing.B) {
						b.ReportAllocs()
						failed := call(b, lim, w, c)
						if !p.Contends {
							require.Zero(b, failed)
						} else if failed > 0 {
							b.ReportMetric(float64(failed)/float64(b.N), "errors/op")
						}
					})
				}
			})
		}
	}
}

func prepare(tb testing.TB, p peer.Peer, w peer.Work) *peer.Limiter {
	tb.Helper()
	lim, err := p.Prepare(w)
	require.NoError(tb, err)
	tb.Cleanup(func() { assert.NoError(tb, lim.Close()) })
	return lim
}

// call makes b.N calls from so many callers at once, and returns how many were not decided. A wrong decision fails b.
func call(b *testing.B, lim *peer.Limiter, w peer.Work, callers int) (failed int64) {
	var errs, wrong atomic.Int64
	var last atomic.Value
	var wg sync.WaitGroup
	stride := w.Stride()
	for c := range callers {
		calls := b.N / callers
		if c < b.N%callers {
			calls++
		}
		wg.Go(func() {
			i := c * w.Tenants / callers // not all at the same tenant at the same time
			for range calls {
				allowed, err := lim.Decide(i)
				switch {
				case err != nil:
					errs.Add(1)
					last.Store(err.Error())
				case allowed != w.Allow:
					wrong.Add(1)
				}
				if i += stride; i >= w.Tenants {
					i -= w.Tenants
				}
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	require.Zero(b, wrong.Load(), "calls decided the other way")
	if errs.Load() > 0 {
		b.Logf("the last of %d errors: %v", errs.Load(), last.Load())
	}
	return errs.Load()
}

// describe writes what a reader has to know of the run, as configuration lines of the benchmark format.
func describe() {
	fmt.Printf("go: %s\ncores: %d\nkernel: %s\n", runtime.Version(), runtime.NumCPU(), kernel())
}

func kernel() string {
	release, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(release))
}

// describeRedis does the same for the server.
var describeRedis = sync.OnceFunc(func() {
	rdb := redis.NewClient(&redis.Options{Addr: redisAddr})
	defer rdb.Close()
	info, err := rdb.InfoMap(peer.Ctx, "server").Result()
	if err == nil {
		fmt.Printf("redis: %s\n", info["Server"]["redis_version"])
	}
})

var redisAddr string // for describeRedis

// overTCP is where Redis is.
func overTCP(tb testing.TB) string {
	tb.Helper()
	redisAddr = redistest.Addr(tb)
	describeRedis()
	return redisAddr
}
