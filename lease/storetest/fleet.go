package storetest

import (
	"context"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/leaselimit/leaselimit/lease"
	"github.com/leaselimit/leaselimit/quota"
)

// Faults are rules of the protocol that the replicas of a [Fleet] do not keep. A fleet that keeps them all stays within the
// bound over every store that passes the suite; with any of these it does not, or the fleet would prove nothing.
type Faults struct {
	RepeatReports bool // send reports again that have arrived (R4 forbids to send one twice)
	SpendLate     bool // spend leases for half a trust window longer
	KeepWaiters   bool // make surplus of what a waiter did not spend
}

// Fleet lets a few replicas draw from one bucket, at random by seed, as the protocol allows: with replies and requests that
// are lost, waiters that are gone, leases that are spent at their last moment, trust windows that differ. It gives by how
// many tokens they exceeded the bound, admitted <= C + r*T + B in every window T: below 0 if they stayed within it.
//
// The measure is a bucket that leaks r and is filled by every admission: its highest level is the greatest of admitted - r*T
// over all windows that end with an admission.
func Fleet(ctx context.Context, f Fixture, seed uint64, faults Faults) (excess float64, err error) {
	fl := newFleet(f, seed, faults)
	for range fl.steps {
		if err := fl.step(ctx); err != nil {
			return 0, fmt.Errorf("seed %d: %w", seed, err)
		}
	}
	return fl.peak - float64(fl.terms.Limit.Capacity+fl.terms.Budget), nil
}

type fleet struct {
	Fixture
	*rand.Rand

	faults   Faults
	key      lease.Key
	terms    lease.Terms
	replicas []*replica
	steps    int

	late        []lease.Return // of waiters' tokens, still under way
	now         time.Duration  // since the start
	level, peak float64        // of the measure
	leaked      time.Duration  // up to when
}

type replica struct {
	ttl     time.Duration
	leases  []*held
	reports map[int64]int64 // spent of each epoch, to be reported
}

type held struct {
	epoch  int64
	tokens []time.Duration // when each may be spent, sorted
	until  time.Duration
}

func newFleet(f Fixture, seed uint64, faults Faults) *fleet {
	r := rand.New(rand.NewPCG(seed, 1))
	capacity := pick[int64](r, 4, 10, 40, 100)
	tau := pick(r, 200*time.Millisecond, time.Second, 5*time.Second)
	fl := &fleet{
		Fixture: f, Rand: r, faults: faults,
		key:   lease.Key{Tenant: fmt.Sprintf("fleet-%d", seed), Class: "default"},
		steps: pick(r, 200, 800),
		terms: lease.Terms{
			Limit:  quota.Limit{Capacity: capacity, Refill: pick[int64](r, 0, 1, 4, 20, 200), Per: 2 * time.Second},
			Budget: capacity * pick[int64](r, 0, 10, 25, 50) / 100,
			Share:  max(1, capacity*pick[int64](r, 25, 50, 100)/100),
		},
	}
	for range pick(r, 1, 2, 4, 8) {
		fl.replicas = append(fl.replicas, &replica{
			ttl: tau * pick[time.Duration](r, 1, 1, 1, 2), reports: make(map[int64]int64),
		})
	}
	return fl
}

func pick[T any](r *rand.Rand, from ...T) T { return from[r.IntN(len(from))] }

func (fl *fleet) step(ctx context.Context) error {
	p := pick(fl.Rand, fl.replicas...)
	longest := pick(fl.Rand, 0, 0, time.Millisecond, 10*time.Millisecond, 50*time.Millisecond, p.ttl/3, p.ttl, 2*p.ttl)
	fl.advance(time.Duration(fl.Float64() * float64(longest)).Truncate(time.Microsecond))
	late := time.Duration(0)
	if fl.faults.SpendLate {
		late = p.ttl / 2
	}
	p.leases = slices.DeleteFunc(p.leases, func(h *held) bool { return fl.now >= h.until+late })

	switch x := fl.Float64(); {
	case x < 0.4:
		fl.spend(p)
		return nil
	case x < 0.85:
		return fl.draw(ctx, p)
	case x < 0.9:
		return fl.take(ctx, p)
	case x < 0.95:
		return fl.arrive(ctx)
	default:
		return fl.giveBack(ctx, p)
	}
}

func (fl *fleet) advance(d time.Duration) {
	fl.Advance(d)
	fl.now += d
}

// admit is where calls pass.
func (fl *fleet) admit(n int64) {
	rate := fl.terms.Limit.PerMillisecond() / 1e6 // per ns
	fl.level = max(0, fl.level-rate*float64(fl.now-fl.leaked)) + float64(n)
	fl.leaked = fl.now
	fl.peak = max(fl.peak, fl.level)
}

