package chaos_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leaselimit/leaselimit"
	"github.com/leaselimit/leaselimit/lease"
	"github.com/leaselimit/leaselimit/membucket"
	"github.com/leaselimit/leaselimit/quota"
	"github.com/stretchr/testify/require"
)

// faulty is a store that fails at random, in good times and in bad ones, and knows the fate of every token.
type faulty struct {
	*membucket.Store

	mu   sync.Mutex
	rng  *rand.Rand
	bad  float64 // chance that a call fails, now
	sums struct{ debited, lost, sentBack int64 }
}

var errChaos = errors.New("chaos")

// fate decides on one call: whether it is executed, how late the answer is, and whether it arrives.
func (s *faulty) fate() (executed, answered bool, delay time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delay = time.Duration(s.rng.Int64N(int64(2 * time.Millisecond)))
	if s.rng.Float64() >= s.bad {
		return true, true, delay
	}
	switch s.rng.IntN(4) {
	case 0: // refused at once
		return false, false, delay
	case 1: // the answer is lost
		return true, false, time.Duration(s.rng.Int64N(int64(200 * time.Millisecond)))
	case 2: // the answer is late, perhaps after the lease's window
		return true, true, time.Duration(s.rng.Int64N(int64(3 * time.Second)))
	default: // nothing arrives, and the client gives up late
		return false, false, time.Duration(s.rng.Int64N(int64(3 * time.Second)))
	}
}

func (s *faulty) fail(op string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := lease.Reasons()
	return &lease.StoreError{Op: op, Reason: all[s.rng.IntN(len(all))], Err: errChaos}
}

func (s *faulty) Acquire(ctx context.Context, req lease.AcquireRequest) (lease.Grant, error) {
	executed, answered, delay := s.fate()
	time.Sleep(delay / 2)
	var g lease.Grant
	if executed {
		var err error
		if g, err = s.Store.Acquire(context.WithoutCancel(ctx), req); err != nil {
			panic(err)
		}
		s.mu.Lock()
		s.sums.debited += g.Waiters + g.Surplus
		if !answered {
			s.sums.lost += g.Waiters + g.Surplus
		}
		s.mu.Unlock()
	}
	time.Sleep(delay / 2)
	if !answered {
		return lease.Grant{}, s.fail("acquire")
	}
	return g, nil
}

func (s *faulty) Return(ctx context.Context, items []lease.Return) error {
	executed, answered, delay := s.fate()
	s.mu.Lock()
	for _, r := range items {
		s.sums.sentBack += r.Unspent + r.Waiters
	}
	s.mu.Unlock()
	time.Sleep(delay)
	if executed {
		if err := s.Store.Return(context.WithoutCancel(ctx), items); err != nil {
			panic(err)
		}
	}
	if !answered {
		return s.fail("return")
	}
	return nil
}

// TestSchedules plays random schedules of faults. Every token that was debited was spent by one caller, or went back, or was
// stranded, or lost with an answer; and no bucket gave more than it had.
func TestSchedules(t *testing.T) {
	n := uint64(1000)
	if testing.Short() {
		n = 100
	}
	var sum struct{ calls, admitted, degraded, debited, lost, back, stranded int64 }
	for seed := range n {
		synctest.Test(t, func(t *testing.T) {
			o := schedule(t, seed)
			sum.calls += o.calls
			sum.admitted += o.admitted
			sum.degraded += o.degraded
			sum.debited += o.debited
			sum.lost += o.lost
			sum.back += o.sentBack
			sum.stranded += o.stranded
		})
	}
	t.Logf("%d schedules: %+v", n, sum)
	// The faults did their work.
	for _, n := range []int64{sum.degraded, sum.lost, sum.back, sum.stranded} {
		require.NotZero(t, n)
	}
}

type outcome struct{ calls, admitted, degraded, debited, lost, sentBack, stranded int64 }

func schedule(t *testing.T, seed uint64) outcome {
	rng := rand.New(rand.NewPCG(seed, 1))
	store := &faulty{Store: membucket.New(), rng: rand.New(rand.NewPCG(seed, 2))}
	limit := quota.Limit{Capacity: 20 + rng.Int64N(300)}
	if rng.IntN(2) == 0 {
		limit.Refill, limit.Per = 1+rng.Int64N(50), time.Second
	}
	cfg := leaselimit.Config{
		Limits: quota.Fixed(limit), Exact: rng.IntN(2) == 0, LeaseTTL: 2 * time.Second,
		OnFailure: leaselimit.FailurePolicy(rng.IntN(3)), Logger: slog.New(slog.DiscardHandler), MaxTenants: 2 + rng.IntN(3),
	}
	lims := make([]*leaselimit.Limiter, 1+rng.IntN(4))
	for i := range lims {
		var err error
		lims[i], err = leaselimit.New(store, cfg)
		require.NoError(t, err)
	}
	var o outcome
	var mu sync.Mutex
	byTenant := map[string]int64{}
	begin := time.Now()
	var calls sync.WaitGroup
	for range 20 { // spells of good and bad
		bad := []float64{0, 0, 0.1, 0.5, 1}[rng.IntN(5)]
		store.mu.Lock()
		store.bad = bad
		store.mu.Unlock()
		for range rng.IntN(30) {
			tenant, lim, cost := fmt.Sprint(rng.IntN(3)), lims[rng.IntN(len(lims))], 1+rng.Int64N(4)
			patience := time.Duration(rng.Int64N(int64(100 * time.Millisecond)))
			calls.Go(func() {
				ctx, cancel := context.WithTimeout(context.Background(), patience)
				defer cancel()
				d, err := lim.AllowN(ctx, tenant, cost)
				mu.Lock()
				defer mu.Unlock()
				o.calls++
				switch {
				case err != nil:
				case d.Degraded():
					o.degraded++
				case d.Allowed:
					o.admitted += cost
					byTenant[tenant] += cost
				}
			})
			time.Sleep(time.Duration(rng.ExpFloat64() * float64(20*time.Millisecond)))
		}
		time.Sleep(time.Duration(rng.Int64N(int64(500 * time.Millisecond))))
	}
	calls.Wait()
	for _, lim := range lims { // all at once, and while some answers are still to come
		calls.Go(func() { require.NoError(t, lim.Close(context.Background())) })
	}
	calls.Wait()
	synctest.Wait()

	var s leaselimit.Stats
	for _, lim := range lims {
		s = s.Plus(lim.Stats())
	}
	o.debited, o.lost, o.sentBack, o.stranded = store.sums.debited, store.sums.lost, store.sums.sentBack, s.TokensStranded
	require.Zero(t, s.TokensHeld, "seed %d", seed)
	require.Equal(t, s.TokensGranted, s.TokensSpent+s.TokensReturned+s.TokensLost+s.TokensStranded, "seed %d: %+v", seed, s)
	require.Equal(t, o.debited, o.admitted+o.sentBack+o.stranded+o.lost,
		"seed %d: every token that was debited goes one way: %+v", seed, o)
	budget := int64(0)
	if !cfg.Exact {
		budget = limit.Capacity / 10
	}
	for tenant, n := range byTenant {
		most := float64(limit.Capacity+budget) + limit.PerMillisecond()*float64(time.Since(begin).Milliseconds()+1)
		require.LessOrEqual(t, float64(n), most, "seed %d, tenant %s", seed, tenant)
	}
	return o
}
