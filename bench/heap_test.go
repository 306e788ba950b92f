package bench

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/leaselimit/leaselimit"
	"github.com/leaselimit/leaselimit/bench/peer"
	"github.com/leaselimit/leaselimit/lease"
	"github.com/leaselimit/leaselimit/quota"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// BenchmarkHeap is the heap that a tenant costs that is tracked and asks for nothing, with its name and its place in the map:
// once called, with a lease in hand, and known to be empty. Its children are the same by who allocated it.
func BenchmarkHeap(b *testing.B) {
	const tenants = 20_000
	for _, s := range []struct {
		state string
		limit quota.Limit
		calls int
		size  int64
	}{
		{"called", quota.PerSecond(1000, 1000), 1, 0},
		{"leased", quota.PerSecond(1000, 1000), 1, 10},
		{"empty", quota.Limit{Capacity: 1, Refill: 1, Per: peer.Long}, 2, 0},
	} {
		b.Run("state="+s.state, func(b *testing.B) {
			rate := runtime.MemProfileRate
			runtime.MemProfileRate = 1 // every allocation from here on
			defer func() { runtime.MemProfileRate = rate }()
			lim, names := limiterOfVoid(b, s.limit, tenants, s.size), namesFrom(0, tenants)
			heap, sites := inUse(), allocated()
			for range s.calls {
				callEach(b, lim, names)
			}
			bytes := float64(inUse()-heap) / tenants
			grown := difference(allocated(), sites)
			require.Equal(b, int64(tenants), lim.Stats().Tenants)
			runtime.KeepAlive(names)

			b.Run("site=all", func(b *testing.B) { reportBytes(b, bytes) })
			for _, site := range slices.SortedFunc(maps.Keys(grown), func(x, y string) int { return cmp.Compare(grown[y], grown[x]) }) {
				if per := float64(grown[site]) / tenants; per >= 1 {
					b.Run("site="+site, func(b *testing.B) { reportBytes(b, per) })
				}
			}
		})
	}
}

func reportBytes(b *testing.B, bytes float64) {
	b.Helper()
	b.ReportMetric(0, "ns/op") // nothing was timed
	b.ReportMetric(bytes, "B/tenant")
}

// strangers is one of the sizes that are measured and not timed, so that benchtime has no say in it.
var strangers = flag.Int("strangers", 100_000, "how many tenants BenchmarkEviction brings; room is for a tenth")

// BenchmarkEviction calls a resident tenant while another caller brings strangers, with room for them and without. It asserts
// that the heap does not grow once the room is full.
func BenchmarkEviction(b *testing.B) {
	room := *strangers / 10
	measure := func(b *testing.B, lim *leaselimit.Limiter) {
		resident, stranger := callsBeside(b, lim, *strangers, room)
		for name, h := range map[string]*hdrhistogram.Histogram{"resident": resident, "stranger": stranger} {
			b.ReportMetric(float64(h.ValueAtQuantile(50)), name+"-p50-ns")
			b.ReportMetric(float64(h.ValueAtQuantile(99)), name+"-p99-ns")
		}
		b.ReportMetric(0, "ns/op") // of all this together says nothing
	}
	limit := quota.PerSecond(1000, 1000)
	b.Run("evicting=no", func(b *testing.B) {
		lim := limiterOfVoid(b, limit, 3*room, 0)
		callEach(b, lim, namesFrom(0, room))
		measure(b, lim)
		require.Zero(b, lim.Stats().Evicted)
	})
	b.Run("evicting=yes", func(b *testing.B) {
		lim := limiterOfVoid(b, limit, room, 0)
		heap := inUse()
		callEach(b, lim, namesFrom(0, room))
		full := inUse() - heap
		for from := room; from < *strangers; from += room {
			callEach(b, lim, namesFrom(from, room))
		}
		end := inUse() - heap
		measure(b, lim)
		b.ReportMetric(float64(full)/1e6, "MB-when-full")
		b.ReportMetric(float64(end)/1e6, "MB-at-the-end")
		require.Less(b, float64(end), 1.5*float64(full), "bytes of heap after %d tenants", *strangers)
		require.Equal(b, int64(room), lim.Stats().Tenants)
	})
}