func (fl *fleet) spend(p *replica) {
	for _, h := range p.leases {
		most := fl.IntN(int(fl.terms.Limit.Capacity)) + 1
		n := 0
		for n < most && n < len(h.tokens) && h.tokens[n] <= fl.now {
			n++
		}
		h.tokens = h.tokens[n:]
		if n > 0 {
			fl.admit(int64(n))
			p.reports[h.epoch] += int64(n)
		}
	}
}

func (fl *fleet) termsOf(p *replica) lease.Terms {
	t := fl.terms
	t.TTL = p.ttl
	return t
}

func (fl *fleet) draw(ctx context.Context, p *replica) error {
	c := fl.terms.Limit.Capacity
	req := lease.AcquireRequest{
		Key: fl.key, Terms: fl.termsOf(p), Want: fl.Int64N(c + 1), Replicas: pick(fl.Rand, 0, 1, len(fl.replicas)),
		Held: pick[int64](fl.Rand, 0, 0, 1, c),
	}
	if req.Need = pick[int64](fl.Rand, 0, 1, 1, 3, c); req.Need > 0 {
		req.Min = 1 + fl.Int64N(req.Need)
	} else {
		req.Min = pick[int64](fl.Rand, 0, 1, c) // the smallest that was refused of late
	}
	if fl.Float64() < 0.3 {
		req.Horizon = time.Duration(fl.Float64() * float64(p.ttl) / 2)
	}
	epochs := slices.Sorted(maps.Keys(p.reports))
	for i, epoch := range epochs[max(0, len(epochs)-len(req.Reports)):] {
		req.Reports[i] = lease.Report{Epoch: epoch, Tokens: p.reports[epoch]}
	}
	lost := fl.Float64() < 0.15
	if !fl.faults.RepeatReports || fl.Float64() < 0.5 {
		clear(p.reports)
	}
	if lost && fl.Float64() < 0.5 {
		return nil // on its way there
	}
	g, err := fl.Store.Acquire(ctx, req)
	if err != nil || lost {
		return err
	}
	fl.credit(p, g, req)
	return nil
}

// credit is what a replica does with a grant.
func (fl *fleet) credit(p *replica, g lease.Grant, req lease.AcquireRequest) {
	h := &held{epoch: g.Epoch, until: fl.now + p.ttl}
	for k := range g.Surplus {
		at := fl.now
		switch {
		case k < g.Ready:
		case k < g.Ready+g.Next:
			at += g.First
		default:
			at += g.First + time.Duration(k-g.Ready-g.Next+1)*g.Spacing
		}
		h.tokens = append(h.tokens, at)
	}
	gone := int64(0)
	if g.Waiters > 0 {
		if fl.Float64() < 0.2 {
			gone = 1 + fl.Int64N(g.Waiters)
		}
		fl.admit(g.Waiters - gone)
	}
	if gone > 0 && fl.faults.KeepWaiters {
		h.tokens = append(slices.Repeat([]time.Duration{fl.now}, int(gone)), h.tokens...)
		gone = 0
	}
	if len(h.tokens) > 0 {
		p.leases = append(p.leases, h)
	}
	if gone > 0 {
		fl.late = append(fl.late, lease.Return{Key: fl.key, Terms: req.Terms, Waiters: gone, At: g.At})
	}
}

// arrive lets the returns that are under way arrive, or some of them be lost.
func (fl *fleet) arrive(ctx context.Context) error {
	items := slices.DeleteFunc(fl.late, func(lease.Return) bool { return fl.Float64() < 0.1 })
	fl.late = nil
	return fl.Store.Return(ctx, items)
}

func (fl *fleet) take(ctx context.Context, p *replica) error {
	cost := 1 + fl.Int64N(max(1, fl.terms.Limit.Capacity/3))
	r, err := fl.Store.Take(ctx, []lease.Charge{{Key: fl.key, Terms: fl.termsOf(p), Cost: cost}})
	if err == nil && r.Allowed {
		fl.admit(cost)
	}
	return err
}

func (fl *fleet) giveBack(ctx context.Context, p *replica) error {
	if len(p.leases) == 0 {
		return nil
	}
	i := fl.IntN(len(p.leases))
	h := p.leases[i]
	p.leases = slices.Delete(p.leases, i, i+1)
	item := lease.Return{
		Key: fl.key, Terms: fl.termsOf(p), Epoch: h.epoch, Unspent: int64(len(h.tokens)), Spent: p.reports[h.epoch],
	}
	delete(p.reports, h.epoch)
	return fl.Store.Return(ctx, []lease.Return{item})
}

// Excess is the highest excess of many fleets, and how many of them broke the bound.
func Excess(ctx context.Context, f func() Fixture, seeds uint64, faults Faults) (worst float64, broken int, err error) {
	worst = math.Inf(-1)
	for seed := range seeds {
		x, err := Fleet(ctx, f(), seed, faults)
		if err != nil {
			return 0, 0, err
		}
		worst = max(worst, x)
		if x > near {
			broken++
		}
	}
	return worst, broken, nil
}
