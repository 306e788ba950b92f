package lease_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leaselimit/leaselimit/lease"
	"github.com/leaselimit/leaselimit/membucket"
	"github.com/leaselimit/leaselimit/quota"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// told counts what a pool said of its store.
type told struct {
	away, back atomic.Int64
	lasted     atomic.Int64
}

func (s *told) options() lease.Options {
	o := options()
	o.OnStore = func(cause *lease.StoreError, lasted time.Duration) {
		if cause != nil {
			s.away.Add(1)
			return
		}
		s.back.Add(1)
		s.lasted.Add(int64(lasted))
	}
	return o
}

// hang answers nobody before the context is done.
func hang(ctx context.Context, _ func() (lease.Grant, error)) (lease.Grant, error) {
	<-ctx.Done()
	return lease.Grant{}, &lease.StoreError{Op: "acquire", Reason: lease.ReasonTimeout, Err: ctx.Err()}
}

// Three draws that fail in a row, whoever's, and no call of anybody waits until a probe is answered.
func TestTheBreakerOpensForAll(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var s told
		r := newRig(t, quota.Limit{Capacity: 100}, s.options())
		r.store.onAcquire(hang)
		for i := range 3 {
			require.False(t, r.pool.StoreState().Open)
			h := r.pool.NewHolder(fmt.Sprint(i), r.limit)
			begin := time.Now()
			_, err := h.Spend(t.Context(), r.limit, 1)
			require.Equal(t, lease.ReasonTimeout, lease.ReasonOf(err))
			assert.Equal(t, 50*time.Millisecond, time.Since(begin))
		}
		synctest.Wait()
		require.True(t, r.pool.StoreState().Open)
		before := len(r.store.draws())
		for i := range 1000 {
			h := r.pool.NewHolder(fmt.Sprint("new", i), r.limit)
			begin := time.Now()
			_, err := h.Spend(t.Context(), r.limit, 1)
			require.Equal(t, lease.ReasonTimeout, lease.ReasonOf(err))
			require.Zero(t, time.Since(begin))
			time.Sleep(10 * time.Millisecond)
		}
		probes := r.store.draws()[before:]
		assert.Less(t, len(probes), 75, "in ten seconds")
		assert.Greater(t, len(probes), 30)
		for i, p := range probes {
			assert.Zero(t, p.req.Need+p.req.Want+p.req.Min, "a probe takes nothing")
			if i > 0 {
				assert.Greater(t, p.at-probes[i-1].at, 50*time.Millisecond, "one at a time")
			}
		}
		assert.InDelta(t, len(probes)+3, r.pool.Counters().Failed(lease.ReasonTimeout).Load(), 1, "one may be under way")

		r.store.onAcquire(nil)
		time.Sleep(300 * time.Millisecond)
		synctest.Wait()
		state := r.pool.StoreState()
		assert.False(t, state.Open)
		assert.False(t, state.Failing)
		assert.True(t, r.spend(1).Allowed())
		assert.EqualValues(t, 1, s.away.Load())
		assert.EqualValues(t, 1, s.back.Load())
		assert.EqualValues(t, state.Down, s.lasted.Load())
		assert.InDelta(t, 10.2, state.Down.Seconds(), 0.2)
	})
}

// What fails between answers, as in a Cluster with a dead part, and what is wrong with a single bucket, opens nothing.
func TestTheBreakerStaysClosed(t *testing.T) {
	for name, fault := range map[string]func(context.Context, func() (lease.Grant, error)) (lease.Grant, error){
		"some buckets away": down,
		"a broken bucket": func(context.Context, func() (lease.Grant, error)) (lease.Grant, error) {
			return lease.Grant{}, &lease.StoreError{Op: "acquire", Reason: lease.ReasonWrongType, Err: errLost}
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				var s told
				r := newRig(t, quota.PerSecond(1000, 1000), s.options())
				broken := make([]*lease.Holder, 20)
				for i := range broken {
					broken[i] = r.pool.NewHolder(fmt.Sprint(i), r.limit)
				}
				for i := range 300 {
					r.store.onAcquire(nil)
					_, err := r.pool.NewHolder(fmt.Sprint("good", i), r.limit).Spend(t.Context(), r.limit, 1)
					require.NoError(t, err)
					r.store.onAcquire(fault)
					for _, h := range broken {
						_, err := h.Spend(t.Context(), r.limit, 1)
						require.ErrorIs(t, err, errLost)
					}
					require.False(t, r.pool.StoreState().Open)
					time.Sleep(10 * time.Millisecond)
				}
				assert.Zero(t, s.away.Load())
				assert.NotZero(t, r.pool.Counters().Failures.Load())
			})
		})
	}
}

// half is a store of which a part is away.
type half struct{ *membucket.Store }

func (s half) Acquire(ctx context.Context, req lease.AcquireRequest) (lease.Grant, error) {
	if strings.HasPrefix(req.Key.Tenant, "away") {
		return lease.Grant{}, &lease.StoreError{Op: "acquire", Reason: lease.ReasonRefused, Err: errLost}
	}
	return s.Store.Acquire(ctx, req)
}

