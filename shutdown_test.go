package leaselimit_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leaselimit/leaselimit"
	"github.com/leaselimit/leaselimit/internal/redistest"
	"github.com/leaselimit/leaselimit/lease"
	"github.com/leaselimit/leaselimit/membucket"
	"github.com/leaselimit/leaselimit/quota"
	"github.com/leaselimit/leaselimit/redisbucket"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// Field cases of group 13: the end of a limiter.

func TestSL1_ManyLimitersLeaveNoGoroutine(t *testing.T) {
	store := membucket.New()
	for i := range 1000 {
		cfg := limited(quota.PerSecond(100, 100))
		if i%3 == 0 {
			cfg.CoarseClock = ms
		}
		lim, err := leaselimit.New(store, cfg)
		require.NoError(t, err)
		if i%2 == 0 {
			_, err = lim.Allow(t.Context(), fmt.Sprint("tenant-", i%7))
			require.NoError(t, err)
			_, err = lim.Peek(t.Context(), "acme")
			require.NoError(t, err)
		}
		require.NoError(t, lim.Close(t.Context()))
	}
	require.NoError(t, goleak.Find(redistest.IgnoreServers(), goleak.IgnoreCurrent()))
	stacks := make([]byte, 1<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	assert.NotContains(t, string(stacks), "leaselimit/lease.", "no goroutine of the library is left")
}

// New starts nothing.
func TestNewStartsNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		before := runtime.NumGoroutine()
		cfg := limited(quota.PerSecond(100, 100))
		cfg.CoarseClock = ms
		lim, err := leaselimit.New(newTap(), cfg)
		require.NoError(t, err)
		_ = lim.Tenant("acme")
		_ = lim.Stats()
		assert.Equal(t, before, runtime.NumGoroutine())
		_, err = lim.Allow(t.Context(), "acme")
		require.NoError(t, err)
		synctest.Wait()
		assert.LessOrEqual(t, runtime.NumGoroutine(), before+1, "the coarse clock")
		require.NoError(t, lim.Close(t.Context()))
		assert.Equal(t, before, runtime.NumGoroutine())
	})
}

// Loops and timers end with Close: hours later there is no traffic.
func TestSL2_NothingRunsAfterClose(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newTap()
		limit := quota.PerSecond(10, 100)
		cfg := limited(limit)
		cfg.CoarseClock = ms
		lim := newLimiter(t, s, cfg)
		for range 5000 { // far above the limit: draws in the background
			_, err := lim.Allow(t.Context(), "acme")
			require.NoError(t, err)
			time.Sleep(ms)
		}
		require.NoError(t, lim.Close(t.Context()))
		synctest.Wait()
		draws, returns := len(s.draws()), len(s.returns())
		time.Sleep(24 * time.Hour)
		assert.Len(t, s.draws(), draws)
		assert.Len(t, s.returns(), returns)
	})
}

// An idle limiter asks nothing either, though a tenant was far above its limit.
func TestAnIdleLimiterAsksNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newTap()
		lim := newLimiter(t, s, limited(quota.PerSecond(10, 100)))
		for range 5000 {
			_, err := lim.Allow(t.Context(), "acme")
			require.NoError(t, err)
			time.Sleep(ms)
		}
		time.Sleep(time.Minute)
		draws, returns := len(s.draws()), len(s.returns())
		time.Sleep(24 * time.Hour)
		assert.Len(t, s.draws(), draws)
		assert.Len(t, s.returns(), returns)
		assert.Zero(t, lim.Stats().TokensHeld)
	})
}

