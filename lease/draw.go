package lease

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/leaselimit/leaselimit/localbucket"
	"github.com/leaselimit/leaselimit/precheck"
)

// A draw is one question to the store on behalf of a holder: of the calls waiting, or of nobody, ahead of need.
type draw struct {
	req    AcquireRequest
	calls  []*waiter
	pays   bool            // leasing ahead pays for this tenant
	sent   int64           // when it was sent; a lease's window counts from here
	jumps  int64           // of the clock, until then
	home   int64           // tokens given back that had arrived by then
	awaits <-chan struct{} // closed when tokens have arrived that it had better not overtake; nil: there are none
	spare  time.Duration   // how long it may wait for them
	late   *time.Timer
	failed bool // past the timeout: its calls have been failed over
	landed bool
}

// flyLocked starts the goroutine that draws, if none is under way. There is at most one for a holder, so however many calls
// wait, one question is asked for all of them, and the next one for all that came meanwhile.
func (h *Holder) flyLocked() {
	b := h.busyLocked()
	if b.flying {
		return
	}
	b.flying = true
	h.pool.flying.Add(1)
	h.pool.work.Go(h.fly)
}

func (h *Holder) fly() {
	p := h.pool
	defer p.flying.Add(-1)
	p.lookAtClock()
	for d := h.depart(); d != nil; d = h.depart() {
		h.await(d)
		p.count.Draws.Add(1)
		grant, err := ask(p, "acquire", func(ctx context.Context) (Grant, error) {
			return p.store.Acquire(ctx, d.req)
		})
		d.late.Stop()
		p.lookAtClock()
		h.land(d, grant, err)
	}
}

