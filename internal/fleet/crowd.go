package fleet

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leaselimit/leaselimit"
	"github.com/leaselimit/leaselimit/lease"
	"github.com/leaselimit/leaselimit/quota"
)

// Crowd is a run of many tenants on many replicas. How popular tenants are follows Zipf's law.
type Crowd struct {
	Replicas, Tenants int
	Spread            int     // replicas that a tenant's calls go to, evenly; 0: all
	Zipf              float64 // its exponent, above 1: tenant k has a part of the calls that is as (k+1)^-Zipf
	Rate              float64 // calls a second, over everything; of cost 1
	Limit             func(tenant int) quota.Limit
	Duration          time.Duration
	RTT               time.Duration
	Limiter           leaselimit.Config // but for Limits
	Seed              uint64
	Store             lease.Store
}

// CrowdResult is what came of a Crowd.
type CrowdResult struct {
	Calls, Admitted, Waited int64 // Waited of the admitted ones
	Draws, Returned         int64 // steps in the store: a pipeline of returns is as many steps as it has returns
	PeakSecond              int64 // steps in the worst second
	Tracked                 int64 // pairs of a replica and a tenant in memory at the end
	Buckets                 int   // tenants that were called
	ByTenant                []TenantResult
}

// TenantResult is one tenant's part, in the order of Zipf's law.
type TenantResult struct{ Calls, Admitted, Steps int64 }

// Steps is steps in the store for each call.
func (r CrowdResult) Steps() float64 {
	return float64(r.Draws+r.Returned) / float64(max(1, r.Calls))
}

// Busiest is the tenant with the most steps.
func (r CrowdResult) Busiest() TenantResult {
	return slices.MaxFunc(r.ByTenant, func(a, b TenantResult) int { return cmp.Compare(a.Steps, b.Steps) })
}

// String gives what matters.
func (r CrowdResult) String() string {
	return fmt.Sprintf("calls %d, admitted %d, waited/admitted %.3f, steps/call %.3f (draws %d, returned %d, worst second %d), "+
		"buckets %d, tracked %d, busiest tenant %+v", r.Calls, r.Admitted, float64(r.Waited)/float64(max(1, r.Admitted)), r.Steps(),
		r.Draws, r.Returned, r.PeakSecond, r.Buckets, r.Tracked, r.Busiest())
}

// Run runs c.
func (c Crowd) Run() (r CrowdResult, err error) {
	names, number := make([]string, c.Tenants), make(map[string]int, c.Tenants)
	for i := range names {
		names[i] = fmt.Sprintf("tenant-%d", i)
		number[names[i]] = i
	}
	start := time.Now()
	count := &counted{
		Store: slow{c.Store, c.RTT}, start: start, number: number, steps: make([]atomic.Int64, c.Tenants),
		seconds: make([]atomic.Int64, int(c.Duration/time.Second)+2),
	}
	c.Limiter.Limits = quota.SourceFunc(func(_ context.Context, tenant string) (quota.Limit, error) {
		return c.Limit(number[tenant]), nil
	})
	lims := make([]*leaselimit.Limiter, c.Replicas)
	for i := range lims {
		if lims[i], err = leaselimit.New(count, c.Limiter); err != nil {
			return r, err
		}
	}
	called, admitted := make([]int64, c.Tenants), make([]atomic.Int64, c.Tenants)
	var (
		waited atomic.Int64
		failed atomic.Pointer[error]
		calls  sync.WaitGroup
	)
	rng := rand.New(rand.NewPCG(c.Seed, 2))
	zipf := rand.NewZipf(rng, c.Zipf, 1, uint64(c.Tenants-1))
	spread := c.Spread
	if spread == 0 {
		spread = c.Replicas
	}
	for at := 0.0; ; {
		at += rng.ExpFloat64() / c.Rate
		due := time.Duration(at * float64(time.Second))
		if due >= c.Duration || failed.Load() != nil {
			break
		}
		if wait := due - time.Since(start); wait > 0 {
			time.Sleep(wait)
		}
		k := int(zipf.Uint64())
		lim := lims[(k*spread+rng.IntN(spread))%c.Replicas]
		called[k]++
		calls.Go(func() {
			d, err := lim.Allow(context.Background(), names[k])
			switch {
			case err != nil:
				failed.CompareAndSwap(nil, &err)
			case d.Degraded():
				err = fmt.Errorf("degraded: %v", d)
				failed.CompareAndSwap(nil, &err)
			case d.Allowed:
				admitted[k].Add(1)
				if d.Source == leaselimit.SourceStore {
					waited.Add(1)
				}
			}
		})
	}
	calls.Wait()
	if e := failed.Load(); e != nil {
		err = *e
	}
	// What Close returns is no part of the run.
	r.Waited, r.Draws, r.Returned = waited.Load(), count.draws.Load(), count.returned.Load()
	for i := range called {
		t := TenantResult{Calls: called[i], Admitted: admitted[i].Load(), Steps: count.steps[i].Load()}
		r.ByTenant = append(r.ByTenant, t)
		r.Calls += t.Calls
		r.Admitted += t.Admitted
		if t.Calls > 0 {
			r.Buckets++
		}
	}
	for i := range count.seconds {
		r.PeakSecond = max(r.PeakSecond, count.seconds[i].Load())
	}
	for _, l := range lims {
		r.Tracked += l.Stats().Tenants
		if e := l.Close(context.Background()); err == nil {
			err = e
		}
	}
	return r, err
}

// counted is a store that counts its steps, by tenant and by second.
type counted struct {
	lease.Store

	start           time.Time
	number          map[string]int
	draws, returned atomic.Int64
	steps, seconds  []atomic.Int64
}

func (c *counted) step(key lease.Key, of *atomic.Int64) {
	of.Add(1)
	c.steps[c.number[key.Tenant]].Add(1)
	c.seconds[min(int(time.Since(c.start)/time.Second), len(c.seconds)-1)].Add(1)
}

func (c *counted) Acquire(ctx context.Context, req lease.AcquireRequest) (lease.Grant, error) {
	c.step(req.Key, &c.draws)
	return c.Store.Acquire(ctx, req)
}

func (c *counted) Return(ctx context.Context, items []lease.Return) error {
	for i := range items {
		c.step(items[i].Key, &c.returned)
	}
	return c.Store.Return(ctx, items)
}