func TestSL4_CloseTwiceInParallelAndDuringCalls(t *testing.T) {
	for range 20 {
		s := newTap()
		cfg := slow(quota.PerSecond(1000, 1000))
		cfg.StoreTimeout, cfg.OnFailure = 10*time.Second, leaselimit.FailClosed
		lim := newLimiter(t, s, cfg)
		var calls, closes sync.WaitGroup
		var answered atomic.Int64
		for i := range 20 {
			calls.Go(func() {
				for {
					_, err := lim.AllowN(context.Background(), fmt.Sprint(i%5), 1)
					if err != nil {
						assert.ErrorIs(t, err, leaselimit.ErrClosed)
						return
					}
					answered.Add(1)
				}
			})
		}
		for answered.Load() < 100 {
			runtime.Gosched()
		}
		for range 10 {
			closes.Go(func() { assert.NoError(t, lim.Close(context.Background())) })
		}
		closes.Wait()
		// What was started has ended: no call to the store comes after.
		draws, returns := len(s.draws()), len(s.returns())
		calls.Wait()
		assert.Len(t, s.draws(), draws)
		assert.Len(t, s.returns(), returns)
		assert.NoError(t, lim.Close(context.Background()))
		st := lim.Stats()
		assert.Zero(t, st.TokensHeld)
		k := s.tokens()
		assert.Equal(t, st.Allowed(), k.waiters+k.surplus-k.unspent-k.waitersUnused)
	}
}

func TestCallsAfterClose(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newTap()
		lim := newLimiter(t, s, limited(still(100)))
		handle := lim.Tenant("acme")
		_, err := handle.Allow(t.Context())
		require.NoError(t, err)
		require.NoError(t, lim.Close(t.Context()))
		asked := len(s.draws())
		_, err = lim.Allow(t.Context(), "acme")
		require.ErrorIs(t, err, leaselimit.ErrClosed)
		_, err = lim.Allow(t.Context(), "new")
		require.ErrorIs(t, err, leaselimit.ErrClosed)
		_, err = handle.Allow(t.Context())
		require.ErrorIs(t, err, leaselimit.ErrClosed)
		_, err = lim.Peek(t.Context(), "acme")
		require.ErrorIs(t, err, leaselimit.ErrClosed)
		require.ErrorIs(t, lim.Wait(t.Context(), "acme", 1), leaselimit.ErrClosed)
		require.ErrorIs(t, lim.Reset(t.Context(), "acme"), leaselimit.ErrClosed)
		_, err = lim.AllowN(t.Context(), "acme", 101)
		require.ErrorIs(t, err, leaselimit.ErrClosed, "though it could never pass")
		assert.Len(t, s.draws(), asked)
		_ = lim.Stats()

		lim = newLimiter(t, s, limited(quota.Unlimited))
		require.NoError(t, lim.Close(t.Context()))
		_, err = lim.Allow(t.Context(), "acme")
		require.ErrorIs(t, err, leaselimit.ErrClosed, "though it is unlimited")
	})
}

// The client is whose it is: a limiter does not close it.
func TestSL6_TheClientStaysOpen(t *testing.T) {
	rdb := redistest.Client(t)
	cfg := limited(still(100))
	cfg.StoreTimeout = 10 * time.Second
	lim := newLimiter(t, redisbucket.New(rdb, redisbucket.WithPrefix(redistest.Prefix(t))), cfg)
	_, err := lim.Allow(t.Context(), "acme")
	require.NoError(t, err)
	require.NoError(t, lim.Close(t.Context()))
	require.NoError(t, rdb.Ping(t.Context()).Err())
}

func TestSL7_ConnectionsDoNotGrowWithLimiters(t *testing.T) {
	server := redistest.Start(t)
	rdb := server.Client(t, func(o *redis.Options) { o.PoolSize = 4 })
	cfg := limited(quota.PerSecond(1000, 1000))
	cfg.StoreTimeout = 10 * time.Second
	count := func() int {
		list, err := rdb.ClientList(t.Context()).Result()
		require.NoError(t, err)
		return strings.Count(list, "\n")
	}
	for range 200 {
		lim, err := leaselimit.New(redisbucket.New(rdb), cfg)
		require.NoError(t, err)
		_, err = lim.Allow(t.Context(), "acme")
		require.NoError(t, err)
		require.NoError(t, lim.Close(t.Context()))
	}
	assert.LessOrEqual(t, count(), 4)
}

