package leaselimit_test

import (
	"context"
	"fmt"
	"math/rand/v2"
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
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Field cases of group 3: atomicity and concurrency.

func TestAT1_EightReplicasAdmitExactlyTheCapacity(t *testing.T) {
	stores := map[string]func(t *testing.T) lease.Store{
		"memory": func(*testing.T) lease.Store { return membucket.New() },
		"redis": func(t *testing.T) lease.Store {
			return redisbucket.New(redistest.Client(t), redisbucket.WithPrefix(redistest.Prefix(t)))
		},
	}
	for name, newStore := range stores {
		for _, exact := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, exact %v", name, exact), func(t *testing.T) {
				t.Parallel()
				store := newStore(t)
				cfg := limited(still(100))
				cfg.Exact, cfg.StoreTimeout, cfg.OnFailure = exact, 10*time.Second, leaselimit.FailClosed
				var lims []*leaselimit.Limiter
				for range 8 {
					lims = append(lims, newLimiter(t, store, cfg))
				}
				var admitted atomic.Int64
				var wg sync.WaitGroup
				for i := range 200 {
					wg.Go(func() {
						for range 50 {
							d, err := lims[i%8].Allow(context.Background(), "acme")
							if !assert.NoError(t, err) {
								return
							}
							assert.False(t, d.Degraded())
							if d.Allowed {
								admitted.Add(1)
							}
						}
					})
				}
				wg.Wait()
				assert.LessOrEqual(t, admitted.Load(), int64(100))
				assert.Positive(t, admitted.Load())

				// What replicas still hold and nobody asked them for goes back; not a token more or less than 100.
				for _, lim := range lims {
					require.NoError(t, lim.Close(context.Background()))
				}
				last := newLimiter(t, store, cfg)
				for range 200 {
					d, err := last.Allow(context.Background(), "acme")
					require.NoError(t, err)
					if d.Allowed {
						admitted.Add(1)
					}
				}
				assert.Equal(t, int64(100), admitted.Load())
			})
		}
	}
}

// Every token that left the bucket was admitted, returned, is held, or was lost with a lease that expired.
func TestAT5_NoTokenIsCountedTwiceOrLost(t *testing.T) {
	for seed := range uint64(5) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				rnd := rand.New(rand.NewPCG(seed, 5))
				shared := membucket.New()
				cfg := limited(quota.PerSecond(50, 5000))
				cfg.LeaseTTL, cfg.OnFailure = 5*time.Second, leaselimit.FailClosed

				type replica struct {
					*leaselimit.Limiter
					*tap

					admitted int64
				}
				var replicas []*replica
				for range 8 {
					s := newTapOn(shared)
					faults := rand.New(rand.NewPCG(rnd.Uint64(), 1))
					var mu sync.Mutex
					chance := func() (float64, time.Duration) {
						mu.Lock()
						defer mu.Unlock()
						return faults.Float64(), time.Duration(faults.IntN(8000)) * time.Millisecond
					}
					s.onAcquire(func(_ context.Context, _ lease.AcquireRequest, next acquireNext) (lease.Grant, error) {
						x, d := chance()
						switch {
						case x < 0.1: // the answer is lost
							_, _ = next()
							return lease.Grant{}, &lease.StoreError{Op: "acquire", Reason: lease.ReasonRefused, Err: errDown}
						case x < 0.2:
							return down(nil, lease.AcquireRequest{}, nil)
						case x < 0.25:
							return late(d)(nil, lease.AcquireRequest{}, next)
						}
						return late(d/1000)(nil, lease.AcquireRequest{}, next)
					})
					s.onReturn(func(_ context.Context, next func() error) error {
						if x, _ := chance(); x < 0.2 {
							return &lease.StoreError{Op: "return", Reason: lease.ReasonRefused, Err: errDown}
						}
						return next()
					})
					replicas = append(replicas, &replica{Limiter: newLimiter(t, s, cfg), tap: s})
				}
				var wg sync.WaitGroup
				for _, r := range replicas {
					pace := rand.New(rand.NewPCG(rnd.Uint64(), 2))
					wg.Go(func() {
						for r.now() < time.Minute {
							for range 1 + pace.IntN(20) {
								ctx, cancel := context.WithTimeout(context.Background(), time.Duration(pace.IntN(20))*time.Millisecond+1)
								cost := int64(1 + pace.IntN(5))
								if d, err := r.AllowN(ctx, "acme", cost); err == nil && d.Allowed {
									r.admitted += cost
								}
								cancel()
							}
							time.Sleep(time.Duration(pace.IntN(400)) * time.Millisecond)
						}
					})
				}
				wg.Wait()
				check := func() {
					for i, r := range replicas {
						s, k := r.Stats(), r.tokens()
						drawn, back := k.surplus+k.waiters, k.unspent+k.waitersUnused
						assert.Equal(t, r.admitted, drawn-back-s.TokensHeld-s.TokensStranded, "replica %d: %+v %+v", i, s, k)
						assert.Equal(t, s.TokensGranted, s.TokensSpent+s.TokensReturned+s.TokensLost+s.TokensStranded+s.TokensHeld)
						assert.Equal(t, k.surplus, s.TokensGranted)
						assert.Equal(t, k.waiters, s.TokensWaiters)
						assert.Equal(t, k.unspent, s.TokensReturned+s.TokensLost)
					}
				}
				time.Sleep(20 * time.Second) // what is under way ends, and what is held is returned
				synctest.Wait()
				check()
				for _, r := range replicas {
					assert.Positive(t, r.admitted)
					require.NoError(t, r.Close(context.Background()))
				}
				check()
			})
		})
	}
}

