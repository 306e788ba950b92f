package leaselimit_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"runtime"
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

// Field cases of groups 7, 9 and 14: many tenants, and limits that change.

// Many tenants once each: what is kept is capped. The store is emptied on the way, so that only the limiter can grow.
func TestMC3_MemoryDoesNotGrowWithTenants(t *testing.T) {
	const tenants, kept = 200_000, 1000
	s := new(forgetful)
	s.forget()
	cfg := limited(quota.PerSecond(1, 10))
	cfg.MaxTenants, cfg.StoreTimeout = kept, 10*time.Second
	lim := newLimiter(t, s, cfg)
	heap := func() uint64 {
		s.forget()
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	var early uint64
	for i := range tenants {
		d, err := lim.Allow(t.Context(), fmt.Sprint("tenant-", i))
		require.NoError(t, err)
		require.True(t, d.Allowed)
		if i%1000 == 0 {
			s.forget()
		}
		if i == tenants/10 {
			early = heap()
		}
	}
	late := heap()
	assert.Less(t, late, early+early/2+1<<20, "the heap is flat")
	st := lim.Stats()
	assert.LessOrEqual(t, st.Tenants, int64(kept))
	assert.Equal(t, int64(tenants)-st.Tenants, st.Evicted)
	adds(t, st, tenants)
}

// forgetful is a store in memory that can be emptied.
type forgetful struct {
	atomic.Pointer[membucket.Store]
}

func (s *forgetful) forget() { s.Store(membucket.New()) }

func (s *forgetful) Acquire(ctx context.Context, req lease.AcquireRequest) (lease.Grant, error) {
	return s.Load().Acquire(ctx, req)
}

func (s *forgetful) Return(ctx context.Context, items []lease.Return) error {
	return s.Load().Return(ctx, items)
}

func (s *forgetful) Take(ctx context.Context, charges []lease.Charge) (lease.TakeReply, error) {
	return s.Load().Take(ctx, charges)
}

func (s *forgetful) Peek(ctx context.Context, key lease.Key, terms lease.Terms) (lease.State, error) {
	return s.Load().Peek(ctx, key, terms)
}

func (s *forgetful) Reset(ctx context.Context, key lease.Key) error { return s.Load().Reset(ctx, key) }

func TestMC5_AnEvictedTenantIsNotFullAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newTap()
		cfg := limited(still(10))
		cfg.MaxTenants = 100
		lim := newLimiter(t, s, cfg)
		require.Equal(t, 10, calls(t, lim, "X", 12))
		handle := lim.Tenant("X")
		for i := range 1000 {
			require.True(t, call(t, lim, fmt.Sprint(i), 1).Allowed)
		}
		asked := len(s.draws())
		assert.Zero(t, calls(t, lim, "X", 10))
		assert.LessOrEqual(t, len(s.draws())-asked, 1, "losing what was known costs a question")
		d, err := handle.Allow(t.Context())
		require.NoError(t, err)
		assert.False(t, d.Allowed, "nor through a handle")
	})
}

// Memory is for tenants that are called: the others leave it, and what they did stays counted.
func TestIdleTenantsLeaveMemory(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newTap()
		cfg := limited(quota.PerSecond(10, 100))
		cfg.Observer = &leaselimit.Observer{Evicted: func(tenant string) { t.Errorf("%s made room for nobody", tenant) }}
		lim := newLimiter(t, s, cfg)
		handle := lim.Tenant("idle-7")
		for range 2 { // twice, for the sweep has to begin again
			for i := range 1000 {
				require.True(t, call(t, lim, fmt.Sprint("idle-", i), 1).Allowed)
			}
			for range 125 {
				require.True(t, call(t, lim, "busy", 1).Allowed)
				time.Sleep(time.Second)
			}
			require.Equal(t, int64(1), lim.Stats().Tenants, "four LeaseTTL of 30 s later, and a step")
			require.Greater(t, lim.Stats().AllowedLease, int64(60), "who is busy keeps its leases")
			time.Sleep(125 * time.Second)
			require.Zero(t, lim.Stats().Tenants)
		}
		adds(t, lim.Stats(), 2*1125)
		assert.Equal(t, int64(2*1001), lim.Stats().Idle)
		assert.Zero(t, lim.Stats().Evicted)
		d, err := handle.Allow(t.Context())
		require.NoError(t, err)
		assert.True(t, d.Allowed)
	})
}

