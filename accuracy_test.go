package leaselimit_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leaselimit/leaselimit"
	"github.com/leaselimit/leaselimit/internal/redistest"
	"github.com/leaselimit/leaselimit/quota"
	"github.com/leaselimit/leaselimit/redisbucket"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestAccuracy is the limiter's promise on a real Redis: a few hundred requests at once, over one, four and ten replicas, of
// one tenant with a small bucket. What is admitted is more than nothing and at most capacity + refill*elapsed + budget; where
// nothing is refilled, it is the capacity to the token.
func TestAccuracy(t *testing.T) {
	for _, exact := range []bool{false, true} {
		for _, replicas := range []int{1, 4, 10} {
			for _, limit := range []quota.Limit{
				quota.PerSecond(5, 20), quota.PerMinute(30, 50), still(20), still(100),
			} {
				for seed := range uint64(2) {
					t.Run(fmt.Sprintf("exact %v, %d replicas, %v, seed %d", exact, replicas, limit, seed), func(t *testing.T) {
						t.Parallel()
						storm(t, limit, replicas, exact, seed)
					})
				}
			}
		}
	}
}

// storm has 300 requests come from as many goroutines, in no order, over some 150 ms.
func storm(t *testing.T, limit quota.Limit, replicas int, exact bool, seed uint64) {
	const requests = 300
	store := redisbucket.New(redistest.Client(t), redisbucket.WithPrefix(redistest.Prefix(t)))
	cfg := limited(limit)
	// A slow machine must not turn this into a test of the failure policy.
	cfg.Exact, cfg.StoreTimeout, cfg.OnFailure = exact, 20*time.Second, leaselimit.FailClosed
	lims := make([]*leaselimit.Limiter, replicas)
	for i := range lims {
		lims[i] = newLimiter(t, store, cfg)
	}
	rnd := rand.New(rand.NewPCG(seed, uint64(replicas)))
	var admitted atomic.Int64
	var wg sync.WaitGroup
	allow := func(lim *leaselimit.Limiter) {
		d, err := lim.Allow(context.Background(), "acme")
		if !assert.NoError(t, err) {
			return
		}
		assert.False(t, d.Degraded())
		if d.Allowed {
			admitted.Add(1)
		}
	}
	begin := time.Now() // before the first request, as the end is after the last: elapsed is never too short
	for range requests {
		lim, pause := lims[rnd.IntN(replicas)], time.Duration(rnd.IntN(150))*time.Millisecond
		wg.Go(func() {
			<-time.After(pause)
			allow(lim)
		})
	}
	wg.Wait()
	elapsed := time.Since(begin)
	refilled := limit.PerMillisecond() * float64(elapsed) / 1e6
	bound := float64(limit.Capacity) + refilled + float64(lims[0].Bound("acme").Tokens)
	if exact {
		require.Zero(t, lims[0].Bound("acme").Tokens)
	}
	assert.LessOrEqual(t, float64(admitted.Load()), math.Floor(bound+1e-6), "after %v", elapsed)
	assert.Positive(t, admitted.Load())
	// What all replicas together may have leased out and not spent is a share at most.
	assert.GreaterOrEqual(t, admitted.Load(), limit.Capacity-lims[0].Bound("acme").Share-1)

	if limit.Refill > 0 {
		return
	}
	// Without refill no token may be missing either. What replicas hold unspent they give back.
	for _, lim := range lims {
		require.NoError(t, lim.Close(context.Background()))
	}
	last := newLimiter(t, store, cfg)
	for range limit.Capacity + 5 {
		allow(last)
	}
	assert.Equal(t, limit.Capacity, admitted.Load())
}
