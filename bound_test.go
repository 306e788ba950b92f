package leaselimit_test

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leaselimit/leaselimit"
	"github.com/leaselimit/leaselimit/lease"
	"github.com/leaselimit/leaselimit/membucket"
	"github.com/leaselimit/leaselimit/quota"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var (
	boundSeed  = flag.Uint64("bound.seed", 0, "run TestBound for this seed alone, if it is not 0")
	boundSeeds = flag.Uint64("bound.seeds", 400, "run TestBound for so many seeds")
)

// meter is a bucket that leaks at the refill rate and is filled by every admission. Its peak is the most that was admitted
// in any window beyond what was refilled in it.
type meter struct {
	mu          sync.Mutex
	rate        float64 // per ns
	level, peak float64
	at          time.Time
	admitted    int64
}

func (m *meter) admit(n int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	m.level = max(0, m.level-m.rate*float64(now.Sub(m.at))) + float64(n)
	m.at = now
	m.peak = max(m.peak, m.level)
	m.admitted += n
}

// fleet is replicas of one limit over a store whose answers are lost or late, in a bubble.
type fleet struct {
	*rand.Rand

	t        *testing.T
	cfg      leaselimit.Config
	limit    quota.Limit
	store    lease.Store
	meter    meter
	replicas []*leaselimit.Limiter
	calls    sync.WaitGroup
	luck     struct {
		sync.Mutex
		*rand.Rand
	}
}

func pick[T any](r *rand.Rand, from ...T) T { return from[r.IntN(len(from))] }

func newFleet(t *testing.T, seed uint64) *fleet {
	r := rand.New(rand.NewPCG(seed, 11))
	c := pick[int64](r, 4, 10, 40, 100)
	f := &fleet{Rand: r, t: t, store: membucket.New()}
	f.luck.Rand = rand.New(rand.NewPCG(seed, 12))
	f.limit = quota.Limit{Capacity: c, Refill: pick[int64](r, 0, 1, 4, 20, 200), Per: 2 * time.Second}
	f.cfg = limited(f.limit)
	f.cfg.Logger = slog.New(slog.DiscardHandler)
	f.cfg.MaxOvershoot = pick(r, 0, 0.1, 0.25, 0.5)
	f.cfg.Exact = f.cfg.MaxOvershoot == 0
	f.cfg.LeaseShare = pick(r, 0.25, 0.5, 1)
	f.cfg.LeaseTTL = pick(r, 200*ms, time.Second, 5*time.Second)
	f.cfg.StoreTimeout = f.cfg.LeaseTTL / 10
	f.cfg.LeaseSize = pick(r, 0, 0, 2, c/4)
	f.cfg.MaxHold = pick(r, 0, 0, c)
	f.cfg.Replicas = pick(r, 0, 1, 2, 8)
	f.cfg.MaxTenants = pick(r, 1, 10)
	f.cfg.OnFailure = leaselimit.FailClosed
	f.meter = meter{rate: f.limit.PerMillisecond() / 1e6, at: time.Now()}
	for range pick(r, 1, 2, 4, 8) {
		f.replicas = append(f.replicas, f.replica())
	}
	return f
}

// chance draws from a source of its own: the store is called from many goroutines.
func (f *fleet) chance() (x float64, d time.Duration) {
	f.luck.Lock()
	defer f.luck.Unlock()
	return f.luck.Float64(), time.Duration(f.luck.Float64() * 2.5 * float64(f.cfg.LeaseTTL))
}