// Two users of one limiter, one of whom closes it: the other gets an error that says so.
func TestSL8_AClosedSharedLimiterSaysSo(t *testing.T) {
	bubble(t, func(t *testing.T) {
		lim := newLimiter(t, newTap(), limited(still(100)))
		first, second := lim, lim
		require.True(t, call(t, second, "acme", 1).Allowed)
		require.NoError(t, first.Close(t.Context()))
		_, err := second.Allow(t.Context(), "acme")
		require.ErrorIs(t, err, leaselimit.ErrClosed)
		require.EqualError(t, leaselimit.ErrClosed, "leaselimit: limiter is closed")
	})
}

func TestSL9_CloseReturnsWhatIsUnspentOnce(t *testing.T) {
	cfg := limited(still(1000))
	cfg.LeaseSize = 20
	unspent := func(s *tap) (n int64) {
		for _, r := range s.returns() {
			n += r.Unspent
		}
		return n
	}
	t.Run("closed twice", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			s := newTap()
			lim := newLimiter(t, s, cfg)
			require.Equal(t, 6, calls(t, lim, "acme", 6)) // one that waited, five of the lease
			require.Equal(t, int64(15), lim.Stats().TokensHeld)
			require.NoError(t, lim.Close(t.Context()))
			require.NoError(t, lim.Close(t.Context()))
			assert.Equal(t, int64(15), unspent(s))
			tokens, out := level(t, s, "acme", still(1000))
			assert.InDelta(t, 994.0, tokens, 1e-6)
			assert.Zero(t, out)
			adds(t, lim.Stats(), 6)
		})
	})
	t.Run("while a draw is in flight", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			s := newTap()
			lim := newLimiter(t, s, cfg)
			require.Equal(t, 6, calls(t, lim, "acme", 6))
			s.onAcquire(late(20 * ms))
			p := start(t.Context(), lim, "acme", 100)
			var closed atomic.Bool
			go func() {
				assert.NoError(t, lim.Close(context.Background()))
				closed.Store(true)
			}()
			synctest.Wait()
			assert.False(t, closed.Load(), "a draw is under way")
			time.Sleep(20 * ms)
			synctest.Wait()
			require.True(t, p.done.Load(), "a call under way is answered")
			assert.True(t, closed.Load())
			tokens, out := level(t, s, "acme", still(1000))
			spent := 6.0
			if p.Allowed {
				spent += 100
			}
			assert.InDelta(t, 1000-spent, tokens, 1e-6, "what was not spent is back, once: %+v %v", s.tokens(), p.err)
			assert.LessOrEqual(t, out, int64(20), "spent and not reported")
		})
	})
	t.Run("with many tenants in few trips", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			s := newTap()
			lim := newLimiter(t, s, cfg)
			for i := range 1000 {
				require.True(t, call(t, lim, fmt.Sprint(i), 1).Allowed)
			}
			s.onReturn(func(_ context.Context, next func() error) error {
				time.Sleep(5 * ms)
				return next()
			})
			trips := lim.Stats().Returns
			require.NoError(t, lim.Close(t.Context()))
			assert.Equal(t, int64(20_000), unspent(s))
			assert.LessOrEqual(t, lim.Stats().Returns-trips, int64(4))
		})
	})
	t.Run("bounded by its context when the store hangs", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			s := newTap()
			lim, err := leaselimit.New(s, cfg)
			require.NoError(t, err)
			require.Equal(t, 6, calls(t, lim, "acme", 6))
			s.onReturn(func(context.Context, func() error) error {
				time.Sleep(time.Hour) // whatever the context says
				return nil
			})
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			begin := time.Now()
			require.ErrorIs(t, lim.Close(ctx), context.DeadlineExceeded)
			assert.Equal(t, time.Second, time.Since(begin))
			_, err = lim.Allow(t.Context(), "acme")
			require.ErrorIs(t, err, leaselimit.ErrClosed)
			time.Sleep(2 * time.Hour)
		})
	})
	t.Run("a hasty second Close does not spoil the first", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			s := newTap()
			lim := newLimiter(t, s, cfg)
			require.Equal(t, 6, calls(t, lim, "acme", 6))
			s.onReturn(func(ctx context.Context, next func() error) error {
				select {
				case <-time.After(20 * ms):
					return next()
				case <-ctx.Done():
					return &lease.StoreError{Op: "return", Reason: lease.ReasonTimeout, Err: ctx.Err()}
				}
			})
			var wg sync.WaitGroup
			wg.Go(func() { assert.NoError(t, lim.Close(context.Background())) })
			synctest.Wait()
			ctx, cancel := context.WithTimeout(t.Context(), 10*ms)
			defer cancel()
			assert.ErrorIs(t, lim.Close(ctx), context.DeadlineExceeded)
			wg.Wait()
			assert.Equal(t, int64(15), lim.Stats().TokensReturned)
		})
	})
}

