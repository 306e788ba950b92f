// Package adversary attacks the overshoot bound. It plays a fleet of replicas that may do whatever the protocol lets a
// replica do, in the worst order that chance and a few plans can find: fill leases and wait, spend them in the last moment,
// return old ones, lose replies, have requests executed twice, run their clocks off, change the terms. A leaky meter over
// everything admitted is the oracle.
package adversary

import (
	"context"
	"fmt"
	"maps"
	"math"
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
	// Burst is the worst over all windows of what was admitted above capacity, refill and the budget that was in force when
	// the window began: above 0, a switch of budgets gave tokens for free.
	Burst  float64
	Slack  float64 // what numbers cannot tell: the refill in the resolution of the store's clock, 2 us, and rounding
	Budget int64   // the largest that was in force
	Share  int64   // the largest that was in force
	// Reachable reports whether there is a budget, leases can hold it, and it is refilled beside them within a trust window.
	Reachable bool
	Setting   string
}

// Violated reports whether the bound was broken.
func (o Outcome) Violated() bool {
	return o.Overshoot > float64(o.Budget)+o.Slack || o.Burst > o.Slack
}

func reachable(o Outcome, l quota.Limit, ttl time.Duration) bool {
	return o.Budget > 0 && o.Share >= o.Budget && l.PerMillisecond()*float64(ttl.Milliseconds()) >= float64(o.Budget)
}

// slack is Outcome.Slack for a limit.
func slack(l quota.Limit) float64 {
	return 1e-6 + 1e-12*float64(l.Capacity) + 0.002*l.PerMillisecond()
}

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
	plan   lease.Terms // what it asks with, but for its ttl
	ttl    time.Duration
	leases []*held
	owed   map[int64]int64
	drift  float64 // of its clock against the store's
}

// An episode is one attack.
type episode struct {
	rng      *rand.Rand
	store    lease.Store
	advance  func(time.Duration) // the store's clock
	now      time.Duration       // since the start
	err      error               // the first of the store's
	rules    Rules
	key      lease.Key
	limit    quota.Limit
	ttl      time.Duration // trust window of replicas
	longest  time.Duration // and of some of them
	meter    *fleet.Meter
	burst    burstMeter
	plans    []lease.Terms // that replicas switch between; they differ in budget and share
	budget   int64         // the largest in force so far
	share    int64         // the largest in force so far
	replicas []*replica
	pressed  bool
	delays   bool
	late     []answer
}

// Run plays the episode of a seed against store, whose clock stands still but for advance. It fails if the store does.
func Run(seed uint64, store lease.Store, advance func(time.Duration), rules Rules) (Outcome, error) {
	rng := rand.New(rand.NewPCG(seed, 7))
	pick := func(v ...float64) float64 { return v[rng.IntN(len(v))] }
	ttl := time.Duration(pick(200, 1000, 5000)) * time.Millisecond
	e := &episode{
		rng: rng, store: store, advance: advance, rules: rules, ttl: ttl, limit: randomLimit(rng, ttl),
		key:     lease.Key{Tenant: fmt.Sprint(seed), Class: "default"},
		pressed: rng.IntN(2) == 0,
		delays:  rng.IntN(4) == 0,
	}
	for range int(pick(1, 1, 2, 4)) {
		options := lease.Options{
			MaxOvershoot: pick(0, 0, 0.1, 0.25, 0.5, 1, rng.Float64()),
			LeaseShare:   pick(0.05, 0.25, 0.5, 1, 1-rng.Float64()),
			TTL:          ttl,
		}
		e.plans = append(e.plans, options.Terms(e.limit))
	}
	e.meter, e.burst = fleet.NewMeter(e.limit), burstMeter{rate: e.limit.PerMillisecond() / 1e6}
	e.longest = ttl * time.Duration(pick(1, 2))
	for range int(pick(1, 2, 4, 8)) {
		e.replicas = append(e.replicas, &replica{
			plan: e.plans[0], ttl: time.Duration(pick(float64(ttl), float64(e.longest))), owed: map[int64]int64{},
			drift: pick(-0.005, 0, 0.005),
		})
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
		e.spendAll()
	}
	o := Outcome{
		Overshoot: e.meter.Overshoot(), Slack: slack(e.limit), Budget: e.budget, Share: e.share,
		Setting: fmt.Sprintf("seed %d: %v, budget %d, share %d, %d plans, tau %v, %d replicas, pressed %v", seed, e.limit,
			e.budget, e.share, len(e.plans), ttl, len(e.replicas), e.pressed),
	}
	o.Reachable = reachable(o, e.limit, e.ttl)
	if !e.burst.blind {
		o.Burst = e.burst.peak - float64(e.limit.Capacity)
	}
	// An episode begins with a second, so that what the store's clock rounds does not depend on the episodes before it.
	e.wait(time.Second - e.now%time.Second)
	return o, e.err
}

