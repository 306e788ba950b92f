// Package adversary attacks the overshoot bound. It plays a fleet of replicas that may do whatever the protocol lets a
// replica do, in the worst order that chance and a few plans can find: fill leases and wait, spend them in the last moment,
// return old ones, lose replies, have requests executed twice, run their clocks off, change the terms. A leaky meter over
// everything admitted is the oracle.
//
// It must run in a testing/synctest bubble, on whose virtual time store and replicas run.
package adversary

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/leaselimit/leaselimit/internal/fleet"
	"github.com/leaselimit/leaselimit/lease"
	"github.com/leaselimit/leaselimit/quota"
)

// Rules that a replica has to keep, to be switched off one by one.
type Rules struct {
	KeepWaiters   bool // keep waiters' tokens that no waiter spent, as if they were surplus
	ReportTwice   bool // send a report again when the answer was lost (R4)
	SpendExpired  bool // spend a lease after its window
	WindowOnReply bool // count the window from the reply
	ReturnTwice   bool // send a return again
}

// Outcome is what came of an episode.
type Outcome struct {
	Overshoot float64 // worst over all windows; above Budget is a violation
	Slack     float64 // what the store's clock cannot tell: the refill of its resolution, 2 us
	Budget    int64
	Share     int64
	Setting   string
}

// Violated reports whether the bound was broken.
func (o Outcome) Violated() bool { return o.Overshoot > float64(o.Budget)+o.Slack }

type held struct {
	grant  lease.Grant
	left   int64
	spent  int64 // not reported yet
	from   time.Duration
	dies   time.Duration
	excess bool // waiters' tokens that should have gone back
}

// ready is how many of the tokens granted may be spent at now.
func (h *held) ready(now time.Duration) int64 {
	g := h.grant
	at := h.from + g.First
	switch {
	case g.Ready == g.Surplus:
		return g.Surplus
	case now < at:
		return g.Ready
	case g.Spacing <= 0:
		return g.Surplus
	}
	return min(g.Surplus, g.Ready+g.Next+int64((now-at)/g.Spacing))
}

type replica struct {
	leases []*held
	owed   map[int64]int64
	drift  float64 // of its clock against the store's
}

// An Episode is one attack.
type Episode struct {
	rng      *rand.Rand
	store    lease.Store
	rules    Rules
	key      lease.Key
	terms    lease.Terms
	start    time.Time
	meter    *fleet.Meter
	replicas []*replica
	pressed  bool
	delays   bool
	late     []answer
}

// Run plays the episode of a seed against store.
func Run(seed uint64, store lease.Store, rules Rules) Outcome {
	rng := rand.New(rand.NewPCG(seed, 7))
	pick := func(v ...float64) float64 { return v[rng.IntN(len(v))] }
	capacity := int64(pick(4, 10, 40, 100, 1000))
	limit := quota.Limit{Capacity: capacity}
	if r := pick(0, 0.5, 2, 10, 100, 1000); r > 0 {
		limit.Refill, limit.Per = int64(r*2), 2*time.Second
	}
	options := lease.Options{
		MaxOvershoot: pick(0, 0, 0.1, 0.25, 0.5, 1),
		LeaseShare:   pick(0.25, 0.5, 1),
		TTL:          time.Duration(pick(200, 1000, 5000)) * time.Millisecond,
	}
	e := &Episode{
		rng: rng, store: store, rules: rules,
		key:   lease.Key{Tenant: fmt.Sprint(seed), Class: "default"},
		terms: options.Terms(limit), start: time.Now(), meter: fleet.NewMeter(limit),
		pressed: rng.IntN(2) == 0,
		delays:  rng.IntN(4) == 0,
	}
	for range int(pick(1, 2, 4, 8)) {
		e.replicas = append(e.replicas, &replica{owed: map[int64]int64{}, drift: pick(-0.005, 0, 0.005)})
	}
	switch rng.IntN(6) {
	case 0, 1:
		e.plan()
	case 2:
		e.edge()
	default:
		for range 40 + rng.IntN(80) {
			e.step()
		}
		e.burst()
	}
	return Outcome{
		Overshoot: e.meter.Overshoot(), Slack: 1e-6 + limit.PerMillisecond()*0.002, Budget: e.terms.Budget, Share: e.terms.Share,
		Setting: fmt.Sprintf("seed %d: %v, budget %d, share %d, tau %v, %d replicas, pressed %v", seed, limit, e.terms.Budget,
			e.terms.Share, e.terms.TTL, len(e.replicas), e.pressed),
	}
}