// On a Redis that is down, for real.
func TestSL9_CloseIsBoundedWhenRedisIsDown(t *testing.T) {
	server := redistest.Start(t)
	cfg := limited(still(1000))
	cfg.LeaseSize, cfg.StoreTimeout = 20, 10*time.Second
	lim, err := leaselimit.New(redisbucket.New(server.Client(t)), cfg)
	require.NoError(t, err)
	d, err := lim.Allow(t.Context(), "acme")
	require.NoError(t, err)
	require.True(t, d.Allowed)
	server.Stop()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- lim.Close(ctx) }()
	select {
	case err := <-done:
		if err != nil {
			require.ErrorIs(t, err, context.DeadlineExceeded)
		}
	case <-t.Context().Done():
		t.Fatal("Close hangs")
	}
	assert.Zero(t, lim.Stats().TokensReturned)
	assert.Equal(t, lim.Stats().TokensGranted, lim.Stats().TokensLost)
}

// Close waits for everything that the limiter started: a Peek whose caller has left is one of these.
func TestSL4_CloseWaitsForAnAbandonedPeek(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var peeking atomic.Bool
		s := &slowPeek{tap: newTap(), busy: &peeking}
		lim := newLimiter(t, s, limited(still(100)))
		ctx, cancel := context.WithTimeout(t.Context(), ms)
		defer cancel()
		_, err := lim.Peek(ctx, "acme")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.True(t, peeking.Load())
		require.NoError(t, lim.Close(t.Context()))
		assert.False(t, peeking.Load(), "a goroutine of the limiter is still in the store")
		time.Sleep(time.Second)
	})
}

// slowPeek takes its time over peeks, whatever the context says.
type slowPeek struct {
	*tap

	busy *atomic.Bool
}

func (s *slowPeek) Peek(ctx context.Context, key lease.Key, terms lease.Terms) (lease.State, error) {
	s.busy.Store(true)
	defer s.busy.Store(false)
	time.Sleep(20 * ms)
	return s.Store.Peek(context.WithoutCancel(ctx), key, terms)
}

// The limit changes while calls come, in place and by building anew.
func TestSL10_CallsDoNotFailWhileTheLimitChanges(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newTap()
		s.onAcquire(late(2 * ms))
		var capacity atomic.Int64
		capacity.Store(1000)
		lim := newLimiter(t, s, leaselimit.Config{Limits: quota.SourceFunc(func(context.Context, string) (quota.Limit, error) {
			c := capacity.Load()
			return quota.PerSecond(c, c), nil
		})})
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			for i := int64(0); ctx.Err() == nil; i++ { // a hundred changes a second
				capacity.Store(500 + i*37%1000)
				time.Sleep(10 * ms)
			}
		})
		var allowed, degraded atomic.Int64
		for range 10 {
			wg.Go(func() { // a thousand calls a second in all
				handle := lim.Tenant("acme")
				for range 1000 {
					d, err := handle.Allow(context.Background())
					if !assert.NoError(t, err) {
						return
					}
					if d.Allowed {
						allowed.Add(1)
					}
					if d.Degraded() {
						degraded.Add(1)
					}
					time.Sleep(10 * ms)
				}
			})
		}
		time.Sleep(15 * time.Second)
		cancel()
		wg.Wait()
		assert.Zero(t, degraded.Load())
		assert.Greater(t, allowed.Load(), int64(4000))
		st := lim.Stats()
		assert.Zero(t, st.Errors)
		synctest.Wait()
		adds(t, lim.Stats(), 10_000)
	})
}
