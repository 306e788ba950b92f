package redisbucket_test

import (
	"context"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leaselimit/leaselimit/internal/faultproxy"
	"github.com/leaselimit/leaselimit/internal/redistest"
	"github.com/leaselimit/leaselimit/lease"
	"github.com/leaselimit/leaselimit/quota"
	"github.com/leaselimit/leaselimit/redisbucket"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Faults of other limiters, by their number: servers and networks that fail.

const (
	wait = 60 * time.Second // for what must come
	tick = 10 * time.Millisecond
)

// lending is a limit without refill, so that what passed can be counted.
func lending(capacity int64) lease.Terms {
	return lease.Terms{Limit: quota.Limit{Capacity: capacity}, Share: capacity / 4, TTL: time.Minute}
}

// try draws one token.
func try(s lease.Store, terms lease.Terms) error {
	_, err := s.Acquire(context.Background(), lease.AcquireRequest{Key: key, Terms: terms, Min: 1, Need: 1})
	return err
}

func TestRF2_APipelineOfUnknownScripts(t *testing.T) {
	srv := redistest.Start(t)
	s := redisbucket.New(srv.Client(t))
	lim := lending(100)
	var items []lease.Return
	for i := range 50 {
		k := lease.Key{Tenant: strings.Repeat("t", i+1), Class: "c"}
		g, err := s.Acquire(t.Context(), lease.AcquireRequest{Key: k, Terms: lim, Want: 5, Replicas: 1})
		require.NoError(t, err)
		items = append(items, lease.Return{Key: k, Terms: lim, Epoch: g.Epoch, Unspent: 5})
	}
	require.Equal(t, "OK", srv.CLI(t, "SCRIPT", "FLUSH"))
	require.NoError(t, s.Return(t.Context(), items))
	for _, item := range items {
		st, err := s.Peek(t.Context(), item.Key, lim)
		require.NoError(t, err)
		assert.InDelta(t, 100, st.Level, 0)
	}
	stats := srv.CLI(t, "INFO", "commandstats")
	assert.Contains(t, stats, "cmdstat_eval:", "sent once more in full")
}

func TestRF3_ScriptsThatAreForgotten(t *testing.T) {
	srv := redistest.Start(t)
	s := redisbucket.New(srv.Client(t))
	lim := lending(1_000_000)
	stop := make(chan struct{})
	var draws, failures atomic.Int64
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if err := try(s, lim); err != nil {
					failures.Add(1)
				}
				err := s.Return(context.Background(), []lease.Return{{Key: key, Terms: lim, Waiters: 1}})
				if err != nil {
					failures.Add(1)
				}
				draws.Add(1)
			}
		})
	}
	for range 30 {
		seen := draws.Load()
		require.Equal(t, "OK", srv.CLI(t, "SCRIPT", "FLUSH"))
		require.Eventually(t, func() bool { return draws.Load() > seen+10 }, wait, time.Millisecond)
	}
	close(stop)
	wg.Wait()
	assert.Zero(t, failures.Load(), "of %d draws", draws.Load())

	srv.Restart()
	require.Eventually(t, func() bool {
		err := try(s, lim)
		assert.NotEqual(t, lease.ReasonNoScript, lease.ReasonOf(err))
		return err == nil
	}, wait, tick)
}

func TestRF5_ADemotedPrimary(t *testing.T) {
	srv := redistest.Start(t)
	s := redisbucket.New(srv.Client(t))
	lim := lending(10)
	require.NoError(t, try(s, lim))
	require.Equal(t, "OK", srv.CLI(t, "REPLICAOF", "127.0.0.1", "1"))
	for range 5 {
		err := try(s, lim)
		assert.Equal(t, lease.ReasonReadOnly, lease.ReasonOf(err), "%v", err)
	}
	err := s.Return(t.Context(), []lease.Return{{Key: key, Terms: lim, Waiters: 1}})
	assert.Equal(t, lease.ReasonReadOnly, lease.ReasonOf(err), "%v", err)
	require.Equal(t, "OK", srv.CLI(t, "REPLICAOF", "NO", "ONE"))
	require.NoError(t, try(s, lim), "recovers at once")
	st, err := s.Peek(t.Context(), key, lim)
	require.NoError(t, err)
	assert.InDelta(t, 8, st.Level, 0, "and nothing was spent in between")
}

func TestRF7_AServerThatLoads(t *testing.T) {
	srv := redistest.Start(t, redistest.WithConfig("enable-debug-command", "yes"))
	rdb := srv.Client(t)
	s := redisbucket.New(rdb)
	lim := lending(10)
	require.NoError(t, try(s, lim))

	// Some thousand keys, each loaded at leisure.
	pipe := rdb.Pipeline()
	for i := range 5000 {
		pipe.Set(t.Context(), "k"+strings.Repeat("x", i%50)+string(rune('a'+i%26))+time.Duration(i).String(), strings.Repeat("v", 100), 0)
	}
	_, err := pipe.Exec(t.Context())
	require.NoError(t, err)
	require.Equal(t, "OK", srv.CLI(t, "CONFIG", "SET", "key-load-delay", "500"))
	require.Equal(t, "OK", srv.CLI(t, "CONFIG", "SET", "loading-process-events-interval-bytes", "1024"))

	loaded := make(chan error, 1)
	go func() {
		slow := redis.NewClient(&redis.Options{Addr: srv.Addr(), ReadTimeout: wait, MaxRetries: -1})
		defer slow.Close()
		loaded <- slow.Do(context.Background(), "DEBUG", "RELOAD").Err()
	}()
	require.Eventually(t, func() bool {
		err := try(s, lim)
		return err != nil && lease.ReasonOf(err) == lease.ReasonLoading
	}, wait, time.Millisecond)
	require.NoError(t, <-loaded)
	require.NoError(t, try(s, lim))
}