// A cost that can never pass is told so, whatever is in hand.
func TestACostAboveTheCapacityNeverPasses(t *testing.T) {
	bubble(t, func(t *testing.T) {
		cfg := limited(quota.PerMinute(100, 100))
		cfg.LeaseSize, cfg.Replicas = 10, 1
		lim := newLimiter(t, newTap(), cfg)
		for range 95 {
			require.True(t, call(t, lim, "acme", 1).Allowed)
		}
		assert.Equal(t, leaselimit.Never, call(t, lim, "acme", 101).RetryAfter)
		d, err := lim.Tenant("acme").AllowN(t.Context(), 101)
		require.NoError(t, err)
		assert.Equal(t, leaselimit.Never, d.RetryAfter)
		e, err := lim.Estimate(t.Context(), "acme", 101)
		require.NoError(t, err)
		assert.Equal(t, leaselimit.Never, e.RetryAfter)
		assert.Equal(t, int64(3), lim.Stats().RefusedNever)
	})
}

// Who makes room loses nothing: the unspent part of its lease goes back.
func TestEvictionReturnsLeases(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newTap()
		cfg := limited(still(100))
		cfg.MaxTenants, cfg.LeaseSize, cfg.Replicas = 10, 8, 1
		lim := newLimiter(t, s, cfg)
		for i := range 100 {
			require.True(t, call(t, lim, fmt.Sprint(i), 1).Allowed)
		}
		assert.Equal(t, int64(10*8), lim.Stats().TokensHeld, "by the ten that are left")
		full := 0
		for i := range 100 {
			if tokens, out := level(t, s, fmt.Sprint(i), still(100)); out == 0 {
				assert.InDelta(t, 99.0, tokens, 1e-6)
				full++
			}
		}
		assert.Equal(t, 90, full)
		st := lim.Stats()
		assert.Equal(t, int64(90), st.Evicted)
		assert.Equal(t, int64(720), st.TokensReturned)
		adds(t, st, 100)
	})
}

// MaxTenants holds even where all of them are busy, and hot tenants stay.
func TestEvictionSparesTheHot(t *testing.T) {
	bubble(t, func(t *testing.T) {
		cfg := limited(still(1_000_000))
		cfg.MaxTenants = 50
		s := newTap()
		lim := newLimiter(t, s, cfg)
		waits := 0
		for i := range 2000 {
			for hot := range 5 {
				before := lim.Stats().Waited
				require.True(t, call(t, lim, fmt.Sprint("hot-", hot), 1).Allowed)
				if i > 100 {
					waits += int(lim.Stats().Waited - before)
				}
			}
			require.True(t, call(t, lim, fmt.Sprint("cold-", i), 1).Allowed)
			require.LessOrEqual(t, lim.Stats().Tenants, int64(50))
			time.Sleep(ms)
		}
		assert.Less(t, waits, 100, "of 9500 calls of hot tenants")
	})
}

// A handle works across an eviction, and its calls are counted.
func TestOB6_CallsThroughTheHandleOfAnEvictedTenantAreCounted(t *testing.T) {
	bubble(t, func(t *testing.T) {
		cfg := limited(still(10))
		cfg.MaxTenants = 1
		lim := newLimiter(t, newTap(), cfg)
		handle := lim.Tenant("X")
		n := int64(0)
		allow := func(want bool) {
			t.Helper()
			n++
			d, err := handle.Allow(t.Context())
			require.NoError(t, err)
			synctest.Wait()
			assert.Equal(t, want, d.Allowed)
		}
		for range 10 {
			allow(true)
		}
		allow(false)
		n++
		require.True(t, call(t, lim, "other", 1).Allowed) // X makes room
		for range 7 {
			allow(false)
		}
		adds(t, lim.Stats(), n)
		time.Sleep(6 * time.Second)
		for range 7 {
			allow(false)
		}
		adds(t, lim.Stats(), n)
	})
}

