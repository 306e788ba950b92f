package adversary_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/leaselimit/leaselimit"
	"github.com/leaselimit/leaselimit/internal/fleet"
	"github.com/leaselimit/leaselimit/internal/redistest"
	"github.com/leaselimit/leaselimit/quota"
	"github.com/leaselimit/leaselimit/redisbucket"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestBoundHoldsOnRedis is the claim on a real Redis over real time: limiters with short leases under random bursts. What is held
// against the bound is only what the calls prove, so a slow machine weakens the test and cannot fail it.
func TestBoundHoldsOnRedis(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	var settings sync.WaitGroup
	defer settings.Wait()
	for i, tt := range []struct {
		limit    quota.Limit
		replicas int
		exact    bool
	}{
		{quota.PerSecond(1000, 200), 4, false},
		{quota.PerSecond(1000, 200), 4, true},
		{quota.PerSecond(2000, 400), 8, false},
		{quota.PerSecond(2000, 400), 8, true},
	} {
		store := redisbucket.New(server.Client(t), redisbucket.WithPrefix(fmt.Sprint("adversary", i)))
		settings.Go(func() {
			cfg := leaselimit.Config{
				Limits: quota.Fixed(tt.limit), Exact: tt.exact, LeaseTTL: 300 * time.Millisecond, StoreTimeout: 250 * time.Millisecond,
				OnFailure: leaselimit.FailClosed, Replicas: 1, LeaseSize: tt.limit.Capacity / 4 / int64(tt.replicas),
				Logger: slog.New(slog.DiscardHandler),
			}
			if !tt.exact {
				cfg.MaxOvershoot = 0.1
			}
			calls, budget, err := bursts(store, cfg, tt.replicas, *first+uint64(i), 3*time.Second)
			if !assert.NoError(t, err) {
				return
			}
			admitted := int64(0)
			for _, c := range calls {
				if c.Allowed {
					admitted += c.Cost
				}
			}
			over := fleet.Proved(calls, tt.limit)
			t.Logf("seed %d: %v on %d, exact %v: %d calls, %d tokens admitted, overshoot at least %.1f of %d",
				*first+uint64(i), tt.limit, tt.replicas, tt.exact, len(calls), admitted, over, budget)
			// Two clocks: this one and that of Redis may run 0.1 % apart.
			assert.LessOrEqual(t, over, float64(budget)+0.001*3*tt.limit.PerMillisecond()*1000+0.01)
			assert.Greater(t, admitted, tt.limit.Capacity)
		})
	}
}

// bursts has n limiters make random bursts for d and gives what became of each call. Most bursts begin together, after pauses in
// which the bucket refills beside the leases.
func bursts(store *redisbucket.Store, cfg leaselimit.Config, n int, seed uint64, d time.Duration) ([]fleet.Call, int64, error) {
	const period = 240 * time.Millisecond
	var (
		mu    sync.Mutex
		log   []fleet.Call
		calls sync.WaitGroup
		start = time.Now()
		lims  []*leaselimit.Limiter
	)
	for range n {
		lim, err := leaselimit.New(store, cfg)
		if err != nil {
			return nil, 0, err
		}
		defer lim.Close(context.Background())
		lims = append(lims, lim)
	}
	for i, lim := range lims {
		for caller := range 2 {
			rng := rand.New(rand.NewPCG(seed, uint64(2*i+caller)))
			calls.Go(func() {
				for time.Since(start) < d {
					burst, cost := []int{1, 2, 1000}[rng.IntN(3)], 1+rng.Int64N(3)
					for range burst {
						c := fleet.Call{Start: time.Since(start), Cost: cost}
						got, err := lim.AllowN(context.Background(), "tenant", cost)
						c.End, c.Allowed = time.Since(start), err == nil && got.Allowed
						mu.Lock()
						log = append(log, c)
						mu.Unlock()
						if !c.Allowed {
							break
						}
					}
					pause := time.Duration(rng.Int64N(int64(period)))
					if rng.IntN(4) > 0 {
						pause = period - time.Since(start)%period
					}
					<-time.After(pause)
				}
			})
		}
	}
	calls.Wait()
	return log, lims[0].Bound("tenant").Tokens, nil
}

// TestHoardersOnRedis: the same plan as on virtual time, with pauses that a busy machine may only make longer.
func TestHoardersOnRedis(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	limit := quota.PerSecond(1000, 500)
	cfg := leaselimit.Config{
		Limits: quota.Fixed(limit), MaxOvershoot: 0.25, LeaseSize: 125, Replicas: 1, LeaseTTL: 30 * time.Second,
		StoreTimeout: 20 * time.Second, OnFailure: leaselimit.FailClosed, Logger: slog.New(slog.DiscardHandler),
	}
	store := redisbucket.New(server.Client(t))
	var log []fleet.Call
	start := time.Now()
	call := func(lim *leaselimit.Limiter) {
		c := fleet.Call{Start: time.Since(start), Cost: 1}
		got, err := lim.Allow(t.Context(), "tenant")
		require.NoError(t, err)
		c.End, c.Allowed = time.Since(start), got.Allowed
		log = append(log, c)
	}
	hoarder, err := leaselimit.New(store, cfg)
	require.NoError(t, err)
	defer hoarder.Close(context.Background())
	spender, err := leaselimit.New(store, cfg)
	require.NoError(t, err)
	defer spender.Close(context.Background())
	call(hoarder)
	<-time.After(600 * time.Millisecond)
	for range 2 { // again, for what the hoarder topped up meanwhile
		for _, lim := range []*leaselimit.Limiter{hoarder, spender} {
			for range limit.Capacity {
				if call(lim); !log[len(log)-1].Allowed {
					break
				}
			}
		}
	}
	over, budget := fleet.Proved(log, limit), hoarder.Bound("tenant").Tokens
	t.Logf("overshoot at least %.1f of %d", over, budget)
	assert.LessOrEqual(t, over, float64(budget)+0.001*limit.PerMillisecond()*1000+0.01)
}
