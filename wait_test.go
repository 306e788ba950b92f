package leaselimit_test

import (
	"context"
	"runtime"
	"strings"
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

// hourly is a limit that makes callers wait for long.
var hourly = quota.Limit{Capacity: 10, Refill: 1, Per: time.Hour}

// waiting is a call of Wait. took and err may be read once it is done.
type waiting struct {
	took time.Duration
	err  error
	done atomic.Bool
}

func startWait(ctx context.Context, lim *leaselimit.Limiter, tenant string, cost int64) *waiting {
	w := &waiting{}
	begin := time.Now()
	go func() {
		w.err = lim.Wait(ctx, tenant, cost)
		w.took = time.Since(begin)
		w.done.Store(true)
	}()
	synctest.Wait()
	return w
}

// finished counts those that are done.
func finished(all []*waiting) (n int) {
	for _, w := range all {
		if w.done.Load() {
			n++
		}
	}
	return n
}

// live is a source whose limit a test changes.
type live struct{ atomic.Pointer[quota.Limit] }

func newLive(limit quota.Limit) *live {
	l := &live{}
	l.Store(&limit)
	return l
}

func (l *live) Limit(context.Context, string) (quota.Limit, error) { return *l.Load(), nil }

func TestWaitEndsWithClose(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newTap()
		lim := newLimiter(t, s, limited(hourly))
		drain(t, s, "acme", hourly, 0)
		var all []*waiting
		for range 100 {
			all = append(all, startWait(t.Context(), lim, "acme", 1))
		}
		handle := &waiting{}
		go func() {
			handle.err = lim.Tenant("acme").Wait(t.Context(), 2)
			handle.done.Store(true)
		}()
		all = append(all, handle)
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		require.Zero(t, finished(all))
		stacks := make([]byte, 1<<20)
		stacks = stacks[:runtime.Stack(stacks, true)]
		assert.Equal(t, len(all), strings.Count(string(stacks), "leaselimit.(*Limiter).sleep("))
		assert.NotContains(t, string(stacks), "created by github.com/leaselimit/leaselimit.", "waiting needs no goroutine but the caller's")
		require.NoError(t, lim.Close(t.Context()))
		synctest.Wait()
		require.Equal(t, len(all), finished(all), "at once")
		for _, w := range all {
			require.ErrorIs(t, w.err, leaselimit.ErrClosed)
		}
		tokens, _ := level(t, s, "acme", hourly)
		assert.InDelta(t, 10.0/60, tokens, 1e-6, "nothing was spent")
	})
}

// A call that waits for a token of the next hour does not sleep through a change of its limit.
func TestWaitSeesItsLimitChange(t *testing.T) {
	raised := quota.PerSecond(1000, 1000)
	t.Run("raised", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			limits := newLive(hourly)
			s := newTap()
			lim := newLimiter(t, s, leaselimit.Config{Limits: limits})
			drain(t, s, "acme", hourly, 0)
			var all []*waiting
			for range 50 {
				all = append(all, startWait(t.Context(), lim, "acme", 1))
				time.Sleep(111 * ms)
			}
			time.Sleep(time.Minute)
			require.Zero(t, finished(all))
			limits.Store(&raised)
			time.Sleep(5*time.Second + 60*ms) // 50 tokens are there 50 ms after the first draw
			synctest.Wait()
			require.Equal(t, len(all), finished(all))
			for _, w := range all {
				require.NoError(t, w.err)
			}
		})
	})
	t.Run("raised behind a cache", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			const ttl = 30 * time.Second
			limits := newLive(hourly)
			cache, err := quota.NewCache(limits, quota.CacheOptions{TTL: ttl})
			require.NoError(t, err)
			defer cache.Close()
			s := newTap()
			lim := newLimiter(t, s, leaselimit.Config{Limits: cache})
			drain(t, s, "acme", hourly, 0)
			w := startWait(t.Context(), lim, "acme", 1)
			time.Sleep(100 * time.Second)
			require.False(t, w.done.Load())
			limits.Store(&raised)
			time.Sleep(ttl + 5*time.Second + 2*ms)
			synctest.Wait()
			require.True(t, w.done.Load())
			require.NoError(t, w.err)
		})
	})
	t.Run("lifted", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			limits := newLive(hourly)
			s := newTap()
			lim := newLimiter(t, s, leaselimit.Config{Limits: limits})
			drain(t, s, "acme", hourly, 0)
			w := startWait(t.Context(), lim, "acme", 1)
			time.Sleep(time.Minute)
			limits.Store(&quota.Unlimited)
			time.Sleep(5 * time.Second)
			synctest.Wait()
			require.True(t, w.done.Load())
			require.NoError(t, w.err)
		})
	})
	t.Run("cut", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			limits := newLive(hourly)
			s := newTap()
			lim := newLimiter(t, s, leaselimit.Config{Limits: limits})
			drain(t, s, "acme", hourly, 0)
			w := startWait(t.Context(), lim, "acme", 5)
			time.Sleep(time.Minute)
			limits.Store(&quota.Limit{Capacity: 4, Refill: 1, Per: time.Hour})
			time.Sleep(5 * time.Second)
			synctest.Wait()
			require.True(t, w.done.Load())
			var refused *leaselimit.RefusedError
			require.ErrorAs(t, w.err, &refused)
			assert.Equal(t, leaselimit.Never, refused.Decision.RetryAfter)
		})
	})
	t.Run("the source fails", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			var fails atomic.Bool
			s := newTap()
			lim := newLimiter(t, s, leaselimit.Config{Limits: quota.SourceFunc(func(context.Context, string) (quota.Limit, error) {
				if fails.Load() {
					return quota.Limit{}, quota.ErrUnknownTenant
				}
				return hourly, nil
			})})
			drain(t, s, "acme", hourly, 0)
			w := startWait(t.Context(), lim, "acme", 1)
			time.Sleep(time.Minute)
			fails.Store(true)
			time.Sleep(5 * time.Second)
			synctest.Wait()
			require.True(t, w.done.Load())
			require.ErrorIs(t, w.err, quota.ErrUnknownTenant)
		})
	})
}