// randomLimit is a capacity of 1 to 1e9 and a refill of 0, or 1 per hour to 1e6 per second; in every other one it fills the
// bucket within a few trust windows.
func randomLimit(rng *rand.Rand, ttl time.Duration) quota.Limit {
	capacities := []int64{1, 2, 4, 10, 40, 100, 1000, 50_000, 1e6, 1e9}
	l := quota.Limit{Capacity: capacities[rng.IntN(len(capacities))]}
	if rng.IntN(4) == 0 {
		l.Capacity = int64(math.Pow(1e9, rng.Float64()))
	}
	perHour := []float64{0, 1, 60, 1800, 3600, 36_000, 360_000, 3_600_000, 3_600_000_000}[rng.IntN(9)]
	if rng.IntN(2) == 0 {
		perHour = float64(l.Capacity) * float64(time.Hour) / float64(ttl) * []float64{0.3, 1, 4, 20}[rng.IntN(4)]
	}
	if perHour > 0 {
		l.Refill, l.Per = int64(min(3.6e9, max(1, perHour))), time.Hour
	}
	return l
}

func (e *episode) wait(d time.Duration) {
	if d > 0 {
		e.advance(d)
		e.now += d
	}
}

// did notes whether the store did what it was asked.
func (e *episode) did(err error) bool {
	if e.err == nil {
		e.err = err
	}
	return err == nil
}

// terms are those that r asks with, and which so take over in the bucket.
func (e *episode) terms(r *replica) lease.Terms {
	t := r.plan
	t.TTL = r.ttl
	return t
}

// change has some of the replicas switch to another budget and share, so that several of them are in force in turn.
func (e *episode) change() {
	if len(e.plans) == 1 {
		return
	}
	if e.rng.IntN(3) == 0 { // all of them, to the same
		to := e.plans[e.rng.IntN(len(e.plans))]
		for _, r := range e.replicas {
			r.plan = to
		}
		return
	}
	for _, r := range e.replicas {
		if e.rng.IntN(2) == 0 {
			r.plan = e.plans[e.rng.IntN(len(e.plans))]
		}
	}
}

// inForce notes that the terms of a request have taken over in the bucket.
func (e *episode) inForce(t lease.Terms) {
	e.budget, e.share = max(e.budget, t.Budget), max(e.share, t.Share)
	e.burst.switchTo(e.now, float64(t.Budget))
}

func (e *episode) admit(at time.Duration, n int64) {
	e.meter.Admit(at, n)
	e.burst.admit(at, n)
}

// burstMeter is the leaky meter for budgets that change: its peak is the most, over all windows, of what was admitted above
// the refill and the budget in force at the start of the window. Whatever comes later, level and leases at the start are no
// more than the capacity and that budget.
type burstMeter struct {
	rate, budget float64
	level, peak  float64
	last         time.Duration
	blind        bool // tokens in flight while the budget was switched came back: they were in neither level nor leases
	switched     bool
}

func (m *burstMeter) drain(at time.Duration) {
	m.level = max(-m.budget, m.level-m.rate*float64(at-m.last))
	m.last = at
}

func (m *burstMeter) switchTo(at time.Duration, budget float64) {
	if !m.switched {
		m.switched, m.budget, m.level, m.last = true, budget, -budget, at
		return
	}
	m.drain(at)
	m.budget = budget
	m.level = max(m.level, -budget)
}

func (m *burstMeter) admit(at time.Duration, n int64) {
	m.drain(at)
	m.level += float64(n)
	m.peak = max(m.peak, m.level)
}

func (e *episode) any() *replica { return e.replicas[e.rng.IntN(len(e.replicas))] }

func (e *episode) step() {
	tau := float64(e.ttl)
	pauses := []float64{0, 0, 0, 1e6, 1e7, tau / 20, tau / 3, tau, 2 * tau}
	e.wait(time.Duration(pauses[e.rng.IntN(len(pauses))] * e.rng.Float64()))
	if len(e.late) > 0 && e.rng.IntN(3) == 0 {
		a := e.late[0]
		e.late = e.late[1:]
		e.land(a)
	}
	if e.rng.IntN(8) == 0 {
		e.change()
	}
	r := e.any()
	switch x := e.rng.Float64(); {
	case x < 0.40:
		e.spend(r, 1+e.rng.Int64N(max(1, e.limit.Capacity/3)))
	case x < 0.45:
		e.take(r, 1+e.rng.Int64N(max(1, e.limit.Capacity/3)))
	case x < 0.85:
		horizon := time.Duration(0)
		if e.pressed && e.rng.IntN(2) == 0 {
			horizon = e.ttl / 4
		}
		need := []int64{0, 1, 1, 3, e.limit.Capacity}[e.rng.IntN(5)]
		e.draw(r, need, e.rng.Int64N(e.limit.Capacity+1), horizon)
	case x < 0.98:
		e.giveBack(r)
	default:
		e.spendAll()
	}
}

