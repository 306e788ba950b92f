// Package fleet runs many limiters over one store under a generated load and measures what they do together. In a
// testing/synctest bubble it is a simulation of the real code on virtual time.
package fleet

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/leaselimit/leaselimit"
	"github.com/leaselimit/leaselimit/lease"
	"github.com/leaselimit/leaselimit/quota"
)

// Tenant is who makes the calls of a run.
const Tenant = "tenant"

// Config is one run.
type Config struct {
	Limit    quota.Limit
	Replicas int
	Load     float64   // offered tokens over all replicas, as a multiple of the refill
	Weights  []float64 // of the replicas' shares of the load; nil: equal
	Shifts   []Shift   // of the load between replicas, in the order of time
	Costs    []int64   // of calls, chosen evenly; nil: 1
	Duration time.Duration
	RTT      time.Duration     // of a call to the store
	Limiter  leaselimit.Config // but for Limits
	Refusals bool              // keep refused calls in Result.Log too
	Seed     uint64
	Store    lease.Store
}

// Shift says that from At on the load has other Weights. A replica comes when it gets its first load; one whose weight becomes 0
// goes, which is a Close: that is final.
type Shift struct {
	At      time.Duration
	Weights []float64
}

// Result is what came of a run. Tokens and calls are over all replicas.
type Result struct {
	Offered, Calls         int64 // tokens, calls
	Admitted, AdmittedCall int64
	Ideal                  int64 // tokens that one central bucket would have admitted of the same arrivals
	Draws, Returns, Waited int64
	// Overshoot is by when the calls returned. Proved leaves out what calls in flight can make of it: see [Proved].
	Overshoot, Proved  float64
	Log                []Call // the calls allowed, and those refused if Config.Refusals; in the order of their ends
	ByReplica, IdealBy []int64
	Stats              []leaselimit.Stats
}

// String gives the ratios that matter.
func (r Result) String() string {
	return fmt.Sprintf("calls %d, admitted/ideal %.3f, store calls/call %.4f (draws %.4f), waited/admitted %.3f, overshoot %.1f",
		r.Calls, r.Share(), r.StoreCalls(), float64(r.Draws)/float64(r.Calls), r.Waiting(), r.Overshoot)
}

// Share is admitted over ideal.
func (r Result) Share() float64 { return float64(r.Admitted) / float64(max(1, r.Ideal)) }

// StoreCalls is calls to the store for each call of the limiter.
func (r Result) StoreCalls() float64 { return float64(r.Draws+r.Returns) / float64(max(1, r.Calls)) }

// Waiting is the share of admitted calls that waited for the store.
func (r Result) Waiting() float64 { return float64(r.Waited) / float64(max(1, r.AdmittedCall)) }

type arrival struct {
	at      time.Duration
	replica int
	cost    int64
}

// arrivals makes up the load: Poisson in time, spread over the replicas by weight.
func (c *Config) arrivals() []arrival {
	rng := rand.New(rand.NewPCG(c.Seed, 1))
	costs, weights := c.Costs, c.Weights
	if costs == nil {
		costs = []int64{1}
	}
	if weights == nil {
		weights = slices.Repeat([]float64{1}, c.Replicas)
	}
	mean, total := 0.0, 0.0
	for _, k := range costs {
		mean += float64(k) / float64(len(costs))
	}
	sum := func() {
		total = 0
		for _, w := range weights {
			total += w
		}
	}
	sum()
	shifts := c.Shifts
	perCall := mean / (c.Limit.PerMillisecond() / 1e6 * c.Load) // ns
	var all []arrival
	for at := rng.ExpFloat64() * perCall; at < float64(c.Duration); at += rng.ExpFloat64() * perCall {
		for len(shifts) > 0 && at >= float64(shifts[0].At) {
			weights, shifts = shifts[0].Weights, shifts[1:]
			sum()
		}
		pick, i := rng.Float64()*total, 0
		for pick -= weights[i]; pick > 0 && i < len(weights)-1; pick -= weights[i] {
			i++
		}
		all = append(all, arrival{time.Duration(at), i, costs[rng.IntN(len(costs))]})
	}
	return all
}

// Run runs c.
func Run(c Config) (Result, error) {
	r := Result{ByReplica: make([]int64, c.Replicas), IdealBy: make([]int64, c.Replicas)}
	store := slow{c.Store, c.RTT}
	c.Limiter.Limits = quota.Fixed(c.Limit)
	lims := make([]*leaselimit.Limiter, c.Replicas)
	for i := range lims {
		lim, err := leaselimit.New(store, c.Limiter)
		if err != nil {
			return r, err
		}
		lims[i] = lim
	}
	var (
		mu     sync.Mutex
		failed error
		calls  sync.WaitGroup
	)
	start, meter, ideal := time.Now(), NewMeter(c.Limit), NewBucket(c.Limit)
	shifts, asked := c.Shifts, make([]bool, c.Replicas)
	for _, a := range c.arrivals() {
		if wait := a.at - time.Since(start); wait > 0 {
			time.Sleep(wait)
		}
		for len(shifts) > 0 && a.at >= shifts[0].At {
			for i, w := range shifts[0].Weights {
				if w == 0 && asked[i] {
					calls.Go(func() { _ = lims[i].Close(context.Background()) })
				}
			}
			shifts = shifts[1:]
		}
		asked[a.replica] = true
		r.Calls++
		r.Offered += a.cost
		if ideal.Take(a.at, a.cost) {
			r.Ideal += a.cost
			r.IdealBy[a.replica] += a.cost
		}
		calls.Go(func() {
			begin := time.Since(start)
			d, err := lims[a.replica].AllowN(context.Background(), Tenant, a.cost)
			mu.Lock()
			defer mu.Unlock()
			if allowed := err == nil && d.Allowed; allowed || c.Refusals {
				r.Log = append(r.Log, Call{begin, time.Since(start), a.cost, allowed})
			}
			switch {
			case err != nil:
				failed = err
			case d.Degraded():
				failed = fmt.Errorf("degraded: %v", d)
			case d.Allowed:
				r.Admitted += a.cost
				r.AdmittedCall++
				r.ByReplica[a.replica] += a.cost
				meter.Admit(time.Since(start), a.cost)
				if d.Source == leaselimit.SourceStore {
					r.Waited++
				}
			}
		})
	}
	calls.Wait()
	for _, l := range lims {
		s := l.Stats()
		r.Stats = append(r.Stats, s)
		r.Draws += s.Draws
		r.Returns += s.Returns
		if err := l.Close(context.Background()); err != nil {
			return r, err
		}
	}
	r.Overshoot, r.Proved = meter.Overshoot(), Proved(r.Log, c.Limit)
	return r, failed
}

// slow is a store with a round trip.
type slow struct {
	lease.Store

	rtt time.Duration
}

func (s slow) Acquire(ctx context.Context, req lease.AcquireRequest) (lease.Grant, error) {
	time.Sleep(s.rtt / 2)
	g, err := s.Store.Acquire(ctx, req)
	time.Sleep(s.rtt - s.rtt/2)
	return g, err
}

func (s slow) Return(ctx context.Context, items []lease.Return) error {
	time.Sleep(s.rtt / 2)
	err := s.Store.Return(ctx, items)
	time.Sleep(s.rtt - s.rtt/2)
	return err
}
