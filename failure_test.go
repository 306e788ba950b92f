package leaselimit_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leaselimit/leaselimit"
	"github.com/leaselimit/leaselimit/internal/faultproxy"
	"github.com/leaselimit/leaselimit/internal/redistest"
	"github.com/leaselimit/leaselimit/lease"
	"github.com/leaselimit/leaselimit/quota"
	"github.com/leaselimit/leaselimit/redisbucket"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Field cases of group 5 at the limiter: a store that is away.

// A dead port: New does not mind, calls follow the policy within StoreTimeout, and all is well once Redis is there.
func TestRF10_RedisThatIsNotThereYet(t *testing.T) {
	server := redistest.Start(t)
	server.Stop()
	cfg := limited(quota.Limit{Capacity: 40, Refill: 1, Per: time.Hour})
	cfg.Replicas, cfg.StoreTimeout = 4, 500*time.Millisecond // for slow machines, and below any timeout of the client
	lims := map[leaselimit.FailurePolicy]*leaselimit.Limiter{}
	for _, cfg.OnFailure = range []leaselimit.FailurePolicy{leaselimit.FailLocal, leaselimit.FailOpen, leaselimit.FailClosed} {
		begin := time.Now()
		lims[cfg.OnFailure] = newLimiter(t, redisbucket.New(server.Client(t)), cfg)
		assert.Less(t, time.Since(begin), time.Second)
	}
	for policy, lim := range lims {
		admitted := 0
		for range 30 {
			begin := time.Now()
			d, err := lim.Allow(t.Context(), policy.String())
			require.NoError(t, err, "policy %v", policy)
			require.True(t, d.Degraded())
			assert.Less(t, time.Since(begin), 2*time.Second)
			if d.Allowed {
				admitted++
			}
		}
		want := map[leaselimit.FailurePolicy]int{leaselimit.FailLocal: 10, leaselimit.FailOpen: 30, leaselimit.FailClosed: 0}
		assert.Equal(t, want[policy], admitted, "policy %v", policy)
		assert.True(t, lim.Stats().Degraded)
	}
	server.Restart()
	for policy, lim := range lims {
		require.Eventually(t, func() bool {
			d, err := lim.Allow(t.Context(), policy.String())
			return err == nil && !d.Degraded() && d.Allowed
		}, time.Minute, 20*time.Millisecond, "policy %v", policy)
		assert.False(t, lim.Stats().Degraded)
	}
}

// RF9: a caller's deadline holds although Redis is late and the client does not mind contexts.
func TestRF9_ACallersDeadlineHolds(t *testing.T) {
	proxy := faultproxy.New(t, redistest.Addr(t))
	rdb := redis.NewClient(&redis.Options{Addr: proxy.Addr()})
	defer rdb.Close()
	cfg := limited(still(40))
	cfg.StoreTimeout = 3 * time.Second
	lim := newLimiter(t, redisbucket.New(rdb, redisbucket.WithPrefix(redistest.Prefix(t))), cfg)
	require.NoError(t, rdb.Ping(t.Context()).Err()) // an idle connection
	release := proxy.HoldReplies()
	defer release()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	begin := time.Now()
	_, err := lim.Allow(ctx, "acme")
	require.ErrorIs(t, err, context.DeadlineExceeded)
	assert.Less(t, time.Since(begin), 2*time.Second, "long before StoreTimeout and the client's own")
	release()
}

// RF1 at the limiter: a draw whose answer is late is not repeated, and what it brought is not lost.
func TestRF1_ALateAnswerIsDebitedOnce(t *testing.T) {
	proxy := faultproxy.New(t, redistest.Addr(t))
	rdb := redis.NewClient(&redis.Options{Addr: proxy.Addr(), ReadTimeout: time.Minute})
	defer rdb.Close()
	cfg := limited(still(100))
	cfg.OnFailure, cfg.StoreTimeout = leaselimit.FailClosed, time.Second // that a return has to be sent, too
	store := redisbucket.New(rdb, redisbucket.WithPrefix(redistest.Prefix(t)))
	warm(t, store) // without a limiter, whose own draw might be late on a busy machine
	lim := newLimiter(t, store, cfg)
	release := proxy.HoldReplies()
	d, err := lim.AllowN(t.Context(), "acme", 10)
	require.NoError(t, err)
	require.True(t, d.Degraded())
	release()
	require.Eventually(t, func() bool { return lim.Stats().LateDraws == 1 && lim.Stats().Returns > 0 },
		time.Minute, 10*time.Millisecond)
	require.NoError(t, lim.Close(t.Context()))
	tokens, _ := level(t, store, "acme", still(100))
	assert.InDelta(t, 100.0, tokens, 1e-6, "ten were drawn, once, and nobody waited for them any more")
}