// Nor does it where the rest has asked for nothing of late: that is found out before anybody is turned away for long.
func TestADeadPartKeepsNobodyFromTheRest(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var s told
		r := newRigOn(t, newTapOn(half{membucket.New()}), quota.PerSecond(1000, 1000), s.options())
		away := make([]*lease.Holder, 5)
		for i := range away {
			away[i] = r.pool.NewHolder(fmt.Sprint("away", i), r.limit)
		}
		for i := range 20 {
			_, err := r.pool.NewHolder(fmt.Sprint("good", i), r.limit).Spend(t.Context(), r.limit, 1)
			require.NoError(t, err)
			time.Sleep(time.Second)
			for _, h := range away {
				_, err := h.Spend(t.Context(), r.limit, 1)
				require.Error(t, err)
			}
			synctest.Wait()
			require.False(t, r.pool.StoreState().Open)
		}
		assert.Zero(t, s.away.Load())
	})
}

// Two failures a second apart, with nothing between them, are enough.
func TestTheBreakerOpensAfterASecond(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, quota.Limit{Capacity: 100}, options())
		r.store.onAcquire(down)
		_, err := r.try(t.Context(), 1)
		require.ErrorIs(t, err, errLost)
		assert.True(t, r.pool.StoreState().Failing)
		time.Sleep(time.Second)
		require.False(t, r.pool.StoreState().Open)
		_, err = r.try(t.Context(), 1)
		require.ErrorIs(t, err, errLost)
		assert.True(t, r.pool.StoreState().Open)
	})
}

// A store that hangs, with a client that does not mind contexts, has a bounded number of goroutines behind it, and a late
// answer to a probe is none.
func TestProbesDoNotPileUp(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, quota.Limit{Capacity: 100}, options())
		var asking, most atomic.Int64
		r.store.onAcquire(func(_ context.Context, next func() (lease.Grant, error)) (lease.Grant, error) {
			most.Store(max(most.Load(), asking.Add(1)))
			defer asking.Add(-1)
			time.Sleep(time.Minute)
			return next()
		})
		_, err := r.try(t.Context(), 1)
		require.Error(t, err)
		for range 500 {
			_, err := r.try(t.Context(), 1)
			require.Error(t, err)
			time.Sleep(100 * time.Millisecond)
		}
		assert.True(t, r.pool.StoreState().Open)
		assert.EqualValues(t, lease.MaxHanging+1, most.Load())
		time.Sleep(20 * time.Second)
		assert.True(t, r.pool.StoreState().Open, "answers that come after a minute")
		r.store.onAcquire(nil)
		time.Sleep(300*time.Millisecond + time.Minute)
		synctest.Wait()
		assert.False(t, r.pool.StoreState().Open)
	})
}

// The goroutine that probes ends with the pool.
func TestClosingWhileOpen(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, quota.Limit{Capacity: 100}, options())
		r.store.onAcquire(down)
		for range 200 {
			_, err := r.try(t.Context(), 1)
			require.Error(t, err)
			time.Sleep(time.Millisecond)
		}
		require.True(t, r.pool.StoreState().Open)
		begin := time.Now()
		require.NoError(t, r.pool.Close(t.Context(), r.holders))
		assert.Zero(t, time.Since(begin))
		n := len(r.store.draws())
		time.Sleep(time.Minute)
		assert.Len(t, r.store.draws(), n)
		_, err := r.try(t.Context(), 1)
		assert.ErrorIs(t, err, lease.ErrClosed)
	})
}

// A call that was left over by one draw does not get the whole timeout again for the next.
func TestACallWaitsForATimeoutInAll(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, quota.Limit{Capacity: 100}, options())
		r.drain(5)
		var draws atomic.Int64
		r.store.onAcquire(func(ctx context.Context, next func() (lease.Grant, error)) (lease.Grant, error) {
			if draws.Add(1) > 1 {
				return hang(ctx, next)
			}
			g, err := next()
			time.Sleep(40 * time.Millisecond)
			return g, err
		})
		small := r.start(t.Context(), 1) // the draw is for this one
		time.Sleep(5 * time.Millisecond)
		large := r.start(t.Context(), 3)
		time.Sleep(44 * time.Millisecond)
		young := r.start(t.Context(), 4)
		time.Sleep(time.Second)
		require.True(t, small.done.Load() && large.done.Load() && young.done.Load())
		require.NoError(t, small.err)
		assert.Equal(t, 40*time.Millisecond, small.took)
		assert.Equal(t, lease.ReasonTimeout, lease.ReasonOf(large.err))
		assert.Equal(t, 50*time.Millisecond, large.took)
		assert.Equal(t, lease.ReasonTimeout, lease.ReasonOf(young.err))
		assert.Equal(t, 41*time.Millisecond, young.took, "by the draw")
		assert.EqualValues(t, 1, r.pool.Counters().Failed(lease.ReasonTimeout).Load())
	})
}
