package leaselimit_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
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

func patient(c *leaselimit.Config) {
	c.StoreTimeout, c.OnFailure = 10*time.Second, leaselimit.FailClosed
}

// Four replicas, two limits, all at once: what passes is the smaller limit, to the token, and the larger one is charged as much.
func TestAllOrNothingOverReplicas(t *testing.T) {
	for name, store := range map[string]func() lease.Store{
		"memory": func() lease.Store { return membucket.New() },
		"redis": func() lease.Store {
			return redisbucket.New(redistest.Client(t), redisbucket.WithPrefix(redistest.Prefix(t)))
		},
		"cluster": func() lease.Store { return redisbucket.New(redistest.StartCluster(t, 3, 0).Client(t)) },
	} {
		t.Run(name, func(t *testing.T) {
			store := store()
			limits := []quota.Limit{still(400), still(150)}
			var replicas [][]*leaselimit.Limiter
			for range 4 {
				replicas = append(replicas, classes(t, store, patient, limits...))
			}
			for _, tenant := range []string{"acme", "{x}:y", "ü"} {
				var passed atomic.Int64
				var wg sync.WaitGroup
				for i := range 16 {
					wg.Go(func() {
						lims := replicas[i%4]
						for range 25 {
							d, err := leaselimit.AllowAll(t.Context(), tenant, charge(lims, 2, 1)...)
							if assert.NoError(t, err) && d.Allowed {
								passed.Add(1)
							}
							assert.False(t, d.Degraded())
						}
					})
				}
				wg.Wait()
				// What replicas still hold is there for whoever asks them.
				for _, lims := range replicas {
					for range 150 {
						d, err := leaselimit.AllowAll(t.Context(), tenant, charge(lims, 2, 1)...)
						require.NoError(t, err)
						if !d.Allowed {
							break
						}
						passed.Add(1)
					}
				}
				assert.LessOrEqual(t, passed.Load(), int64(150))
				assert.GreaterOrEqual(t, passed.Load(), int64(110), "a quarter may be out with others")
			}
			// With every lease returned, what is gone is what passed: nothing is charged by a refusal.
			for _, lims := range replicas {
				for _, l := range lims {
					require.NoError(t, l.Close(context.Background()))
				}
			}
			last := classes(t, store, patient, limits...)
			a, err := last[0].Peek(t.Context(), "acme")
			require.NoError(t, err)
			b, err := last[1].Peek(t.Context(), "acme")
			require.NoError(t, err)
			assert.Equal(t, 2*(150-b.Remaining), 400-a.Remaining)
		})
	}
}

// AT12: what is handed to a call and not used comes back, to the token, whatever way it takes, and nothing comes back twice.
func TestAT12_WhatIsHandedOutAndNotUsedComesBack(t *testing.T) {
	for name, store := range map[string]func() lease.Store{
		"memory": func() lease.Store { return membucket.New() },
		"redis": func() lease.Store {
			return redisbucket.New(redistest.Client(t), redisbucket.WithPrefix(redistest.Prefix(t)))
		},
	} {
		t.Run(name, func(t *testing.T) {
			store := store()
			var replicas []*leaselimit.Limiter
			for i := range 3 {
				replicas = append(replicas, classes(t, store, func(c *leaselimit.Config) {
					patient(c)
					c.LeaseSize = int64(i * 20)
				}, still(5000))[0])
			}
			var used atomic.Int64
			var wg sync.WaitGroup
			for i := range 12 {
				wg.Go(func() {
					rng := rand.New(rand.NewPCG(1, uint64(i)))
					for range 60 {
						e, err := replicas[i%3].Estimate(t.Context(), "acme", 1+rng.Int64N(20))
						if !assert.NoError(t, err) || !e.Allowed {
							continue
						}
						actual := rng.Int64N(16)
						if assert.NoError(t, e.Settle(t.Context(), actual)) {
							used.Add(actual)
						}
					}
				})
			}
			wg.Wait()
			for _, l := range replicas {
				s := l.Stats()
				adds(t, s, 4*60)
				assert.Zero(t, s.Overshoot)
				require.NoError(t, l.Close(context.Background()))
			}
			last := classes(t, store, patient, still(5000))[0]
			assert.Equal(t, 5000-used.Load(), left(t, last), fmt.Sprint(used.Load()))
		})
	}
}

// What is settled above the estimate is debt in Redis as in memory, and every replica waits for it to be paid back.
func TestSettleIntoDebtOnRedis(t *testing.T) {
	store := redisbucket.New(redistest.Client(t), redisbucket.WithPrefix(redistest.Prefix(t)))
	limit := quota.Limit{Capacity: 50, Refill: 1, Per: time.Hour}
	one, two := classes(t, store, patient, limit)[0], classes(t, store, patient, limit)[0]
	e, err := one.Estimate(t.Context(), "acme", 10)
	require.NoError(t, err)
	require.True(t, e.Allowed)
	require.NoError(t, e.Settle(t.Context(), 1_000_000))
	d, err := two.Allow(t.Context(), "acme")
	require.NoError(t, err)
	assert.False(t, d.Allowed)
	assert.InDelta(t, 51*time.Hour, d.RetryAfter, float64(time.Minute), "one capacity, and a token")
	d, err = leaselimit.AllowAll(t.Context(), "acme", charge([]*leaselimit.Limiter{two}, 2)...)
	require.NoError(t, err)
	assert.InDelta(t, 52*time.Hour, d.RetryAfter, float64(time.Minute))
}