// A reset is for those that wait, too, wherever it came from, and for each of them.
func TestWaitSeesAReset(t *testing.T) {
	for _, where := range []string{"here", "there"} {
		t.Run(where, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				store := newTap()
				store.onAcquire(late(20 * ms))
				lims := map[string]*leaselimit.Limiter{
					"here": newLimiter(t, store, limited(hourly)), "there": newLimiter(t, store.Store, limited(hourly)),
				}
				for round := range 20 {
					drain(t, store, "acme", hourly, 0)
					var all []*waiting
					for range 10 {
						all = append(all, startWait(t.Context(), lims["here"], "acme", 1))
						time.Sleep(time.Duration(137+31*round) * ms)
					}
					time.Sleep(time.Minute + time.Duration(round)*317*ms)
					require.Zero(t, finished(all))
					require.NoError(t, lims[where].Reset(t.Context(), "acme"))
					time.Sleep(6 * time.Second)
					synctest.Wait()
					require.Equal(t, 10, finished(all), "round %d", round)
					for _, w := range all {
						require.NoError(t, w.err)
					}
				}
			})
		})
	}
}

// Who waits in an outage, for a share of the limit that is hours away, does not sleep through its end, nor asks all the while.
func TestWaitSeesTheStoreComeBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newTap()
		s.onAcquire(down)
		lim := newLimiter(t, s, limited(hourly))
		for range 20 {
			call(t, lim, "acme", 1)
		}
		w := startWait(t.Context(), lim, "acme", 1)
		tries := lim.Stats().RefusedFallback
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		require.False(t, w.done.Load())
		assert.LessOrEqual(t, lim.Stats().RefusedFallback-tries, int64(10*time.Minute/(4*time.Second)))
		s.onAcquire(nil)
		time.Sleep(6 * time.Second)
		synctest.Wait()
		require.True(t, w.done.Load())
		require.NoError(t, w.err)
	})
}

// A tenant that makes room while a call waits for it is looked up anew.
func TestWaitSurvivesAnEviction(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newTap()
		cfg := limited(hourly)
		cfg.MaxTenants = 1
		lim := newLimiter(t, s, cfg)
		drain(t, s, "acme", hourly, 0)
		w := startWait(t.Context(), lim, "acme", 1)
		require.True(t, call(t, lim, "other", 1).Allowed)
		time.Sleep(59 * time.Minute)
		synctest.Wait()
		require.False(t, w.done.Load())
		time.Sleep(time.Minute + time.Second)
		synctest.Wait()
		require.True(t, w.done.Load())
		require.NoError(t, w.err)
	})
}

// What waiting costs: each replica draws once in 5 s or so, however many wait in it, and no more of them count as refused calls.
func TestWaitingCostsTheStoreLittle(t *testing.T) {
	const replicas, waiters, span = 2, 50, 10 * time.Minute
	for _, tt := range []struct {
		name  string
		limit quota.Limit
		cost  int64
		lend  bool
	}{
		{"for the next hour", hourly, 1, false},
		// They hold the bucket at 170, so its level does not tell that the cost cannot pass.
		{"for leases of others to end", quota.PerSecond(10, 200), 172, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				store := membucket.New()
				if !tt.lend {
					drain(t, store, "acme", tt.limit, 0)
				}
				ctx, cancel := context.WithCancel(t.Context())
				var taps []*tap
				var lims []*leaselimit.Limiter
				var wg sync.WaitGroup
				lend := func() {
					if tt.lend { // all that may be
						_, err := store.Acquire(ctx, lease.AcquireRequest{Key: key("acme"), Terms: terms(tt.limit), Want: 200, Replicas: 1})
						require.NoError(t, err)
					}
				}
				lend()
				for range replicas {
					s := newTapOn(store)
					lim := newLimiter(t, s, limited(tt.limit))
					taps, lims = append(taps, s), append(lims, lim)
					for range waiters {
						wg.Go(func() { assert.ErrorIs(t, lim.Wait(ctx, "acme", tt.cost), context.Canceled) })
						time.Sleep(23 * ms)
					}
				}
				for range span / (100 * ms) {
					time.Sleep(100 * ms)
					lend()
				}
				cancel()
				wg.Wait()
				for i, lim := range lims {
					draws, refused := len(taps[i].draws()), int(lim.Stats().Refused())
					t.Logf("%d draws, %d refused", draws, refused)
					assert.LessOrEqual(t, draws, int(span/(4*time.Second)))
					assert.GreaterOrEqual(t, draws, int(span/(6*time.Second)), "or a reset is not seen in time")
					if !tt.lend { // where RetryAfter passes, and was not enough, all of them try again
						assert.LessOrEqual(t, refused, draws+3*waiters)
					}
				}
			})
		})
	}
}