// Whatever is held goes on being spent while the store is away, under every policy.
func TestLeasesAreSpentWhileTheStoreIsAway(t *testing.T) {
	for _, policy := range []leaselimit.FailurePolicy{leaselimit.FailLocal, leaselimit.FailOpen, leaselimit.FailClosed} {
		t.Run(policy.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := newTap()
				cfg := limited(still(1000))
				cfg.LeaseSize, cfg.OnFailure = 20, policy
				lim := newLimiter(t, s, cfg)
				require.True(t, call(t, lim, "acme", 1).Allowed)
				s.onAcquire(down)
				for range 20 {
					d := call(t, lim, "acme", 1)
					require.True(t, d.Allowed)
					require.Equal(t, leaselimit.SourceLease, d.Source)
				}
				assert.True(t, call(t, lim, "acme", 1).Degraded())
			})
		})
	}
}

// A refusal by a store that came back is told from one by the policy, and a failed store never makes a tenant known-empty.
func TestAFailureIsNotARefusal(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newTap()
		cfg := limited(still(1000))
		cfg.OnFailure = leaselimit.FailClosed
		lim := newLimiter(t, s, cfg)
		s.onAcquire(down)
		for range 50 {
			d := call(t, lim, "acme", 1)
			require.True(t, d.Degraded())
			require.False(t, d.Allowed)
			require.Positive(t, d.RetryAfter)
			time.Sleep(100 * ms)
		}
		s.onAcquire(nil)
		time.Sleep(time.Second)
		d := call(t, lim, "acme", 1)
		assert.True(t, d.Allowed)
		assert.Equal(t, leaselimit.SourceStore, d.Source)
	})
}

// One tenant's broken bucket says nothing about the store.
func TestABrokenBucketIsNotAnOutage(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newTap()
		s.onAcquire(func(_ context.Context, req lease.AcquireRequest, next acquireNext) (lease.Grant, error) {
			if req.Key.Tenant == "broken" {
				return lease.Grant{}, &lease.StoreError{Op: "acquire", Reason: lease.ReasonWrongType, Err: errDown}
			}
			return next()
		})
		lim := newLimiter(t, s, limited(still(1000)))
		assert.True(t, call(t, lim, "broken", 1).Degraded())
		assert.False(t, call(t, lim, "acme", 1).Degraded())
		assert.False(t, lim.Stats().Degraded)
	})
}

// Peek and Reset do not wait longer than StoreTimeout, nor than their context.
func TestPeekAndResetAreBounded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := &stuck{tap: newTap()}
		cfg := limited(still(40))
		lim := newLimiter(t, s, cfg)
		begin := time.Now()
		d, err := lim.Peek(t.Context(), "acme")
		require.NoError(t, err)
		assert.True(t, d.Degraded())
		assert.Equal(t, int64(10), d.Remaining)
		assert.Equal(t, 50*ms, time.Since(begin))
		begin = time.Now()
		require.Error(t, lim.Reset(t.Context(), "acme"))
		assert.Equal(t, 50*ms, time.Since(begin))
		ctx, cancel := context.WithTimeout(t.Context(), 10*ms)
		defer cancel()
		begin = time.Now()
		_, err = lim.Peek(ctx, "acme")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, lim.Reset(ctx, "acme"), context.DeadlineExceeded)
		adds(t, lim.Stats(), 0) // no call was to be decided
		assert.Equal(t, 10*ms, time.Since(begin))
		time.Sleep(2 * time.Minute)
		synctest.Wait()
	})
}

// stuck is a store whose peeks and resets hang, whatever the context says.
type stuck struct{ *tap }

func (s *stuck) Peek(context.Context, lease.Key, lease.Terms) (lease.State, error) {
	time.Sleep(time.Minute)
	return lease.State{}, &lease.StoreError{Op: "peek", Reason: lease.ReasonTimeout, Err: context.DeadlineExceeded}
}

func (s *stuck) Reset(context.Context, lease.Key) error {
	time.Sleep(time.Minute)
	return &lease.StoreError{Op: "reset", Reason: lease.ReasonTimeout, Err: context.DeadlineExceeded}
}
