package leaselimit_test

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
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

// Field cases of group 4: draws that are shared, and callers that go away.

const ms = time.Millisecond

// slow is a limited Config whose store may take its time.
func slow(limit quota.Limit) leaselimit.Config {
	cfg := limited(limit)
	cfg.StoreTimeout = time.Second
	return cfg
}

func TestSF1_CancelOfOneCallerDoesNotFailOthers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newTap()
		s.onAcquire(func(ctx context.Context, _ lease.AcquireRequest, next acquireNext) (lease.Grant, error) {
			select {
			case <-time.After(100 * ms):
				return next()
			case <-ctx.Done(): // a client that minds its context
				return lease.Grant{}, &lease.StoreError{Op: "acquire", Reason: lease.ReasonTimeout, Err: ctx.Err()}
			}
		})
		lim := newLimiter(t, s, slow(still(100)))
		ctx, cancel := context.WithCancel(t.Context())
		first := start(ctx, lim, "acme", 1)
		var rest []*pending
		for range 50 {
			rest = append(rest, start(t.Context(), lim, "acme", 1))
		}
		time.Sleep(10 * ms)
		cancel()
		synctest.Wait()
		require.True(t, first.done.Load(), "a caller that cancels does not wait")
		require.ErrorIs(t, first.err, context.Canceled)
		time.Sleep(500 * ms)
		synctest.Wait()
		for _, p := range rest {
			require.True(t, p.done.Load())
			require.NoError(t, p.err)
			assert.True(t, p.Allowed)
		}
		tokens, out := level(t, s, "acme", still(100))
		assert.InDelta(t, 50.0-float64(out), tokens, 1e-6, "nothing was spent for the one that left")
	})
}

func TestSF2_AFreshCallerIsNotGivenTheCancelOfOthers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newTap()
		s.onAcquire(late(100 * ms))
		lim := newLimiter(t, s, slow(still(100)))
		ctx, cancel := context.WithCancel(t.Context())
		var gone []*pending
		for range 5 {
			gone = append(gone, start(ctx, lim, "acme", 1))
		}
		time.Sleep(10 * ms)
		cancel()
		synctest.Wait()
		fresh := start(t.Context(), lim, "acme", 1) // the draw of those that left is under way
		time.Sleep(300 * ms)
		synctest.Wait()
		for _, p := range gone {
			require.ErrorIs(t, p.err, context.Canceled)
		}
		require.NoError(t, fresh.err)
		assert.True(t, fresh.Allowed)
	})
}

func TestSF4_APanicDoesNotStickToTheTenant(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newTap()
		once := atomic.Bool{}
		s.onAcquire(func(_ context.Context, _ lease.AcquireRequest, next acquireNext) (lease.Grant, error) {
			if once.CompareAndSwap(false, true) {
				panic("boom")
			}
			return next()
		})
		cfg := limited(still(100))
		cfg.OnFailure = leaselimit.FailClosed
		lim := newLimiter(t, s, cfg)
		d := call(t, lim, "acme", 1)
		assert.False(t, d.Allowed)
		assert.True(t, d.Degraded())
		time.Sleep(time.Second)
		d = call(t, lim, "acme", 1)
		assert.True(t, d.Allowed)
		assert.Equal(t, leaselimit.SourceStore, d.Source)
		assert.Equal(t, int64(1), lim.Stats().DrawFailures)
	})
}

// A caller that comes at the very moment a draw lands neither uses its grant again nor has it credited twice.
func TestSF6_AGrantIsCreditedOnce(t *testing.T) {
	for round := range 50 { // the order of what happens at one moment is not fixed
		bubble(t, func(t *testing.T) {
			s := newTap()
			cfg := slow(still(1000))
			cfg.LeaseSize = 10
			lim := newLimiter(t, s, cfg)
			s.onAcquire(late(10 * ms))
			begin := make(chan struct{})
			go func() {
				time.Sleep(10 * ms)
				close(begin)
			}()
			first := start(t.Context(), lim, "acme", 10)
			<-begin // at the same moment as the answer
			second := start(t.Context(), lim, "acme", 10)
			time.Sleep(100 * ms)
			synctest.Wait()
			require.True(t, first.Allowed && second.Allowed, "round %d", round)
			k, st := s.tokens(), lim.Stats()
			assert.Equal(t, int64(20), k.waiters+k.surplus-st.TokensHeld)
			adds(t, st, 2)
			tokens, _ := level(t, s, "acme", still(1000))
			assert.InDelta(t, 980.0-float64(st.TokensHeld), tokens, 1e-6)
		})
	}
}