// callsBeside measures calls of one tenant while another caller brings n strangers, from the number on that is given.
func callsBeside(tb testing.TB, lim *leaselimit.Limiter, from, n int) (resident, stranger *hdrhistogram.Histogram) {
	tb.Helper()
	h := func() *hdrhistogram.Histogram { return hdrhistogram.New(1, int64(10*time.Second), 3) }
	resident, stranger = h(), h()
	names := namesFrom(from, n)
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		defer close(done)
		for _, name := range names {
			timed(tb, lim, name, stranger)
		}
	})
	wg.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
				timed(tb, lim, "resident", resident)
			}
		}
	})
	wg.Wait()
	return resident, stranger
}

func timed(tb testing.TB, lim *leaselimit.Limiter, name string, h *hdrhistogram.Histogram) {
	start := time.Now()
	_, err := lim.Allow(peer.Ctx, name)
	assert.NoError(tb, h.RecordValue(max(1, int64(time.Since(start)))))
	assert.NoError(tb, err)
}

func limiterOfVoid(tb testing.TB, limit quota.Limit, tenants int, size int64) *leaselimit.Limiter {
	tb.Helper()
	lim, err := leaselimit.New(void{}, leaselimit.Config{
		Limits: quota.Fixed(limit), MaxTenants: tenants, StoreTimeout: peer.Patience, LeaseTTL: time.Hour, LeaseSize: size,
	})
	require.NoError(tb, err)
	tb.Cleanup(func() { assert.NoError(tb, lim.Close(context.Background())) })
	return lim
}

func callEach(tb testing.TB, lim *leaselimit.Limiter, names []string) {
	tb.Helper()
	for _, name := range names {
		if d, err := lim.Allow(peer.Ctx, name); err != nil || d.Degraded() {
			tb.Fatalf("%s: %v, %v", name, d, err)
		}
	}
}

func namesFrom(from, n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("tenant-%d", from+i)
	}
	return names
}

// inUse is the heap in use, in bytes, after what is garbage is collected, also what finalizers held.
func inUse() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// allocated is the memory in use by the function that asked for it, as the profile has it.
func allocated() map[string]int64 {
	n, _ := runtime.MemProfile(nil, false)
	records := make([]runtime.MemProfileRecord, n+100)
	n, ok := runtime.MemProfile(records, false)
	if !ok {
		return nil
	}
	sites := make(map[string]int64)
	for _, r := range records[:n] {
		sites[site(r.Stack())] += r.InUseBytes()
	}
	return sites
}

// site is the innermost function of the limiter, and what it called if that is another module's or the standard library's.
func site(stack []uintptr) string {
	const ours = "github.com/leaselimit/leaselimit"
	var called string
	frames := runtime.CallersFrames(stack)
	for {
		f, more := frames.Next()
		name := f.Function[strings.LastIndexByte(f.Function, '/')+1:]
		switch {
		case strings.HasPrefix(f.Function, ours) && !strings.HasPrefix(f.Function, ours+"/bench"):
			if called != "" {
				name += ">" + called
			}
			return strings.NewReplacer("(*", "", ")", "", "[...]", "").Replace(name)
		case !strings.HasPrefix(f.Function, "runtime."):
			called = name
		}
		if !more {
			return "other"
		}
	}
}

func difference(after, before map[string]int64) map[string]int64 {
	for site, bytes := range before {
		after[site] -= bytes
	}
	return after
}

// void is a store that keeps nothing, so that the heap is the limiter's alone: it grants what is wished for, and of a capacity
// of 1 the first token only.
type void struct{}

func (void) Acquire(_ context.Context, r lease.AcquireRequest) (lease.Grant, error) {
	at := float64(time.Now().UnixMilli())
	g := lease.Grant{Waiters: r.Need, At: at, Epoch: int64(at), Level: float64(r.Terms.Limit.Capacity)}
	if r.Terms.Limit.Capacity == 1 {
		g.Waiters, g.Level, g.RetryAfter = 0, 0, peer.Long
		return g, nil
	}
	g.Surplus = min(r.Want, r.Terms.Share)
	g.Ready = g.Surplus
	return g, nil
}

func (void) Return(context.Context, []lease.Return) error { return nil }

func (void) Reset(context.Context, lease.Key) error { return nil }

func (void) Take(context.Context, []lease.Charge) (lease.TakeReply, error) {
	return lease.TakeReply{}, errors.ErrUnsupported
}

func (void) Peek(context.Context, lease.Key, lease.Terms) (lease.State, error) {
	return lease.State{}, errors.ErrUnsupported
}
