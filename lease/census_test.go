package lease_test

import (
	"context"
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

// roll is a store whose counting of replicas takes 3 ms, and can be made to fail.
type roll struct {
	*membucket.Store

	fails, panics atomic.Bool
}

func (s *roll) Present(ctx context.Context, class, id string, ttl time.Duration) (int, error) {
	time.Sleep(3 * time.Millisecond)
	switch {
	case ctx.Value(watched{}) == nil:
		return 0, &lease.StoreError{Op: "present", Reason: lease.ReasonOther, Err: errLost} // not what the hook returned
	case s.fails.Load():
		return 0, &lease.StoreError{Op: "present", Reason: lease.ReasonReadOnly, Err: errLost}
	case s.panics.Load():
		panic("no list")
	}
	return s.Store.Present(ctx, class, id, ttl)
}

type watched struct{}

// The questions for the number of replicas are calls to the store like all others.
func TestTheCensusIsObserved(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := &roll{Store: membucket.New()}
		var sent []lease.Call
		var answers []lease.Answer
		opts := options()
		opts.Class = "export"
		opts.Replicas = 0
		opts.Hooks = lease.Hooks{
			CallSent: func(ctx context.Context, c lease.Call) context.Context {
				if c.Op == "present" {
					sent = append(sent, c)
				}
				return context.WithValue(ctx, watched{}, true)
			},
			CallAnswered: func(ctx context.Context, c lease.Call, a lease.Answer) {
				if c.Op == "present" {
					answers = append(answers, a)
				}
				assert.NotNil(t, ctx.Value(watched{}))
			},
		}
		p := lease.NewPool(store, opts)
		limit := quota.Limit{Capacity: 100}
		h := p.NewHolder("acme", limit)
		ask := func() {
			time.Sleep(4 * time.Second)
			_, err := h.Spend(t.Context(), limit, 50) // more than is ever held, so that there is a draw
			require.NoError(t, err)
			time.Sleep(3 * time.Millisecond)
			synctest.Wait()
			require.NoError(t, store.Reset(t.Context(), h.Key()))
		}
		present := func() lease.CallStats {
			for _, s := range p.Calls() {
				if s.Op == "present" {
					return s
				}
			}
			t.Fatal("the operation is not there")
			return lease.CallStats{}
		}
		assert.Zero(t, present().Latency.Count)

		ask()
		s := present()
		assert.Equal(t, int64(1), s.OK)
		assert.Equal(t, int64(1), s.Latency.Count)
		assert.Equal(t, 3*time.Millisecond, s.Latency.Sum)
		assert.Equal(t, []lease.Call{{Op: "present", Key: lease.Key{Class: "export"}}}, sent)
		require.Len(t, answers, 1)
		assert.Equal(t, lease.Answer{Took: 3 * time.Millisecond}, answers[0])
		assert.Empty(t, p.Errors())

		store.fails.Store(true)
		ask()
		store.fails.Store(false)
		store.panics.Store(true)
		ask()
		store.panics.Store(false)
		s = present()
		assert.Equal(t, int64(1), s.OK)
		assert.Equal(t, int64(1), s.Failed[lease.ReasonReadOnly])
		assert.Equal(t, int64(1), s.Failed[lease.ReasonOther])
		assert.Equal(t, int64(3), s.Latency.Count)
		for _, reason := range []lease.Reason{lease.ReasonReadOnly, lease.ReasonOther} {
			assert.Equal(t, int64(1), p.Counters().Failed(reason).Load(), "in the sum of all operations, once: %s", reason)
		}
		require.Len(t, p.Errors(), 2)
		last := p.Errors()[1]
		assert.Equal(t, "present", last.Op)
		assert.Empty(t, last.Tenant)
		require.ErrorIs(t, last.Err, errLost)
		assert.False(t, p.StoreState().Failing, "nobody waits for it, so it is no reason to fail over")

		require.NoError(t, p.Close(t.Context(), func(yield func(*lease.Holder) bool) { yield(h) }))
		assert.Equal(t, int64(2), present().OK, "that it leaves is told, too")
	})
}

// A store that does not count, or need not, is not asked.
func TestNoCensusIsNotObserved(t *testing.T) {
	for name, store := range map[string]lease.Store{"cannot": newTap(), "need not": membucket.New()} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				opts := options()
				if name == "cannot" {
					opts.Replicas = 0
				}
				p := lease.NewPool(store, opts)
				limit := quota.Limit{Capacity: 100}
				h := p.NewHolder("acme", limit)
				_, err := h.Spend(t.Context(), limit, 1)
				require.NoError(t, err)
				require.NoError(t, p.Close(t.Context(), func(yield func(*lease.Holder) bool) { yield(h) }))
				for _, s := range p.Calls() {
					if s.Op == "present" {
						assert.Zero(t, s.Latency.Count)
					}
				}
			})
		})
	}
}