// Outside of a bubble, for the race detector.
func TestSF7_ASharedGrantIsNobodysToChange(t *testing.T) {
	for range 20 {
		s := newTap()
		gate := make(chan struct{})
		s.onAcquire(func(_ context.Context, _ lease.AcquireRequest, next acquireNext) (lease.Grant, error) {
			<-gate
			return next()
		})
		cfg := slow(still(51 + 10))
		cfg.LeaseSize, cfg.LeaseShare, cfg.Replicas, cfg.StoreTimeout = 10, 1, 1, 10*time.Second
		lim := newLimiter(t, s, cfg)
		var admitted atomic.Int64
		var wg sync.WaitGroup
		for range 51 {
			wg.Go(func() {
				d, err := lim.Allow(context.Background(), "acme")
				if assert.NoError(t, err) && d.Allowed {
					admitted.Add(1)
				}
			})
		}
		close(gate)
		wg.Wait()
		assert.Equal(t, int64(51), admitted.Load())
		assert.NoError(t, lim.Close(context.Background()))
		k := s.tokens()
		assert.Equal(t, int64(51), k.waiters+k.surplus-k.unspent-k.waitersUnused)
		tokens, _ := level(t, s.Store, "acme", still(61))
		assert.InDelta(t, 10.0, tokens, 1e-6, "51 of 61 are spent")
	}
}

func TestSF10_WaitingBelowTheLimitIsNeverAnError(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newTap()
		s.onAcquire(late(2 * ms))
		lim := newLimiter(t, s, limited(quota.PerSecond(2, 2)))
		drain(t, s, "acme", quota.PerSecond(2, 2), 0)
		var wg sync.WaitGroup
		longest := time.Duration(0)
		for range 108 { // 1.8 a second for a minute
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				defer cancel()
				begin := time.Now()
				assert.NoError(t, lim.Wait(ctx, "acme", 1))
				longest = max(longest, time.Since(begin))
			})
			time.Sleep(555 * ms)
		}
		wg.Wait()
		assert.Less(t, longest, 2*time.Second)
	})
}

func TestSF11_AWaiterIsWokenByTheAnswer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newTap()
		s.onAcquire(late(2 * ms))
		lim := newLimiter(t, s, limited(quota.PerSecond(1e9, 100_000)))
		for range 100 {
			p := start(t.Context(), lim, "acme", 13_000) // more than is ever held
			time.Sleep(2 * ms)
			synctest.Wait()
			require.True(t, p.done.Load(), "a round trip is enough")
			require.Equal(t, 2*ms, p.took)
		}
	})
}

func TestSF12_CallersDoNotPileUpBehindAStoreThatHangs(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newTap()
		s.onAcquire(func(context.Context, lease.AcquireRequest, acquireNext) (lease.Grant, error) {
			time.Sleep(time.Minute) // whatever the context says
			return lease.Grant{}, &lease.StoreError{Op: "acquire", Reason: lease.ReasonTimeout, Err: context.DeadlineExceeded}
		})
		lim := newLimiter(t, s, limited(still(100)))
		before := runtime.NumGoroutine()
		var all []*pending
		for range 1000 {
			ctx, cancel := context.WithTimeout(t.Context(), 10*ms)
			defer cancel()
			all = append(all, start(ctx, lim, "acme", 1))
		}
		time.Sleep(10 * ms)
		synctest.Wait()
		for _, p := range all {
			require.True(t, p.done.Load())
			require.ErrorIs(t, p.err, context.DeadlineExceeded)
			require.Equal(t, 10*ms, p.took)
		}
		assert.LessOrEqual(t, runtime.NumGoroutine()-before, 2, "one draw, for all of them")
		assert.Len(t, s.draws(), 1)
		time.Sleep(2 * time.Minute)
	})
}

