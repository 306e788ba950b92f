package lease_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/leaselimit/leaselimit/lease"
	"github.com/leaselimit/leaselimit/quota"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func coarse() lease.Options {
	o := options()
	o.Coarse, o.LeaseSize, o.MaxHold = 10*time.Millisecond, 400, 400
	o.LeaseShare, o.Replicas = 1, 1
	return o
}

// trySpend decides from memory or not at all.
func (r *rig) trySpend() (lease.Result, bool) {
	limit := r.Limit()
	return r.fromMemory(&limit, 1)
}

// A coarse clock whose ticker does not get to run must not keep leases alive: spenders look at the exact one now and then.
func TestACoarseClockThatStandsStill(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, quota.Limit{Capacity: 1000}, coarse())
		r.spend(1)
		require.Equal(t, int64(400), r.Held())
		_, ok := r.trySpend()
		require.True(t, ok)
		r.pool.StallTimers()
		time.Sleep(20 * time.Second) // the window is 10 s
		passed := 0
		for {
			if _, ok := r.trySpend(); !ok {
				break
			}
			passed++
		}
		assert.LessOrEqual(t, passed, 64)
		assert.GreaterOrEqual(t, r.pool.ClockLag(), 19*time.Second)
	})
}

// The same for calls that cost more than one, of a lease whose tokens are odd.
func TestACoarseClockThatStandsStillForDearCalls(t *testing.T) {
	bubble(t, func(t *testing.T) {
		o := coarse()
		o.LeaseSize, o.MaxHold = 401, 401
		r := newRig(t, quota.Limit{Capacity: 1000}, o)
		r.spend(1)
		require.Equal(t, int64(401), r.Held())
		limit := r.Limit()
		r.pool.StallTimers()
		time.Sleep(20 * time.Second)
		passed := 0
		for {
			if _, ok := r.fromMemory(&limit, 2); !ok {
				break
			}
			passed++
		}
		assert.LessOrEqual(t, passed, 33)
	})
}

// What a coarse clock is behind must not refuse what has been refilled, and how far it was seen behind counts.
func TestARefusalByACoarseClockIsNotWrong(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, quota.PerSecond(10, 10), coarse())
		r.drain(0)
		require.False(t, r.spend(1).Allowed())
		res, ok := r.trySpend()
		require.True(t, ok, "known to be empty")
		require.False(t, res.Allowed())
		time.Sleep(res.RetryAfter)
		if _, ok := r.trySpend(); ok {
			t.Error("refused from memory after its RetryAfter")
		}
		assert.True(t, r.spend(1).Allowed())
		synctest.Wait()
		assert.LessOrEqual(t, r.pool.ClockLag(), 10*time.Millisecond)
	})
}