func TestAT7_MergedCallersGetNoMoreThanTheirDrawGrants(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newTap()
		s.onAcquire(late(10 * time.Millisecond))
		lim := newLimiter(t, s, limited(still(11)))
		start(t.Context(), lim, "acme", 1) // its draw is under way
		var all []*pending
		for range 50 {
			all = append(all, start(t.Context(), lim, "acme", 1))
		}
		time.Sleep(25 * time.Millisecond)
		synctest.Wait()
		admitted := 0
		for _, p := range all {
			require.True(t, p.done.Load())
			require.NoError(t, p.err)
			if p.Allowed {
				admitted++
			}
		}
		assert.Equal(t, 10, admitted)
		draws := s.draws()
		require.Len(t, draws, 2, "one draw for all of them")
		assert.Equal(t, int64(50), draws[1].req.Need)
		assert.Equal(t, int64(10), draws[1].grant.Waiters)
	})
}

func TestAT8_NobodyPassesByHavingWaited(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newTap()
		s.onAcquire(late(10 * time.Millisecond))
		limit := still(100)
		lim := newLimiter(t, s, limited(limit))
		start(t.Context(), lim, "acme", 1)
		drain(t, s, "acme", limit, 3)
		var all []*pending
		for range 10 {
			all = append(all, start(t.Context(), lim, "acme", 1))
		}
		time.Sleep(25 * time.Millisecond)
		synctest.Wait()
		admitted := 0
		for _, p := range all {
			if p.Allowed {
				admitted++
				assert.Equal(t, leaselimit.SourceStore, p.Source)
			} else {
				assert.Equal(t, leaselimit.Never, p.RetryAfter, "no refill")
			}
		}
		assert.Equal(t, 3, admitted)
		assert.False(t, call(t, lim, "acme", 1).Allowed)
	})
}

func TestAT9_ManyTenantsManyGoroutinesAndEviction(t *testing.T) {
	const tenants, goroutines, each, capacity = 1000, 64, 1500, 30
	cfg := limited(still(capacity))
	cfg.MaxTenants, cfg.StoreTimeout = 100, 10*time.Second
	lim := newLimiter(t, membucket.New(), cfg)
	var admitted [tenants]atomic.Int64
	var handles [tenants]*leaselimit.Tenant
	for i := range handles {
		handles[i] = lim.Tenant(fmt.Sprint("tenant-", i))
	}
	var wg sync.WaitGroup
	for g := range goroutines {
		rnd := rand.New(rand.NewPCG(uint64(g), 9))
		wg.Go(func() {
			for j := range each {
				// Some are hot, most are not.
				i := int(float64(tenants) * rnd.Float64() * rnd.Float64() * rnd.Float64())
				var d leaselimit.Decision
				var err error
				if j%2 == 0 {
					d, err = lim.Allow(context.Background(), fmt.Sprint("tenant-", i))
				} else {
					d, err = handles[i].Allow(context.Background())
				}
				if !assert.NoError(t, err) {
					return
				}
				if d.Allowed {
					admitted[i].Add(1)
				}
				if j%100 == 0 {
					_ = lim.Stats()
				}
			}
		})
	}
	wg.Wait()
	for i := range admitted {
		assert.LessOrEqual(t, admitted[i].Load(), int64(capacity))
	}
	assert.Equal(t, int64(capacity), admitted[0].Load(), "a hot one got all")
	s := lim.Stats()
	assert.LessOrEqual(t, s.Tenants, int64(100))
	assert.Greater(t, s.Evicted, int64(1000))
	assert.Zero(t, s.Errors)
}