// await lets tokens on their way back arrive before a draw that is made because the first was refused: it may have overtaken them, and
// they may be what held the bucket down. They get half the time that its calls can spare: a call that the store answers must not fail.
func (h *Holder) await(d *draw) {
	if d.awaits == nil {
		return
	}
	long := time.NewTimer(d.spare)
	defer long.Stop()
	select {
	case <-d.awaits:
	case <-long.C:
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	d.sent = h.pool.exact()
	_, d.home = h.sentLocked()
}

// depart decides on all calls that can be decided and makes up the draw for the others. Without a reason for a draw it ends
// the flight.
func (h *Holder) depart() *draw {
	h.mu.Lock()
	defer h.mu.Unlock()
	now, b := h.pool.exact(), h.mu.busy
	h.pruneLocked(now)
	for _, w := range b.waiters {
		if a, ok := h.decideLocked(now, w.cost, w.rounds, true); ok {
			w.decide(a)
		}
	}
	h.dropLocked()
	if d := h.drawLocked(now); d != nil {
		patience := h.patienceLocked(d, d.sent)
		d.spare = (patience - 2*time.Duration(h.pool.rtt.get())) / 2 // after this draw there may be another
		d.late = time.AfterFunc(patience, func() { h.failOver(d) })
		return d
	}
	b.flying = false
	h.restLocked(now)
	return nil
}

// drawLocked makes up a draw, or nil if there is nothing to ask.
func (h *Holder) drawLocked(now int64) *draw {
	o, t, b := h.pool.sized(), h.terms.Load(), h.mu.busy
	topUp := b.topUp || (b.low && 2*h.local.Left(now) <= h.wantLocked(now)+h.local.Left(now))
	b.topUp, b.low = false, false
	if topUp && h.pool.breaker.open(h) != nil {
		topUp = false
		h.local.Arm(h.local.Left(now) / 2)
	}
	if len(b.waiters) == 0 && (!topUp || h.is(closed) || h.pool.closed.Load()) {
		return nil
	}

	d := &draw{calls: slices.Clone(b.waiters), jumps: h.pool.jumps.Load()}
	var sent int64
	if sent, d.home = h.sentLocked(); sent != d.home && slices.ContainsFunc(d.calls, (*waiter).refusedOnce) {
		if b.home == nil {
			b.home = make(chan struct{})
		}
		d.awaits = b.home
	}
	if h.mu.stale(now, o.TTL) {
		h.keepLocked(now)
	}
	h.mu.demand.judge(o.TTL)
	refused, smallest := h.lookLocked()
	d.pays = h.mu.demand.pays
	d.req = AcquireRequest{Key: h.Key(), Terms: *t, Replicas: o.Replicas}
	here := h.local.Available(now)
	if refused && d.pays {
		d.req.Horizon, d.req.Min = o.horizon(t), max(1, smallest-here)
	}
	if len(d.calls) > 0 {
		d.req.Min = d.calls[0].cost
		for _, w := range d.calls {
			d.req.Min = min(d.req.Min, w.cost)
			d.req.Need += w.cost
		}
		d.req.Min = max(1, d.req.Min-here)
		d.req.Need = max(d.req.Min, d.req.Need-here)
	}
	if !h.is(closed) {
		d.req.Want, d.req.Held = h.wantLocked(now), h.local.Left(now)
	}
	if d.req.Need == 0 && d.req.Want == 0 {
		h.local.Arm(h.local.Left(now) / 2)
		h.pressLocked(d, now)
		return nil
	}
	d.req.Reports = h.reportLocked()
	d.sent = h.pool.exact()
	return d
}

// wantLocked is the surplus to wish for.
func (h *Holder) wantLocked(now int64) int64 {
	o, t := h.pool.sized(), h.terms.Load()
	level := float64(-1)
	if h.mu.heard != (heard{}) {
		level = float64(h.level)
	}
	target, held := o.target(&h.mu.demand, t, level), h.local.Left(now)
	if o.LeaseSize > 0 {
		return max(0, min(target, o.maxHold(t.Limit.Capacity)-held))
	}
	return max(0, target-held)
}

// land settles an answered draw: it credits the lease, once, hands the waiters' tokens to those they were drawn for, and
// sends back what nobody wants any more.
func (h *Holder) land(d *draw, g Grant, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now, b := h.pool.exact(), h.mu.busy
	d.landed, b.overdue = true, false
	if d.failed {
		h.pool.count.Late.Add(1)
	}
	if err != nil {
		if d.failed {
			h.pool.breaker.consider(now) // it knows
		} else {
			h.pool.breaker.failed(h, err, now)
		}
		h.failLocked(now, err)
		return
	}
	if !d.failed {
		h.pool.breaker.answered(h, now)
	}
	h.pool.census.drew(now)
	h.grantedLocked(now, g.Waiters+g.Surplus, d.req.Horizon > 0 || (d.req.Need > 0 && g.Waiters == 0))
	b.failure, b.failures, b.nextAsk = nil, 0, 0
	h.pool.rtt.observe(now - d.sent)
	h.mu.heard = heard{at: g.At, local: now}
	h.pool.count.WaiterTokens.Add(g.Waiters)
	h.pool.count.SurplusTokens.Add(g.Surplus)
	h.creditLocked(d, &g, now)
	h.noteLocked(d, &g, now)
	rest := h.handOutLocked(d, g.Waiters, now)
	if rest > 0 {
		h.sendBackLocked(Return{Key: h.Key(), Terms: d.req.Terms, Waiters: rest, At: g.At})
	}
	h.rearmLocked(d, &g, now)
	h.pressLocked(d, now)
}

// noteLocked keeps what the answer says of the bucket.
func (h *Holder) noteLocked(d *draw, g *Grant, now int64) {
	t := h.terms.Load()
	if t.Limit != d.req.Terms.Limit || h.is(closed) {
		return // the answer to an old question, or nobody will ask again
	}
	sent, _ := h.sentLocked()
	m := &precheck.Mark{
		// What this replica gave back and the answer may not have seen is in the bucket, too.
		Level: g.Level + float64(sent-d.home),
		Sent:  d.sent, Received: now,
		Rate: t.Limit.PerMillisecond() / 1e6, Capacity: t.Limit.Capacity,
		Cap: float64(min(t.Limit.Capacity, t.Limit.Capacity+t.Budget-h.outLocked())),
	}
	h.level = floor32(m.Level + 1e-9) // which is what whole overlooks
	h.local.Note(whole(m.Level))
	if g.Waiters == 0 && d.req.Need > 0 {
		if sent == d.home { // or it may be those tokens that hold the bucket down
			m.Cost, m.Wait = d.req.Min, int64(g.RetryAfter)
		}
		b := h.busyLocked()
		b.nextAsk = now + int64(jitter(floor, 1, 1.5))
		m.Ask = b.nextAsk
	} else if m.Level >= float64(t.Limit.Capacity)/2 {
		h.mark.Store(nil) // it would refuse none but the dearest calls, and those once they were refused
		return
	}
	h.mark.Store(m.Ready())
}

// creditLocked adds the surplus as a lease.
func (h *Holder) creditLocked(d *draw, g *Grant, now int64) {
	if g.Surplus == 0 {
		return
	}
	window := int64(h.pool.opts.window())
	l := localbucket.NewLease(localbucket.Grant{
		ID: h.pool.leases.Add(1), Epoch: g.Epoch, Tokens: g.Surplus, Deadline: d.sent + window,
		Ready: g.Ready, Next: g.Next, From: now + int64(g.First), Spacing: int64(g.Spacing),
	})
	switch {
	case now >= l.Deadline(), h.pool.jumps.Load() != d.jumps:
		h.pool.stranded(h.Key(), g.Surplus)
	case h.is(closed) || h.terms.Load().Limit != d.req.Terms.Limit:
		h.giveBackLocked([]*localbucket.Lease{l})
	default:
		h.lends() // before it is spent of
		h.local.Add(l)
		h.pool.expiry.schedule(h, l.Deadline()-window/10)
		if h.pool.jumps.Load() != d.jumps { // and endAll came before h had its place
			h.strandLocked()
		}
	}
}

// handOutLocked gives tokens to the calls of the draw, in the order they came, with tokens in hand where they complete what
// a call needs. It returns what is left. Calls that get nothing stay in the queue.
func (h *Holder) handOutLocked(d *draw, tokens, now int64) (rest int64) {
	for _, w := range d.calls {
		if w.decided {
			continue
		}
		own := min(w.cost, tokens)
		if lent := w.cost - own; lent > 0 {
			if h.local.Available(now) < lent || !h.local.Split(now, lent) {
				w.rounds++
				continue
			}
			h.addExtra(lent)
		}
		tokens -= own
		h.mu.paid += own
		w.decide(answer{result: Result{Verdict: FromStore, Remaining: h.remainingLocked(now)}})
	}
	h.dropLocked()
	return tokens
}

// rearmLocked sets the low-water mark for the next top-up.
func (h *Holder) rearmLocked(d *draw, g *Grant, now int64) {
	if d.req.Want > 0 && g.Surplus == 0 {
		// No budget, or none left: callers ask for themselves, and this replica tries again later.
		h.mu.busy.nextTop = now + int64(jitter(h.pool.opts.horizon(&d.req.Terms), 0.5, 1.5))
		h.mu.busy.spared = d.req.Held > 0 && g.Level >= 1
	}
	left := h.local.Left(now)
	if left == 0 {
		return
	}
	low := left / 2
	if d.pays {
		// Before the time to empty is down to two round trips.
		low = max(low, int64(math.Ceil(float64(h.mu.demand.tokens)*2*float64(h.pool.rtt.get()))))
	}
	h.local.Arm(min(low, left-1))
}

// lowWater tops up, in the background, after a spend that found the leases low. The lock it takes is held over no call to
// the store.
func (h *Holder) lowWater() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lowWaterLocked(h.pool.exact())
}