func TestOOMAndBusy(t *testing.T) {
	srv := redistest.Start(t, redistest.WithConfig("busy-reply-threshold", "1"))
	s := redisbucket.New(srv.Client(t))
	lim := lending(10)
	require.NoError(t, try(s, lim))
	require.Equal(t, "OK", srv.CLI(t, "CONFIG", "SET", "maxmemory", "1"))
	err := try(s, lim)
	assert.Equal(t, lease.ReasonOOM, lease.ReasonOf(err), "%v", err)
	require.Equal(t, "OK", srv.CLI(t, "CONFIG", "SET", "maxmemory", "0"))
	require.NoError(t, try(s, lim))

	done := make(chan error, 1)
	go func() {
		slow := redis.NewClient(&redis.Options{Addr: srv.Addr(), ReadTimeout: wait, MaxRetries: -1})
		defer slow.Close()
		done <- slow.Eval(context.Background(), "while true do end", nil).Err()
	}()
	require.Eventually(t, func() bool {
		err := try(s, lim)
		return err != nil && lease.ReasonOf(err) == lease.ReasonBusy
	}, wait, time.Millisecond)
	require.Equal(t, "OK", srv.CLI(t, "SCRIPT", "KILL"))
	require.Error(t, <-done)
	require.NoError(t, try(s, lim))
}

func TestAT1_ManyReplicasExactlyTheCapacity(t *testing.T) {
	prefix := redistest.Prefix(t)
	lim := lease.Terms{Limit: quota.Limit{Capacity: 100}, TTL: time.Minute}
	var admitted atomic.Int64
	var wg sync.WaitGroup
	for range 8 {
		s := redisbucket.New(redistest.Client(t), redisbucket.WithPrefix(prefix))
		for range 25 {
			wg.Go(func() {
				for range 50 {
					g, err := s.Acquire(context.Background(), lease.AcquireRequest{Key: key, Terms: lim, Min: 1, Need: 1})
					assert.NoError(t, err)
					admitted.Add(g.Waiters)
				}
			})
		}
	}
	wg.Wait()
	assert.EqualValues(t, 100, admitted.Load())
}

// Whatever is cut off, no key is left without an expiry: one script writes both or neither.
func TestAT2_NoKeyWithoutExpiry(t *testing.T) {
	srv := redistest.Start(t)
	p := faultproxy.New(t, srv.Addr())
	rdb := redis.NewClient(&redis.Options{Addr: p.Addr(), DialerRetries: 1, ReadTimeout: time.Second})
	t.Cleanup(func() { _ = rdb.Close() })
	s := redisbucket.New(rdb)
	lim := lease.Terms{Limit: quota.PerSecond(1, 100), Share: 50, TTL: time.Minute}
	var wg sync.WaitGroup
	var failed, worked atomic.Int64
	for w := range 4 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(1, uint64(w)))
			for i := range 500 {
				if r.IntN(20) == 0 {
					p.CloseAll()
				}
				k := lease.Key{Tenant: strings.Repeat("t", i%97+1), Class: string(rune('a' + w))}
				g, err := s.Acquire(context.Background(), lease.AcquireRequest{Key: k, Terms: lim, Min: 1, Need: 1, Want: 3})
				if err != nil {
					failed.Add(1)
					continue
				}
				worked.Add(1)
				_ = s.Return(context.Background(), []lease.Return{{Key: k, Terms: lim, Epoch: g.Epoch, Unspent: g.Surplus}})
			}
		})
	}
	wg.Wait()
	assert.NotZero(t, failed.Load())
	assert.NotZero(t, worked.Load())

	direct := srv.Client(t)
	keys := direct.Keys(t.Context(), "*").Val()
	require.NotEmpty(t, keys)
	for _, k := range keys {
		assert.Positive(t, direct.PTTL(t.Context(), k).Val(), k)
	}
}

// A context that ends ends the call, where the client is made for it.
func TestADeadlineIsKept(t *testing.T) {
	p := faultproxy.New(t, redistest.Addr(t))
	rdb := redis.NewClient(&redis.Options{Addr: p.Addr(), ContextTimeoutEnabled: true, ReadTimeout: wait})
	t.Cleanup(func() { _ = rdb.Close() })
	s := redisbucket.New(rdb, redisbucket.WithPrefix(redistest.Prefix(t)))
	require.NoError(t, try(s, lending(10)))
	release := p.HoldReplies()
	defer release()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err := s.Acquire(ctx, lease.AcquireRequest{Key: key, Terms: lending(10), Min: 1, Need: 1})
	assert.Equal(t, lease.ReasonTimeout, lease.ReasonOf(err), "%v", err)
}
