package lease_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leaselimit/leaselimit/lease"
	"github.com/leaselimit/leaselimit/membucket"
	"github.com/leaselimit/leaselimit/quota"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTopUpAtHalfLeft(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, quota.Limit{Capacity: 1000}, fixed())
		r.spend(1)
		for range 9 {
			require.Equal(t, lease.FromLease, r.spend(1).Verdict)
		}
		assert.Len(t, r.store.draws(), 1, "with 11 of 20 left")
		r.spend(1)
		draws := r.store.draws()
		require.Len(t, draws, 2, "with 10 left")
		assert.Zero(t, draws[1].req.Need)
		assert.Zero(t, draws[1].req.Min)
		assert.Equal(t, int64(20), draws[1].req.Want)
		assert.Equal(t, int64(30), r.Held())
		assert.Equal(t, int64(1), r.pool.Counters().Waited.Load())
	})
}

func TestTopUpAtOnceIfOneWasHeld(t *testing.T) {
	bubble(t, func(t *testing.T) {
		o := options()
		o.LeaseSize = 1
		r := newRig(t, quota.Limit{Capacity: 1000}, o)
		r.spend(1)
		require.Equal(t, int64(1), r.Held())
		for range 50 {
			require.Equal(t, lease.FromLease, r.spend(1).Verdict)
			require.Equal(t, int64(1), r.Held())
		}
		assert.Equal(t, int64(1), r.pool.Counters().Waited.Load())
	})
}

// With a round trip of 10 ms and a call every ms, twenty must be left when a lease is topped up, or all of it if it is smaller:
// with six of twelve left it would be too late.
func TestTopUpBeforeTwoRoundTripsAreLeft(t *testing.T) {
	bubble(t, func(t *testing.T) {
		o := options()
		o.LeaseSize, o.MaxHold = 12, 60
		r := newRig(t, quota.Limit{Capacity: 100_000}, o)
		r.store.onAcquire(late(trip))
		waited := 0
		for i := range 25_000 {
			if r.start(t.Context(), 1); i == 20_000 { // the demand is known by now
				waited = int(r.pool.Counters().Waited.Load())
			}
			time.Sleep(time.Millisecond)
		}
		time.Sleep(trip)
		synctest.Wait()
		assert.Equal(t, int64(waited), r.pool.Counters().Waited.Load(), "in steady traffic no caller waits")
	})
}

// A top-up that gets nothing puts off the next top-up, never a caller.
func TestARefusedTopUpPutsOffTheNextOne(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, quota.PerSecond(10, 100), fixed())
		r.spend(1)
		r.drain(0)
		require.Equal(t, 10, r.spendN(10))
		draws := r.store.draws()
		require.Len(t, draws, 2)
		require.Zero(t, draws[1].req.Need)
		require.Zero(t, draws[1].grant.Surplus, "the bucket is empty")
		at := r.store.now()

		for r.Held() > 0 { // callers go on, and the mark is reached again and again
			require.True(t, r.spend(1).Allowed())
			time.Sleep(time.Millisecond)
		}
		time.Sleep(150 * time.Millisecond)
		require.Equal(t, lease.FromStore, r.spend(1).Verdict)
		for _, d := range r.store.draws()[2:] {
			if d.req.Need == 0 {
				assert.GreaterOrEqual(t, d.at-at, 625*time.Millisecond, "half a horizon of 1.25 s")
			}
		}
		time.Sleep(20 * time.Second)
	})
}

// The mark that a waiting call reaches in the very moment its draw lands must not be lost: the next calls would have to wait.
func TestTheLowWaterMarkIsNotLost(t *testing.T) {
	bubble(t, func(t *testing.T) {
		o := options()
		o.LeaseSize, o.MaxHold = 4, 8
		r := newRig(t, quota.Limit{Capacity: 1000}, o)
		r.store.onAcquire(late(trip))
		r.start(t.Context(), 1)
		for range 3 { // served from the surplus of 4 when the draw lands: one is left
			r.start(t.Context(), 1)
		}
		time.Sleep(3 * trip)
		synctest.Wait()
		assert.Greater(t, r.Held(), int64(2), "topped up: %v", r.Leases())
	})
}