func (h *Holder) lowWaterLocked(now int64) {
	b := h.seeLocked()
	switch {
	case h.is(closed) || b.pressed != nil: // the next tick will see to it
	case b.flying: // looked at again when the draw under way has landed
		h.mu.busy.low = true
	case (now < b.nextTop && (h.local.Left(now) > 0 || !b.spared)) || (b.failure != nil && now < b.nextAsk),
		h.pool.breaker.open(h) != nil, h.pool.flying.Load() >= maxFlying:
		h.local.Arm(h.local.Left(now) / 2)
	default:
		h.busyLocked().topUp = true
		h.flyLocked()
	}
}

// pressLocked keeps a pressed replica asking in the background, at the pace of the horizon, until a draw finds that nobody
// was refused since the one before.
func (h *Holder) pressLocked(d *draw, now int64) {
	b := h.mu.busy
	if b.pressed != nil {
		b.pressed.Stop()
		b.pressed = nil
	}
	if d.req.Horizon == 0 || h.is(closed) || h.pool.closed.Load() {
		return
	}
	var tick *time.Timer // one that has fired may wait for the lock and find another in its place
	tick = time.AfterFunc(max(jitter(d.req.Horizon, 0.5, 1.5), time.Duration(b.nextAsk-now)), func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if b.pressed != tick || h.is(closed) || h.pool.closed.Load() {
			return
		}
		b.pressed = nil
		if !h.pressedLocked() {
			now := h.pool.exact()
			h.local.Arm(h.local.Left(now) / 2)
			h.restLocked(now)
			return
		}
		b.topUp = true
		h.flyLocked()
	})
	b.pressed = tick
}

