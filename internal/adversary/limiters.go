package adversary

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/leaselimit/leaselimit"
	"github.com/leaselimit/leaselimit/internal/fleet"
	"github.com/leaselimit/leaselimit/lease"
	"github.com/leaselimit/leaselimit/quota"
)

// errLost is what a faulty store says of an answer that was lost on the way.
var errLost = errors.New("adversary: answer lost")

// Limiters plays the episode of a seed with real limiters over store, whose answers get lost, late and out of step. Calls
// come in bursts and after pauses, give up while they wait, and replicas are closed and replaced.
func Limiters(seed uint64, store lease.Store) Outcome {
	rng := rand.New(rand.NewPCG(seed, 11))
	pick := func(v ...float64) float64 { return v[rng.IntN(len(v))] }
	capacity := int64(pick(4, 10, 40, 100, 1000))
	limit := quota.Limit{Capacity: capacity}
	if r := pick(0, 0.5, 2, 10, 100, 1000); r > 0 {
		limit.Refill, limit.Per = int64(r*2), 2*time.Second
	}
	cfg := leaselimit.Config{
		Limits:       quota.Fixed(limit),
		MaxOvershoot: pick(0.1, 0.25, 0.5, 1),
		LeaseShare:   pick(0.25, 0.5, 1),
		LeaseTTL:     time.Duration(pick(200, 1000, 5000)) * time.Millisecond,
		LeaseSize:    int64(pick(0, 0, 1, 5, float64(capacity))),
		OnFailure:    leaselimit.FailClosed,
		Replicas:     int(pick(0, 1, 4)),
	}
	if rng.IntN(3) == 0 {
		cfg.Exact, cfg.MaxOvershoot = true, 0
	}
	p := &play{
		start: time.Now(), meter: fleet.NewMeter(limit), tenant: fmt.Sprint(seed),
		store: &faulty{Store: store, rng: rand.New(rand.NewPCG(seed, 12)), faults: rng.IntN(2) == 0},
	}
	n := int(pick(1, 2, 4, 8))
	for range n {
		p.replicas = append(p.replicas, p.replica(cfg))
	}
	tau := float64(cfg.LeaseTTL)
	for range 10 + rng.IntN(20) {
		time.Sleep(time.Duration([]float64{0, 1e6, 2e7, tau / 20, tau / 3, tau, 2 * tau}[rng.IntN(7)] * rng.Float64()))
		for range 1 + rng.IntN(3) {
			r := p.replicas[rng.IntN(n)]
			cost := 1 + rng.Int64N(max(1, capacity/10))
			for range int(pick(1, 1, 3, 20)) {
				p.call(r, cost, rng.IntN(10) == 0)
			}
		}
		if rng.IntN(20) == 0 {
			i := rng.IntN(n)
			p.close(p.replicas[i])
			p.replicas[i] = p.replica(cfg)
		}
		if rng.IntN(3) == 0 {
			time.Sleep(time.Duration(rng.Int64N(int64(20 * time.Millisecond))))
		}
	}
	for _, r := range p.replicas { // whatever is left, at one moment
		for range 2 * capacity / int64(n) {
			p.call(r, 1, false)
		}
	}
	p.calls.Wait()
	b := p.replicas[0].Bound(p.tenant)
	for _, r := range p.replicas {
		p.close(r)
	}
	o := Outcome{
		Overshoot: p.meter.Overshoot(), Slack: slack(limit), Budget: b.Tokens, Share: b.Share,
		Setting: fmt.Sprintf("seed %d: %v, budget %d, share %d, tau %v, %d replicas, size %d", seed, limit, b.Tokens, b.Share,
			cfg.LeaseTTL, n, cfg.LeaseSize),
	}
	o.Reachable = reachable(o, limit, cfg.LeaseTTL)
	return o
}