// A lease that goes back at the end of its window does not take the mark of the others with it: what is left is short of what is
// held by rule, so the next spend tops up.
func TestASweepBringsTheNextTopUpForward(t *testing.T) {
	bubble(t, func(t *testing.T) {
		o := options()
		o.LeaseSize, o.MaxHold = 10, 20
		r := newRig(t, quota.Limit{Capacity: 1000}, o)
		require.Equal(t, 2, r.spendN(2))
		time.Sleep(3 * time.Second)
		require.Equal(t, 4, r.spendN(4)) // at 5 left of 10: topped up
		require.Equal(t, int64(15), r.Held())
		time.Sleep(6500 * time.Millisecond)
		synctest.Wait()
		require.Equal(t, int64(10), r.Held(), "the first lease has gone back")
		r.spend(1)
		assert.Equal(t, int64(19), r.Held(), "topped up: %v", r.Leases())
	})
}

// steady lets n replicas call at a pace, each at its own moments, and gives the share of callers that waited or were refused.
func steady(t *testing.T, limit quota.Limit, n int, every, latency time.Duration, calls int) (waited, refused float64) {
	var w, no, all float64
	bubble(t, func(t *testing.T) {
		store := membucket.New()
		var rigs []*rig
		for range n {
			o := lease.Options{Class: "default", MaxOvershoot: 0.1, LeaseShare: 0.25, TTL: 30 * time.Second, Timeout: 50 * time.Millisecond, Replicas: n}
			r := newRigOn(t, newTapOn(store), limit, o)
			r.store.onAcquire(late(latency))
			rigs = append(rigs, r)
		}
		rnd := rand.New(rand.NewPCG(7, uint64(n)))
		var mu sync.Mutex
		var wg sync.WaitGroup
		for _, r := range rigs {
			phase, jitter := rnd.Float64(), rand.New(rand.NewPCG(rnd.Uint64(), 1))
			wg.Go(func() {
				time.Sleep(time.Duration(phase * float64(every)))
				for i := range calls {
					if i == calls/4 { // warm by now
						mu.Lock()
						w -= float64(r.pool.Counters().Waited.Load())
						mu.Unlock()
					}
					res, err := r.try(t.Context(), 1)
					mu.Lock()
					assert.NoError(t, err)
					if i >= calls/4 {
						all++
						if !res.Allowed() {
							no++
						}
					}
					mu.Unlock()
					time.Sleep(time.Duration(float64(every) * (0.8 + 0.4*jitter.Float64())))
				}
			})
		}
		wg.Wait()
		for _, r := range rigs {
			w += float64(r.pool.Counters().Waited.Load())
		}
	})
	return w / all, no / all
}

// Below the limit, callers do not wait for the store: fewer than 5 % of them from C/n >= 4 and a call in 5 s on.
func TestInSteadyTrafficNobodyWaits(t *testing.T) {
	for _, tt := range []struct {
		limit quota.Limit
		n     int
		every time.Duration
		calls int
	}{
		{quota.PerSecond(1, 16), 4, 5 * time.Second, 400},            // 80 % of the limit
		{quota.PerSecond(2, 4), 1, time.Second, 400},                 // 50 %
		{quota.PerSecond(10, 40), 10, 2 * time.Second, 400},          // 50 %
		{quota.PerSecond(100, 200), 5, 100 * time.Millisecond, 1000}, // 50 %
		{quota.PerSecond(1000, 1000), 4, 5 * time.Millisecond, 4000}, // 80 %
	} {
		t.Run(fmt.Sprintf("%v by %d every %v", tt.limit, tt.n, tt.every), func(t *testing.T) {
			waited, refused := steady(t, tt.limit, tt.n, tt.every, time.Millisecond, tt.calls)
			assert.Less(t, waited, 0.05)
			assert.Less(t, refused, 0.01)
			t.Logf("waited %.4f, refused %.4f", waited, refused)
		})
	}
}