func (f *fleet) replica() *leaselimit.Limiter {
	s := newTapOn(f.store)
	s.onAcquire(func(_ context.Context, req lease.AcquireRequest, next acquireNext) (lease.Grant, error) {
		x, d := f.chance()
		switch {
		case x < 0.05: // the answer is lost
			_, _ = next()
			return lease.Grant{}, &lease.StoreError{Op: "acquire", Reason: lease.ReasonRefused, Err: errDown}
		case x < 0.1: // the question is lost
			return down(nil, req, nil)
		case x < 0.3 && req.Need == 0: // surplus that comes late
			return late(d)(nil, req, next)
		case x < 0.2: // so late that nobody waits any more: a waiter's token counts when it is granted
			return late(f.cfg.StoreTimeout+1+d)(nil, req, next)
		}
		return next()
	})
	s.onReturn(func(_ context.Context, next func() error) error {
		x, d := f.chance()
		if x < 0.1 {
			return &lease.StoreError{Op: "return", Reason: lease.ReasonRefused, Err: errDown}
		}
		if x < 0.3 {
			time.Sleep(d)
		}
		err := next()
		if x > 0.9 {
			err = &lease.StoreError{Op: "return", Reason: lease.ReasonTimeout, Err: errDown}
		}
		return err
	})
	lim, err := leaselimit.New(s, f.cfg)
	require.NoError(f.t, err)
	return lim
}

func (f *fleet) call(lim *leaselimit.Limiter, cost int64) {
	ctx, cancel := context.WithCancel(context.Background())
	if f.IntN(10) == 0 {
		ctx, cancel = context.WithTimeout(ctx, time.Duration(f.Float64()*float64(f.cfg.StoreTimeout)))
	}
	f.calls.Go(func() {
		defer cancel()
		if d, err := lim.AllowN(ctx, "acme", cost); err == nil && d.Allowed {
			f.meter.admit(cost)
		}
	})
	synctest.Wait()
}

func (f *fleet) step() {
	ttl := f.cfg.LeaseTTL
	longest := pick(f.Rand, 0, 0, ms, 10*ms, 50*ms, ttl/3, ttl, 2*ttl)
	time.Sleep(time.Duration(f.Float64() * float64(longest)))
	i := f.IntN(len(f.replicas))
	switch x := f.Float64(); {
	case x < 0.6:
		for range 1 + f.IntN(20) {
			f.call(f.replicas[i], 1)
		}
	case x < 0.85:
		f.call(f.replicas[i], 1+f.Int64N(max(1, f.limit.Capacity/3)))
	case x < 0.9:
		f.call(f.replicas[i], f.limit.Capacity)
	case x < 0.95: // makes room for another tenant
		f.calls.Go(func() { _, _ = f.replicas[i].Allow(context.Background(), "other") })
		synctest.Wait()
	default:
		lim := f.replicas[i]
		f.calls.Go(func() { _ = lim.Close(context.Background()) })
		f.replicas[i] = f.replica()
	}
}

// run gives the most that was admitted beyond capacity and refill in a window.
func (f *fleet) run() (excess float64) {
	for range 200 {
		f.step()
	}
	for _, lim := range f.replicas {
		_ = lim.Close(context.Background())
	}
	f.calls.Wait()
	return f.meter.peak - float64(f.limit.Capacity)
}

// TestBound: in every window of length t, over all replicas, admitted <= capacity + refill*t + budget.
func TestBound(t *testing.T) {
	first, last := uint64(1), *boundSeeds
	if *boundSeed > 0 {
		first, last = *boundSeed, *boundSeed
	}
	overshot, admitted := 0, int64(0)
	for seed := first; seed <= last; seed++ {
		bubble(t, func(t *testing.T) {
			f := newFleet(t, seed)
			excess := f.run()
			budget := float64(f.replicas[0].Bound("acme").Tokens)
			if !f.cfg.Exact {
				budget = math.Floor(f.cfg.MaxOvershoot*float64(f.limit.Capacity) + 1e-9)
			}
			what := fmt.Sprintf("-bound.seed=%d: %v, %+v", seed, f.limit, f.cfg)
			require.LessOrEqual(t, excess, budget+1e-6, what)
			if admitted += f.meter.admitted; excess > 1e-6 {
				overshot++
			}
		})
	}
	t.Logf("%d of %d runs used their budget, %d admitted in all", overshot, last, admitted)
	assert.Greater(t, admitted, int64(last-first+1))
	if last > first {
		// A test that never comes near the bound would not notice if it were gone.
		assert.Greater(t, overshot, int(last)/50, "runs of %d that used their budget", last)
	}
}
