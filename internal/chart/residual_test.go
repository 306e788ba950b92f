package chart_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leaselimit/leaselimit"
	"github.com/leaselimit/leaselimit/internal/fleet"
	"github.com/leaselimit/leaselimit/lease"
	"github.com/leaselimit/leaselimit/membucket"
	"github.com/leaselimit/leaselimit/quota"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// faulty is a store that can lose its state, and a proxy before it that can have returns executed twice.
type faulty struct {
	atomic.Pointer[membucket.Store]

	twice atomic.Bool
}

func (f *faulty) Acquire(ctx context.Context, r lease.AcquireRequest) (lease.Grant, error) {
	return f.Load().Acquire(ctx, r)
}

func (f *faulty) Return(ctx context.Context, items []lease.Return) error {
	if f.twice.Load() {
		_ = f.Load().Return(ctx, items)
	}
	return f.Load().Return(ctx, items)
}

func (f *faulty) Take(ctx context.Context, c []lease.Charge) (lease.TakeReply, error) {
	return f.Load().Take(ctx, c)
}

func (f *faulty) Peek(ctx context.Context, k lease.Key, t lease.Terms) (lease.State, error) {
	return f.Load().Peek(ctx, k, t)
}

func (f *faulty) Reset(ctx context.Context, k lease.Key) error { return f.Load().Reset(ctx, k) }

type rig struct {
	store *faulty
	lims  []*leaselimit.Limiter
	allow func(i int) bool
}

// spend makes calls of replica i until one is refused.
func (r *rig) spend(i int) {
	for r.allow(i) {
		continue
	}
}

// TestResiduals measures what docs/accuracy.md says stands beside the bound, at the worst moment for it: leases are out, the
// bucket is full beside them. 1000 at 1000/s with the defaults: a budget of 100 and a share of 250, on five replicas with a
// lease of 50 each.
func TestResiduals(t *testing.T) {
	limit := quota.PerSecond(1000, 1000)
	for _, tt := range []struct {
		name string
		do   func(t *testing.T, r *rig)
		most float64 // beyond the bound
	}{
		{"nothing", func(_ *testing.T, r *rig) {}, 0},
		{"lost state", func(_ *testing.T, r *rig) {
			r.spend(0)
			r.store.Store(membucket.New())
		}, 1000},
		{"a return executed twice", func(t *testing.T, r *rig) {
			for range 500 { // so that the bucket has room for it, and no replica is pressed
				r.allow(0)
			}
			r.store.twice.Store(true)
			require.NoError(t, r.lims[4].Close(context.Background()))
		}, 50},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := &rig{store: &faulty{}}
				r.store.Store(membucket.New())
				start, meter := time.Now(), fleet.NewMeter(limit)
				for range 5 {
					l, err := leaselimit.New(r.store, leaselimit.Config{
						Limits: quota.Fixed(limit), LeaseSize: 50, MaxHold: 50, Replicas: 1,
					})
					require.NoError(t, err)
					r.lims = append(r.lims, l)
				}
				r.allow = func(i int) bool {
					d, err := r.lims[i].Allow(context.Background(), "tenant")
					if err == nil && d.Allowed {
						meter.Admit(time.Since(start), 1)
						return true
					}
					return false
				}
				for i := range r.lims {
					r.allow(i)
				}
				time.Sleep(1100 * time.Millisecond)
				tt.do(t, r)
				for range 2 {
					time.Sleep(8 * time.Millisecond) // until a refused replica asks again
					for i := range r.lims {
						r.spend(i)
					}
				}
				beyond := meter.Overshoot() - 100
				t.Logf("%v tokens beyond the bound", beyond)
				assert.InDelta(t, tt.most, beyond, 10)
				for _, l := range r.lims {
					_ = l.Close(context.Background())
				}
			})
		})
	}
}