func TestSF13_LimitCancelAndDeadlineAreToldApart(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newTap()
		limit := quota.PerSecond(1, 10)
		lim := newLimiter(t, s, limited(limit))
		drain(t, s, "acme", limit, 0)

		err := lim.Wait(t.Context(), "acme", 11)
		var refused *leaselimit.RefusedError
		require.ErrorAs(t, err, &refused, "more than the capacity")
		assert.Equal(t, leaselimit.Never, refused.Decision.RetryAfter)
		require.NotErrorIs(t, err, context.DeadlineExceeded)

		begin := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		err = lim.Wait(ctx, "acme", 5)
		require.ErrorAs(t, err, &refused, "not before the deadline")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.InDelta(t, float64(5*time.Second), float64(refused.Decision.RetryAfter), float64(ms))
		assert.Zero(t, time.Since(begin), "told at once")

		ctx, cancel = context.WithCancel(t.Context())
		time.AfterFunc(100*ms, cancel)
		begin = time.Now()
		err = lim.Wait(ctx, "acme", 1)
		require.ErrorIs(t, err, context.Canceled)
		assert.Equal(t, 100*ms, time.Since(begin), "it does not sleep on")
		assert.NotErrorAs(t, err, &refused)

		s.onAcquire(hang)
		time.Sleep(20 * time.Second) // the lease, if any, is gone, and the pre-check forgotten
		ctx, cancel = context.WithTimeout(t.Context(), 10*ms)
		defer cancel()
		_, err = lim.AllowN(ctx, "acme", 10)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.NotErrorAs(t, err, &refused)

		s.onAcquire(nil)
		time.Sleep(20 * time.Second)
		d := call(t, lim, "acme", 10)
		assert.True(t, d.Allowed, "nothing of all this was spent: %v", d)
	})
}

func TestSF15_AFailureOfASharedDrawReachesAll(t *testing.T) {
	for policy, allowed := range map[leaselimit.FailurePolicy]int{
		leaselimit.FailClosed: 0, leaselimit.FailLocal: 5, leaselimit.FailOpen: 21,
	} {
		t.Run(policy.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := newTap()
				s.onAcquire(func(context.Context, lease.AcquireRequest, acquireNext) (lease.Grant, error) {
					time.Sleep(10 * ms)
					return down(nil, lease.AcquireRequest{}, nil)
				})
				cfg := limited(still(20)) // 5 for one of 4 replicas
				cfg.OnFailure = policy
				lim := newLimiter(t, s, cfg)
				var all []*pending
				for range 21 {
					all = append(all, start(t.Context(), lim, "acme", 1))
				}
				time.Sleep(10 * ms)
				synctest.Wait()
				n := 0
				for _, p := range all {
					require.True(t, p.done.Load(), "a failed draw fails over every waiter, once")
					require.NoError(t, p.err)
					assert.True(t, p.Degraded())
					if p.Allowed {
						n++
					}
				}
				assert.Equal(t, allowed, n)
				assert.Len(t, s.draws(), 1, "no stampede")
			})
		})
	}
}

func TestSF16_AbandonedWaitersTakeNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newTap()
		s.onAcquire(late(2 * ms))
		limit := quota.PerSecond(1, 10)
		lim := newLimiter(t, s, limited(limit))
		drain(t, s, "acme", limit, 0)
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for range 1000 {
			wg.Go(func() { assert.Error(t, lim.Wait(ctx, "acme", 1)) })
		}
		time.Sleep(300 * ms)
		assert.Less(t, len(s.draws()), 100, "a thousand waiters are no thousand draws")
		cancel()
		wg.Wait()
		begin := time.Now()
		require.NoError(t, lim.Wait(t.Context(), "acme", 1))
		assert.Less(t, time.Since(begin), 750*ms, "the next token is for whoever is there")
		require.NoError(t, lim.Wait(t.Context(), "acme", 1))
		assert.Less(t, time.Since(begin), 1750*ms, "and so is the one after it")
	})
}

// Waiters of one draw, real goroutines, a store that fails now and then: nobody passes without a token.
func TestWaitersNeverPassWithoutATokenUnderRace(t *testing.T) {
	s := newTapOn(membucket.New())
	n := atomic.Int64{}
	s.onAcquire(func(_ context.Context, _ lease.AcquireRequest, next acquireNext) (lease.Grant, error) {
		if n.Add(1)%5 == 0 {
			return down(nil, lease.AcquireRequest{}, nil)
		}
		return next()
	})
	cfg := slow(still(700))
	cfg.OnFailure, cfg.StoreTimeout = leaselimit.FailClosed, 10*time.Second
	lim := newLimiter(t, s, cfg)
	var admitted atomic.Int64
	var wg sync.WaitGroup
	for range 32 {
		wg.Go(func() {
			for range 100 {
				ctx, cancel := context.WithTimeout(context.Background(), 50*time.Microsecond)
				d, err := lim.AllowN(ctx, "acme", 3)
				if err == nil && d.Allowed {
					admitted.Add(3)
				}
				cancel()
			}
		})
	}
	wg.Wait()
	require.NoError(t, lim.Close(context.Background()))
	k, st := s.tokens(), lim.Stats()
	assert.Equal(t, admitted.Load(), k.waiters+k.surplus-k.unspent-k.waitersUnused)
	adds(t, st, 3200)
}