// spend admits up to n tokens of the leases of r.
func (e *episode) spend(r *replica, n int64) {
	now := e.now
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
		e.admit(now, k)
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

// reports are what r spent and has not told. What is told is sent once.
func (e *episode) reports(r *replica) (reports [2]lease.Report) {
	for _, h := range r.leases {
		if !h.excess {
			r.owed[h.grant.Epoch] += h.spent
		}
		h.spent = 0
	}
	i := 0
	for _, epoch := range slices.Sorted(maps.Keys(r.owed)) {
		n := r.owed[epoch]
		if i < len(reports) && n > 0 {
			reports[i] = lease.Report{Epoch: epoch, Tokens: n}
			i++
			if !e.rules.ReportTwice || e.rng.IntN(2) == 0 {
				delete(r.owed, epoch)
			}
		}
	}
	return reports
}

// take asks for tokens for one call, without a lease.
func (e *episode) take(r *replica, cost int64) {
	terms := e.terms(r)
	c := lease.Charge{Key: e.key, Terms: terms, Cost: cost, Reports: e.reports(r)}
	e.inForce(terms)
	reply, err := e.store.Take(context.Background(), []lease.Charge{c})
	if e.did(err) && reply.Allowed && e.rng.IntN(10) > 0 { // else the answer is lost
		e.admit(e.now, cost)
	}
}

// draw asks for tokens for waiters, who may have gone when they come, and for a lease.
func (e *episode) draw(r *replica, need, want int64, horizon time.Duration) {
	terms := e.terms(r)
	req := lease.AcquireRequest{
		Key: e.key, Terms: terms, Need: need, Want: want, Horizon: horizon, Replicas: e.rng.IntN(5), Reports: e.reports(r),
	}
	if need > 0 || horizon > 0 { // a pressed replica asks for what was refused, too, if nobody waits
		req.Min = 1
	}
	sent := e.now
	switch e.rng.IntN(40) {
	case 0: // the request is executed twice, the first answer is lost
		twice := req
		twice.Reports = [2]lease.Report{}
		_, err := e.store.Acquire(context.Background(), twice)
		e.did(err)
	case 1:
		return // the request is lost
	}
	e.inForce(terms)
	g, err := e.store.Acquire(context.Background(), req)
	if !e.did(err) || e.rng.IntN(10) == 0 {
		return // the answer is lost
	}
	// Waiters' tokens count when they are granted: what is admitted when the answer comes are calls in flight.
	unspent := g.Waiters
	if e.rng.IntN(3) > 0 {
		e.admit(e.now, g.Waiters)
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
func (e *episode) land(a answer) {
	r, g, sent := a.to, a.grant, a.sent
	switch {
	case a.unspent == 0:
	case e.rules.KeepWaiters:
		r.leases = append(r.leases, &held{
			grant: lease.Grant{Surplus: a.unspent, Ready: a.unspent, Epoch: g.Epoch}, left: a.unspent,
			dies: sent + r.ttl, excess: true,
		})
	default:
		e.burst.blind = e.burst.blind || len(e.plans) > 1
		e.send(lease.Return{Key: e.key, Terms: e.terms(r), Waiters: a.unspent, At: g.At})
	}
	if g.Surplus == 0 {
		return
	}
	window := float64(r.ttl-r.ttl/200-time.Millisecond) * (1 + r.drift)
	from := sent
	if e.rules.WindowOnReply {
		from = e.now
	}
	r.leases = append(r.leases, &held{
		grant: g, left: g.Surplus, from: e.now, dies: from + time.Duration(window),
	})
}

// giveBack returns a lease of r, in full.
func (e *episode) giveBack(r *replica) {
	if len(r.leases) == 0 {
		return
	}
	i := e.rng.IntN(len(r.leases))
	h := r.leases[i]
	r.leases = append(r.leases[:i], r.leases[i+1:]...)
	if h.excess {
		return
	}
	item := lease.Return{Key: e.key, Terms: e.terms(r), Epoch: h.grant.Epoch, Unspent: h.left, Spent: h.spent}
	e.send(item)
	if e.rules.ReturnTwice {
		e.send(item)
	}
}

func (e *episode) send(item lease.Return) {
	if e.rng.IntN(10) == 0 {
		return // lost on the way
	}
	e.inForce(item.Terms)
	e.did(e.store.Return(context.Background(), []lease.Return{item}))
}
