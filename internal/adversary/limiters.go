package adversary

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/leaselimit/leaselimit"
	"github.com/leaselimit/leaselimit/internal/fleet"
	"github.com/leaselimit/leaselimit/lease"
	"github.com/leaselimit/leaselimit/quota"
)

// errLost is what a faulty store says of an answer that was lost on the way.
var errLost = errors.New("adversary: answer lost")

// Limiters plays the episode of a seed with real limiters over store, whose questions get lost, and whose answers lost, late
// and out of step. Calls come in bursts and after pauses, alone, together with another class or as estimates that are settled;
// they give up while they wait, tenants make room for others, and replicas are closed and replaced.
func Limiters(seed uint64, store lease.Store) Outcome {
	rng := rand.New(rand.NewPCG(seed, 11))
	pick := func(v ...float64) float64 { return v[rng.IntN(len(v))] }
	capacity := int64(pick(4, 10, 40, 100))
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
		MaxHold:      int64(pick(0, 0, float64(max(5, capacity)))),
		MaxTenants:   int(pick(1, 10)),
		OnFailure:    leaselimit.FailClosed,
		Replicas:     int(pick(0, 1, 4)),
	}
	if rng.IntN(3) == 0 {
		cfg.Exact, cfg.MaxOvershoot = true, 0
	}
	p := &play{
		start: time.Now(), limit: limit, tenant: fmt.Sprint(seed),
		store: &faulty{Store: store, rng: rand.New(rand.NewPCG(seed, 12)), faults: rng.IntN(2) == 0, ttl: cfg.LeaseTTL},
	}
	n := int(pick(1, 2, 4, 8))
	for range n {
		p.replicas = append(p.replicas, p.replica(cfg))
	}
	tau := float64(cfg.LeaseTTL)
	for range 50 + rng.IntN(100) {
		time.Sleep(time.Duration([]float64{0, 1e6, 2e7, tau / 20, tau / 3, tau, 2 * tau}[rng.IntN(7)] * rng.Float64()))
		for range 1 + rng.IntN(3) {
			r := p.replicas[rng.IntN(n)]
			cost := 1 + rng.Int64N(max(1, capacity/10))
			for range int(pick(1, 1, 3, 20)) {
				p.call(r, move{
					cost: cost, hasty: rng.IntN(10) == 0, leaves: time.Duration(pick(0, 50e6*rng.Float64())),
					kind: kind(rng.IntN(4)), actual: rng.Int64N(2*cost + 1),
					delay: time.Duration(rng.Float64() * rng.Float64() * 2 * tau),
				})
			}
		}
		if rng.IntN(8) == 0 { // makes room for another tenant
			r := p.replicas[rng.IntN(n)]
			p.calls.Go(func() { _, _ = r.Allow(context.Background(), "another") })
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
	for range 2 { // whatever is left, at one moment, and what comes back from estimates after it
		for _, r := range p.replicas {
			for range 2 * capacity / int64(n) {
				p.call(r, move{cost: 1})
			}
		}
		p.calls.Wait()
	}
	b := p.replicas[0].Bound(p.tenant)
	for _, r := range p.replicas {
		p.close(r)
	}
	o := Outcome{
		Overshoot: p.overshoot(), Slack: slack(limit), Budget: b.Tokens, Share: b.Share,
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
	p := &play{start: time.Now(), limit: limit, tenant: "hoard", store: &faulty{Store: store}}
	for range n + 1 {
		p.replicas = append(p.replicas, p.replica(cfg))
	}
	for _, r := range p.replicas[:n] {
		p.call(r, move{cost: 1})
		p.calls.Wait()
	}
	time.Sleep(time.Duration(float64(limit.Capacity)/limit.PerMillisecond()*1e6) + time.Millisecond)
	for range 2 { // again, for what they topped up meanwhile
		for _, r := range p.replicas[:n] {
			for range cfg.LeaseSize {
				p.call(r, move{cost: 1})
			}
		}
		p.calls.Wait()
		for range limit.Capacity { // together, so that one draw takes what there is
			p.call(p.replicas[n], move{cost: 1})
		}
		p.calls.Wait()
	}
	b := p.replicas[0].Bound(p.tenant)
	for _, r := range p.replicas {
		p.close(r)
	}
	o := Outcome{
		Overshoot: p.overshoot(), Slack: slack(limit), Budget: b.Tokens, Share: b.Share,
		Setting: fmt.Sprintf("hoard: %v, budget %d, share %d, %d hoarders", limit, b.Tokens, b.Share, n),
	}
	o.Reachable = reachable(o, limit, 30*time.Second)
	return o
}

type play struct {
	start    time.Time
	limit    quota.Limit
	tenant   string
	store    *faulty
	replicas []player
	calls    sync.WaitGroup

	mu       sync.Mutex
	admitted []admission
}

// admission is what a call did cost, counted at the time that it was let pass.
type admission struct {
	at   time.Duration
	cost int64
}

// player is a limiter, and one of another class of the same tenants that now and then has a say, too.
type player struct {
	*leaselimit.Limiter

	other *leaselimit.Limiter
}

func (p *play) replica(cfg leaselimit.Config) player {
	l, err := leaselimit.New(p.store, cfg)
	if err != nil {
		panic(err)
	}
	cfg.Class, cfg.LeaseSize, cfg.Limits = "other", 0, quota.Fixed(quota.PerSecond(20, 20))
	other, err := leaselimit.New(p.store, cfg)
	if err != nil {
		panic(err)
	}
	return player{l, other}
}

// move is a call: what it costs, and in which way it asks.
type move struct {
	cost   int64
	hasty  bool          // gives up
	leaves time.Duration // and when, if it waits by then
	kind   kind
	actual int64         // of an estimate
	delay  time.Duration // and when it is settled
}

type kind int

const (
	plain    kind = iota
	together      // AllowAll, with the other class
	settled       // Estimate and Settle
)

// call makes a call.
func (p *play) call(r player, m move) {
	p.calls.Go(func() {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		if m.hasty {
			p.calls.Go(func() {
				time.Sleep(m.leaves)
				cancel()
			})
		}
		var d leaselimit.Decision
		var e leaselimit.Estimate
		var err error
		switch m.kind {
		case together:
			d, err = leaselimit.AllowAll(ctx, p.tenant, leaselimit.Charge{Limiter: r.Limiter, Cost: m.cost}, leaselimit.Charge{Limiter: r.other, Cost: 1})
		case settled:
			e, err = r.Estimate(ctx, p.tenant, m.cost)
			d = e.Decision
		default:
			d, err = r.AllowN(ctx, p.tenant, m.cost)
		}
		if err != nil || !d.Allowed {
			return
		}
		at := time.Since(p.start)
		if m.kind == settled {
			time.Sleep(m.delay)
			if e.Settle(ctx, m.actual) == nil {
				m.cost = min(m.cost, m.actual) // more is debt, spent after the fact
			}
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		p.admitted = append(p.admitted, admission{at, m.cost})
	})
}

// overshoot is by how much more than the limit was admitted in some window.
func (p *play) overshoot() float64 {
	slices.SortStableFunc(p.admitted, func(a, b admission) int { return cmp.Compare(a.at, b.at) })
	meter := fleet.NewMeter(p.limit)
	for _, a := range p.admitted {
		meter.Admit(a.at, a.cost)
	}
	return meter.Overshoot()
}

func (p *play) close(r player) {
	for _, l := range []*leaselimit.Limiter{r.Limiter, r.other} {
		if err := l.Close(context.Background()); err != nil {
			panic(err)
		}
	}
}

// faulty loses questions and answers, and has them arrive late.
type faulty struct {
	lease.Store

	faults bool
	ttl    time.Duration
	mu     sync.Mutex
	rng    *rand.Rand
}

func (f *faulty) chance(n int) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.faults && f.rng.IntN(n) == 0
}

// delay waits, often for longer than a lease lives.
func (f *faulty) delay() {
	f.mu.Lock()
	d := time.Duration(f.rng.Float64() * 2.5 * float64(f.ttl))
	f.mu.Unlock()
	time.Sleep(d)
}

func lost(op string) error {
	return &lease.StoreError{Op: op, Reason: lease.ReasonTimeout, Err: errLost}
}

// patience is longer than anybody waits: a waiter's token counts when it is granted, so what is late for waiters comes when
// they are gone.
const patience = 100 * time.Millisecond

func (f *faulty) Acquire(ctx context.Context, req lease.AcquireRequest) (lease.Grant, error) {
	if f.chance(20) {
		return lease.Grant{}, lost("acquire")
	}
	g, err := f.Store.Acquire(ctx, req)
	switch {
	case err == nil && f.chance(12):
		return lease.Grant{}, lost("acquire")
	case req.Need == 0 && f.chance(5):
		f.delay()
	case req.Need > 0 && f.chance(10):
		time.Sleep(patience)
		f.delay()
	}
	return g, err
}

func (f *faulty) Take(ctx context.Context, charges []lease.Charge) (lease.TakeReply, error) {
	r, err := f.Store.Take(ctx, charges)
	if f.chance(6) {
		time.Sleep(patience)
	}
	if err == nil && f.chance(12) {
		return lease.TakeReply{}, lost("take")
	}
	return r, err
}

func (f *faulty) Return(ctx context.Context, items []lease.Return) error {
	if f.chance(6) {
		return lost("return")
	}
	if f.chance(4) {
		f.delay()
	}
	err := f.Store.Return(context.WithoutCancel(ctx), items)
	if err == nil && f.chance(10) {
		return lost("return")
	}
	return err
}