func TestQC4_AReloadGivesNoTokens(t *testing.T) {
	t.Run("of the limit", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			limit := still(10)
			lim := newLimiter(t, newTap(), leaselimit.Config{
				Limits: quota.SourceFunc(func(context.Context, string) (quota.Limit, error) { return limit, nil }),
			})
			admitted := 0
			for i := range 100 {
				limit.Capacity = 10 + int64(i%3)
				admitted += calls(t, lim, "acme", 1)
			}
			assert.Equal(t, 10, admitted)
		})
	})
	t.Run("of the limiter", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			store := membucket.New()
			admitted := 0
			for i := range 100 {
				lim := newLimiter(t, store, limited(still(10+int64(i%3))))
				admitted += calls(t, lim, "acme", 1)
				require.NoError(t, lim.Close(t.Context()))
			}
			assert.Equal(t, 10, admitted)
		})
	})
}

func TestQC6_ARaiseIsInForceAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		limit := quota.Limit{Capacity: 10, Refill: 1, Per: time.Hour}
		lim := newLimiter(t, newTap(), leaselimit.Config{
			Limits: quota.SourceFunc(func(context.Context, string) (quota.Limit, error) { return limit, nil }),
		})
		require.Equal(t, 10, calls(t, lim, "acme", 100))
		limit = quota.PerSecond(1000, 1000)
		d := call(t, lim, "acme", 1)
		if !d.Allowed {
			require.LessOrEqual(t, d.RetryAfter, 10*ms)
			time.Sleep(d.RetryAfter)
			d = call(t, lim, "acme", 1)
		}
		assert.True(t, d.Allowed)
		assert.Equal(t, limit, d.Limit)
	})
}

// Reset fills the bucket: here at once, in other replicas within 6 s.
func TestReset(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := membucket.New()
		here, there := newLimiter(t, store, limited(still(10))), newLimiter(t, store, limited(still(10)))
		require.Equal(t, 10, calls(t, here, "acme", 20))
		require.Zero(t, calls(t, there, "acme", 5))
		require.NoError(t, here.Reset(t.Context(), "acme"))
		assert.Equal(t, 4, calls(t, here, "acme", 4))
		time.Sleep(6 * time.Second)
		assert.True(t, call(t, there, "acme", 1).Allowed)
	})
}

// PF1: no lock that others need is held while the store is asked.
func TestPF1_ASlowTenantHoldsNobodyUp(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newTap()
		s.onAcquire(func(_ context.Context, req lease.AcquireRequest, next acquireNext) (lease.Grant, error) {
			if req.Key.Tenant == "slow" {
				time.Sleep(time.Second)
			}
			return next()
		})
		cfg := limited(quota.PerSecond(10_000, 10_000))
		cfg.StoreTimeout = 2 * time.Second
		lim := newLimiter(t, s, cfg)
		p := start(t.Context(), lim, "slow", 1)
		begin := time.Now()
		for range 1000 {
			require.True(t, call(t, lim, "quick", 1).Allowed)
			_ = lim.Stats()
		}
		require.True(t, call(t, lim, "new", 1).Allowed)
		assert.Zero(t, time.Since(begin))
		assert.False(t, p.done.Load())
		time.Sleep(time.Second)
	})
}

// Who may choose a tenant for each call gets a new bucket each time, which no limiter can help. Memory stays bounded, it is seen in
// the counts, and what is said to users says so.
func TestMC6_MadeUpTenantsFillNoMemory(t *testing.T) {
	cfg := limited(quota.PerSecond(1, 10))
	cfg.MaxTenants, cfg.StoreTimeout = 100, 10*time.Second
	lim := newLimiter(t, membucket.New(), cfg)
	for range 10_000 {
		_, err := lim.Allow(t.Context(), rand.Text())
		require.NoError(t, err)
	}
	st := lim.Stats()
	assert.Equal(t, int64(100), st.Tenants)
	assert.Equal(t, int64(9_900), st.Evicted)
	text, err := os.ReadFile("README.md")
	require.NoError(t, err)
	assert.Contains(t, string(text), "**The tenant must be a verified identity**")
}
