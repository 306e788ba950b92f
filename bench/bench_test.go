package bench

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leaselimit/leaselimit/internal/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// A subject is a limiter with room for n tenants, reduced to one call. prepare leaves it in the state that is measured. The
// indirect call costs every subject the same, about 2 ns.
type subject struct {
	name    string
	prepare func(tb testing.TB, n int) (decide func(i int) bool)
}

// compare measures the subjects one after the other, with one caller and with GOMAXPROCS of them. Each decision must be want.
func compare(b *testing.B, n int, want bool, subjects ...subject) {
	for _, s := range subjects {
		b.Run(fmt.Sprintf("peer=%s/tenants=%d/callers=one", s.name, n), func(b *testing.B) {
			decide := s.prepare(b, n)
			decide(0) // connections and first leases are not what is measured
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				if decide(i) != want {
					b.Fatalf("%s decided %t", s.name, !want)
				}
				if i++; i == n {
					i = 0
				}
			}
		})
		b.Run(fmt.Sprintf("peer=%s/tenants=%d/callers=many", s.name, n), func(b *testing.B) {
			decide := s.prepare(b, n)
			decide(0)
			var wrong atomic.Int64
			b.ReportAllocs()
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				i := rand.IntN(n) // not all at the same tenant at the same time
				for pb.Next() {
					if decide(i) != want {
						wrong.Add(1)
					}
					if i++; i == n {
						i = 0
					}
				}
			})
			if w := wrong.Load(); w > 0 {
				b.Fatalf("%s decided %t %d times", s.name, !want, w)
			}
		})
	}
}

func names(n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf("tenant-%d", i)
	}
	return all
}

// plenty is more tokens than a benchmark can spend, and still an exact count everywhere.
const plenty = int64(1) << 40

// patience is a StoreTimeout that is not reached on a busy machine: no failure policy gets to decide here.
const patience = 10 * time.Second

// ctx is what callers pass: no deadline, never done.
var ctx = context.Background()

// perCall is a share of the calls that b has measured.
func perCall(b *testing.B, n int64) float64 { return float64(n) / math.Max(1, float64(b.N)) }