// failOver gives the calls waiting for an overdue draw to the failure policy. The draw itself goes on: a late grant is
// not lost, and until it is answered or given up no further one hangs beside it.
func (h *Holder) failOver(d *draw) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if d.landed {
		return
	}
	now, b := h.pool.exact(), h.mu.busy
	if timeout := int64(h.pool.opts.Timeout); now < d.sent+timeout {
		for _, w := range b.waiters {
			if w.since+timeout <= now {
				w.decide(answer{err: errLate})
			}
		}
		h.dropLocked()
		d.late.Reset(h.patienceLocked(d, now))
		return
	}
	d.failed, b.overdue = true, true
	b.failure = errLate
	h.failWaitersLocked()
	h.pool.breaker.failed(h, errLate, now)
}

// patienceLocked is how long after now the draw is late, or the first of its calls, which may have waited for another before.
func (h *Holder) patienceLocked(d *draw, now int64) time.Duration {
	due := d.sent
	for _, w := range h.mu.busy.waiters {
		due = min(due, w.since)
	}
	return time.Duration(max(1, due+int64(h.pool.opts.Timeout)-now))
}

// failLocked takes note of a failed draw and gives every call that waits, once, to the failure policy.
func (h *Holder) failLocked(now int64, err error) {
	h.pool.count.Failures.Add(1)
	h.pauseLocked(now, err)
	h.local.Arm(h.local.Left(now) / 2)
	h.failWaitersLocked()
}

// pauseLocked notes a failure, and keeps draws from following at once.
func (h *Holder) pauseLocked(now int64, err error) {
	b := h.busyLocked()
	b.failures++
	b.failure = err
	b.nextAsk = now + int64(jitter(pause(b.failures), 0.5, 1))
}

func (h *Holder) failWaitersLocked() {
	for _, w := range h.mu.busy.waiters {
		w.decide(answer{err: h.mu.busy.failure})
	}
	h.dropLocked()
}

// decide answers a call, once.
func (w *waiter) decide(a answer) {
	if !w.decided {
		w.decided = true
		w.done <- a
	}
}

// refusedOnce reports whether one draw was made for w and did not bring its tokens.
func (w *waiter) refusedOnce() bool { return w.rounds == 1 }

// dropLocked takes the decided calls out of the queue.
func (h *Holder) dropLocked() {
	b := h.mu.busy
	b.waiters = slices.DeleteFunc(b.waiters, func(w *waiter) bool { return w.decided })
}

type panicError struct{ value any }

func (e panicError) Error() string { return fmt.Sprintf("panic: %v", e.value) }