func (e *Episode) now() time.Duration { return time.Since(e.start) }

// plan is the attack that reaches the bound: fill the leases, let the bucket fill up beside them, then spend everything at
// once; a few times over, with old leases spent late and others returned just before.
func (e *Episode) plan() {
	for range 1 + e.rng.IntN(3) {
		for range 3 {
			for _, r := range e.replicas {
				e.draw(r, 0, e.terms.Limit.Capacity, 0)
			}
		}
		wait := e.terms.TTL
		if rate := e.terms.Limit.PerMillisecond(); rate > 0 {
			fill := time.Duration(float64(e.terms.Limit.Capacity) / rate * float64(time.Millisecond))
			wait = min(fill+time.Millisecond, e.terms.TTL*time.Duration(e.rng.IntN(100))/100)
		}
		time.Sleep(wait)
		if e.rng.IntN(3) == 0 {
			e.giveBack(e.any())
		}
		e.burst()
		time.Sleep(time.Duration(e.rng.Int64N(int64(3 * e.terms.TTL))))
	}
}

// edge is the attack on the borders of epochs: lease everything at the end of one, spend it unreported at the end of the next,
// where the count of it runs out, and be there just after.
func (e *Episode) edge() {
	tau := e.terms.TTL
	e.draw(e.replicas[0], 0, 1, 0) // an epoch begins
	start := e.now()
	time.Sleep(tau - tau/40)
	for _, r := range e.replicas {
		e.draw(r, 0, e.terms.Limit.Capacity, 0)
	}
	time.Sleep(start + 2*tau - tau/20 - e.now())
	for _, r := range e.replicas {
		e.spend(r, e.terms.Limit.Capacity)
	}
	time.Sleep(start + 2*tau + time.Millisecond - e.now())
	e.burst()
}

// burst spends whatever can be spent at this moment.
func (e *Episode) burst() {
	for _, r := range e.replicas {
		e.spend(r, e.terms.Limit.Capacity)
	}
	for _, r := range e.replicas {
		for _, n := range []int64{e.terms.Limit.Capacity / 2, e.terms.Limit.Capacity / 4, 1, 1, 1} {
			e.draw(r, max(1, n), 0, 0)
		}
	}
}

func (e *Episode) any() *replica { return e.replicas[e.rng.IntN(len(e.replicas))] }

func (e *Episode) step() {
	tau := float64(e.terms.TTL)
	pauses := []float64{0, 0, 0, 1e6, 1e7, tau / 20, tau / 3, tau, 2 * tau}
	time.Sleep(time.Duration(pauses[e.rng.IntN(len(pauses))] * e.rng.Float64()))
	if len(e.late) > 0 && e.rng.IntN(3) == 0 {
		a := e.late[0]
		e.late = e.late[1:]
		e.land(a)
	}
	r := e.any()
	switch x := e.rng.Float64(); {
	case x < 0.40:
		e.spend(r, 1+e.rng.Int64N(max(1, e.terms.Limit.Capacity/3)))
	case x < 0.85:
		horizon := time.Duration(0)
		if e.pressed && e.rng.IntN(2) == 0 {
			horizon = e.terms.TTL / 4
		}
		need := []int64{0, 1, 1, 3, e.terms.Limit.Capacity}[e.rng.IntN(5)]
		e.draw(r, need, e.rng.Int64N(e.terms.Limit.Capacity+1), horizon)
	case x < 0.98:
		e.giveBack(r)
	default:
		e.burst()
	}
}

