package bench

import (
	"sync"
	"testing"
	"time"

	"github.com/leaselimit/leaselimit"
	"github.com/leaselimit/leaselimit/membucket"
	"github.com/leaselimit/leaselimit/quota"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/time/rate"
)

// Decisions from memory, beside golang.org/x/time/rate: what callers pay when nobody has to be asked. One token bucket of
// x/time/rate limits one process; it is here as the floor, not as an equal.

func BenchmarkAllow(b *testing.B) {
	compare(b, 1, true, byString, byHandle, oneRate(plenty), mapOfRates(plenty))
	compare(b, 10_000, true, byString, byHandle, mapOfRates(plenty))
}

func BenchmarkRefuse(b *testing.B) {
	compare(b, 1, false, emptyByString, emptyByHandle, oneRate(1), mapOfRates(1))
	compare(b, 10_000, false, emptyByString, emptyByHandle, mapOfRates(1))
}

var (
	byString      = subject{"leaselimit", inHand}
	byHandle      = subject{"leaselimit-handle", inHandByHandle}
	emptyByString = subject{"leaselimit", empty}
	emptyByHandle = subject{"leaselimit-handle", emptyHandle}
)

// newLimiter returns a limiter on a store in memory that no other replica uses.
func newLimiter(tb testing.TB, cfg leaselimit.Config) *leaselimit.Limiter {
	tb.Helper()
	cfg.Replicas, cfg.StoreTimeout = 1, patience
	lim, err := leaselimit.New(membucket.New(), cfg)
	require.NoError(tb, err)
	tb.Cleanup(func() { assert.NoError(tb, lim.Close(ctx)) })
	return lim
}

// leased is a limit with a lease so large and so long that it outlasts every benchmark.
var leased = leaselimit.Config{
	Limits: quota.Fixed(quota.PerSecond(plenty, plenty)), LeaseSize: plenty / 4, LeaseTTL: time.Hour,
}

// drained is a limit of which nothing is left after one call.
var drained = leaselimit.Config{Limits: quota.Fixed(quota.Limit{Capacity: 1, Refill: 1, Per: 24 * time.Hour})}

// inHand has a lease for each tenant.
func inHand(tb testing.TB, n int) func(int) bool {
	lim, all := newLimiter(tb, leased), names(n)
	for _, name := range all {
		require.True(tb, decide(lim.Allow(ctx, name)).Allowed)
	}
	return func(i int) bool {
		d, err := lim.Allow(ctx, all[i])
		return err == nil && d.Allowed && d.Source == leaselimit.SourceLease
	}
}

func inHandByHandle(tb testing.TB, n int) func(int) bool {
	handles := handlesOf(newLimiter(tb, leased), n)
	for _, h := range handles {
		require.True(tb, decide(h.Allow(ctx)).Allowed)
	}
	return func(i int) bool {
		d, err := handles[i].Allow(ctx)
		return err == nil && d.Allowed && d.Source == leaselimit.SourceLease
	}
}

// empty has spent what each tenant had and heard so.
func empty(tb testing.TB, n int) func(int) bool {
	lim, all := newLimiter(tb, drained), names(n)
	for _, name := range all {
		require.True(tb, decide(lim.Allow(ctx, name)).Allowed)
		require.False(tb, decide(lim.Allow(ctx, name)).Allowed)
	}
	return func(i int) bool {
		d, err := lim.Allow(ctx, all[i])
		return err != nil || d.Allowed
	}
}

func emptyHandle(tb testing.TB, n int) func(int) bool {
	handles := handlesOf(newLimiter(tb, drained), n)
	for _, h := range handles {
		require.True(tb, decide(h.Allow(ctx)).Allowed)
		require.False(tb, decide(h.Allow(ctx)).Allowed)
	}
	return func(i int) bool {
		d, err := handles[i].Allow(ctx)
		return err != nil || d.Allowed
	}
}

func handlesOf(lim *leaselimit.Limiter, n int) []*leaselimit.Tenant {
	handles := make([]*leaselimit.Tenant, n)
	for i, name := range names(n) {
		handles[i] = lim.Tenant(name)
	}
	return handles
}

// decide is the decision of a call that must have been decided.
func decide(d leaselimit.Decision, err error) leaselimit.Decision {
	if err != nil {
		panic(err)
	}
	return d
}

// newRate refills slowly enough that a burst of 1 is spent for good, and a large one is never spent.
func newRate(burst int64) *rate.Limiter {
	l := rate.NewLimiter(rate.Every(24*time.Hour), int(burst))
	if burst == 1 {
		l.Allow()
	}
	return l
}

// oneRate is a single limiter: the least that a decision by token bucket can cost.
func oneRate(burst int64) subject {
	return subject{"xtime", func(testing.TB, int) func(int) bool {
		l := newRate(burst)
		return func(int) bool { return l.Allow() }
	}}
}

// mapOfRates is what services keep for many tenants.
func mapOfRates(burst int64) subject {
	return subject{"xtime-syncmap", func(_ testing.TB, n int) func(int) bool {
		var m sync.Map
		all := names(n)
		for _, name := range all {
			m.Store(name, newRate(burst))
		}
		return func(i int) bool {
			l, ok := m.Load(all[i])
			if !ok {
				panic("no such tenant")
			}
			return l.(*rate.Limiter).Allow()
		}
	}}
}

// What is decided from memory allocates nothing: no garbage, no pauses, whatever the load.
func TestDecisionsFromMemoryDoNotAllocate(t *testing.T) {
	for _, s := range []struct {
		subject

		want bool
	}{{byString, true}, {byHandle, true}, {emptyByString, false}, {emptyByHandle, false}} {
		decide := s.prepare(t, 1)
		assert.Zero(t, testing.AllocsPerRun(1000, func() {
			if decide(0) != s.want {
				t.Errorf("%s decided %t", s.name, !s.want)
			}
		}), s.name)
	}
}