// Hoard is the plan that reaches the budget with real limiters, and nothing but calls: n of them fill leases of a share of the
// capacity, the bucket refills beside them for the time it takes, and then they and one more spend everything at once.
func Hoard(store lease.Store, limit quota.Limit, overshoot, share float64, n int) Outcome {
	cfg := leaselimit.Config{
		Limits: quota.Fixed(limit), MaxOvershoot: overshoot, Exact: overshoot == 0, LeaseShare: share,
		OnFailure: leaselimit.FailClosed, Replicas: 1, StoreTimeout: time.Second,
		LeaseSize: max(1, int64(share*float64(limit.Capacity))/int64(n)),
	}
	p := &play{start: time.Now(), meter: fleet.NewMeter(limit), tenant: "hoard", store: &faulty{Store: store}}
	for range n + 1 {
		p.replicas = append(p.replicas, p.replica(cfg))
	}
	for _, r := range p.replicas[:n] {
		p.call(r, 1, false)
		p.calls.Wait()
	}
	time.Sleep(time.Duration(float64(limit.Capacity)/limit.PerMillisecond()*1e6) + time.Millisecond)
	for range 2 { // again, for what they topped up meanwhile
		for _, r := range p.replicas[:n] {
			for range cfg.LeaseSize {
				p.call(r, 1, false)
			}
		}
		p.calls.Wait()
		for range limit.Capacity { // together, so that one draw takes what there is
			p.call(p.replicas[n], 1, false)
		}
		p.calls.Wait()
	}
	b := p.replicas[0].Bound(p.tenant)
	for _, r := range p.replicas {
		p.close(r)
	}
	o := Outcome{
		Overshoot: p.meter.Overshoot(), Slack: slack(limit), Budget: b.Tokens, Share: b.Share,
		Setting: fmt.Sprintf("hoard: %v, budget %d, share %d, %d hoarders", limit, b.Tokens, b.Share, n),
	}
	o.Reachable = reachable(o, limit, 30*time.Second)
	return o
}

type play struct {
	start    time.Time
	tenant   string
	store    *faulty
	replicas []*leaselimit.Limiter
	calls    sync.WaitGroup

	mu    sync.Mutex
	meter *fleet.Meter
}

func (p *play) replica(cfg leaselimit.Config) *leaselimit.Limiter {
	l, err := leaselimit.New(p.store, cfg)
	if err != nil {
		panic(err)
	}
	return l
}

// call makes a call, whose caller may give up at once if it has to wait.
func (p *play) call(l *leaselimit.Limiter, cost int64, hasty bool) {
	p.calls.Go(func() {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		if hasty {
			p.calls.Go(cancel)
		}
		d, err := l.AllowN(ctx, p.tenant, cost)
		p.mu.Lock()
		defer p.mu.Unlock()
		if err == nil && d.Allowed {
			p.meter.Admit(time.Since(p.start), cost)
		}
	})
}

func (p *play) close(l *leaselimit.Limiter) {
	if err := l.Close(context.Background()); err != nil {
		panic(err)
	}
}

// faulty loses answers, and has returns arrive late.
type faulty struct {
	lease.Store

	faults bool
	mu     sync.Mutex
	rng    *rand.Rand
}

func (f *faulty) chance(n int) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.faults && f.rng.IntN(n) == 0
}

func (f *faulty) Acquire(ctx context.Context, req lease.AcquireRequest) (lease.Grant, error) {
	g, err := f.Store.Acquire(ctx, req)
	if err == nil && f.chance(12) {
		return lease.Grant{}, &lease.StoreError{Op: "acquire", Reason: lease.ReasonTimeout, Err: errLost}
	}
	return g, err
}

func (f *faulty) Return(ctx context.Context, items []lease.Return) error {
	if f.chance(6) {
		return &lease.StoreError{Op: "return", Reason: lease.ReasonTimeout, Err: errLost}
	}
	if f.chance(4) {
		time.Sleep(20 * time.Millisecond)
	}
	return f.Store.Return(ctx, items)
}