// spend admits up to n tokens of the leases of r.
func (e *Episode) spend(r *replica, n int64) {
	now := e.now()
	for _, h := range r.leases {
		if now >= h.dies && !e.rules.SpendExpired {
			continue
		}
		k := min(n, h.left-(h.grant.Surplus-h.ready(now)))
		if k <= 0 {
			continue
		}
		h.left -= k
		h.spent += k
		n -= k
		e.meter.Admit(now, k)
	}
	kept := r.leases[:0]
	for _, h := range r.leases {
		switch {
		case h.left > 0 && (now < h.dies || e.rules.SpendExpired):
			kept = append(kept, h)
		case !h.excess:
			r.owed[h.grant.Epoch] += h.spent
		}
	}
	r.leases = kept
}

// draw asks for tokens for waiters, who may have gone when they come, and for a lease.
func (e *Episode) draw(r *replica, need, want int64, horizon time.Duration) {
	req := lease.AcquireRequest{
		Key: e.key, Terms: e.terms, Need: need, Want: want, Horizon: horizon, Replicas: 1 + e.rng.IntN(4),
	}
	if need > 0 {
		req.Min = 1
	}
	for _, h := range r.leases {
		if !h.excess {
			r.owed[h.grant.Epoch] += h.spent
		}
		h.spent = 0
	}
	i := 0
	for _, epoch := range slices.Sorted(maps.Keys(r.owed)) {
		n := r.owed[epoch]
		if i < len(req.Reports) && n > 0 {
			req.Reports[i] = lease.Report{Epoch: epoch, Tokens: n}
			i++
			if !e.rules.ReportTwice || e.rng.IntN(2) == 0 {
				delete(r.owed, epoch)
			}
		}
	}
	sent := e.now()
	if e.rng.IntN(40) == 0 { // the request is executed twice, the first answer is lost
		twice := req
		twice.Reports = [2]lease.Report{}
		_, _ = e.store.Acquire(context.Background(), twice)
	}
	g, err := e.store.Acquire(context.Background(), req)
	if err != nil {
		panic(err)
	}
	granted := e.now()
	if e.rng.IntN(10) == 0 {
		return // the answer is lost
	}
	// Waiters' tokens count when they are granted: what is admitted when the answer comes are calls in flight.
	unspent := g.Waiters
	if e.rng.IntN(3) > 0 {
		e.meter.Admit(granted, g.Waiters)
		unspent = 0
	}
	if a := (answer{r, g, sent, unspent}); e.delays && e.rng.IntN(2) == 0 {
		e.late = append(e.late, a)
	} else {
		e.land(a)
	}
}

// answer is one on its way from the store.
type answer struct {
	to      *replica
	grant   lease.Grant
	sent    time.Duration
	unspent int64 // of the waiters' tokens
}

// land has an answer arrive.
func (e *Episode) land(a answer) {
	r, g, sent := a.to, a.grant, a.sent
	switch {
	case a.unspent == 0:
	case e.rules.KeepWaiters:
		r.leases = append(r.leases, &held{
			grant: lease.Grant{Surplus: a.unspent, Ready: a.unspent, Epoch: g.Epoch}, left: a.unspent,
			dies: sent + e.terms.TTL, excess: true,
		})
	default:
		e.send(lease.Return{Key: e.key, Terms: e.terms, Waiters: a.unspent, At: g.At})
	}
	if g.Surplus == 0 {
		return
	}
	window := float64(e.terms.TTL-e.terms.TTL/200-time.Millisecond) * (1 + r.drift)
	from := sent
	if e.rules.WindowOnReply {
		from = e.now()
	}
	r.leases = append(r.leases, &held{
		grant: g, left: g.Surplus, from: e.now(), dies: from + time.Duration(window),
	})
}

// giveBack returns a lease of r, in full.
func (e *Episode) giveBack(r *replica) {
	if len(r.leases) == 0 {
		return
	}
	i := e.rng.IntN(len(r.leases))
	h := r.leases[i]
	r.leases = append(r.leases[:i], r.leases[i+1:]...)
	if h.excess {
		return
	}
	item := lease.Return{Key: e.key, Terms: e.terms, Epoch: h.grant.Epoch, Unspent: h.left, Spent: h.spent}
	e.send(item)
	if e.rules.ReturnTwice {
		e.send(item)
	}
}

func (e *Episode) send(item lease.Return) {
	if e.rng.IntN(10) == 0 {
		return // lost on the way
	}
	if err := e.store.Return(context.Background(), []lease.Return{item}); err != nil {
		panic(err)
	}
}
