package lease

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/leaselimit/leaselimit/precheck"
	"github.com/leaselimit/leaselimit/quota"
)

// A Part is one bucket's part of a call that several limits have to let pass: all or nothing. Its parts are tried in memory
// first (Try), then judged by what is known (Judge), and what is missing is taken from the store (Take). Until the whole is
// decided nothing is final: Undo gives back what a part has taken, and Keep makes it final.
//
// What Take takes is not leased: it leaves the bucket and is spent, so the bound does not change. A lease's tokens that are
// undone are counted as out all the while.
type Part struct {
	Holder *Holder
	Limit  quota.Limit
	Cost   int64

	// Owe says that the cost is of what was done already: Take charges it in any case, into bounded debt.
	Owe bool

	// Result is the decision; without a Verdict there is none yet.
	Result Result

	fast    Receipt // of what Try took, all of Cost
	took    bool
	inHand  []piece // what Take took from leases
	bought  int64   // and from the store
	tried   int64   // what of it the holder counts as not decided
	counted bool    // as a call decided from a lease
	leased  bool    // is to be counted as one once it is kept: a count that falls again would be taken for one that began anew
	draw    draw
}

// piece is some tokens of one lease.
type piece struct {
	Receipt

	n int64
}

// Try is [Holder.TrySpend] and [Holder.TryRefuse] in one, whose tokens can be undone. It does not allocate.
func (p *Part) Try() bool {
	h := p.Holder
	if !h.Under(&p.Limit) {
		return false
	}
	now, remaining := h.pool.Now(), int64(0)
	l := h.trySpend(now, p.Limit.Capacity, p.Cost, &remaining)
	if l == nil {
		r, ok := h.TryRefuse(now, p.Cost)
		if ok {
			h.Refused(p.Cost)
			p.Result = r
		}
		return ok
	}
	p.fast, p.took, p.counted = h.pool.receipt(l, now), true, true
	p.Result = Result{Verdict: FromLease, Remaining: remaining}
	return true
}

// Receipt is that of what Try took.
func (p *Part) Receipt() Receipt { return p.fast }

// Hold keeps what Try took out of what is measured as admitted, and of the calls, until Keep or Undo.
func (p *Part) Hold() {
	if p.took {
		p.try(p.Cost)
		p.Holder.addExtra(1)
		p.counted, p.leased = false, true
	}
}

// try counts n tokens as taken and not decided. What is owed is.
func (p *Part) try(n int64) {
	if !p.Owe {
		p.tried += n
		p.Holder.lends().tried.Add(n)
	}
}

// Judge decides on the part without asking, if what is in hand or known of the bucket can. It fails with a *StoreError where the store is known not
// to answer, with ErrClosed, or with ErrRetired.
func (p *Part) Judge() error {
	h := p.Holder
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.is(closed) {
		return h.retiredError()
	}
	now := h.pool.exact()
	h.relimitLocked(p.Limit)
	h.pruneLocked(now)
	if h.local.Available(now) >= p.Cost && p.spendLocked(now) == 0 {
		return nil
	}
	p.undoLocked()
	a, ok := h.judgeLocked(now, p.Cost, 0, false)
	if ok && a.err == nil {
		p.Result = a.result
	}
	return a.err
}

// Take takes all of the parts or none of them: from leases what is in hand, the rest from the store in one trip. The parts are
// of one tenant and one store. Each gets its Result, none if it could have passed and another did not.
//
// It fails with a *StoreError when the store gave no answer in time, with ctx's error, with ErrClosed or ErrRetired. Then nothing
// is taken: what a late answer brings goes back, but for what is owed, and the parts may not be used any more.
func Take(ctx context.Context, parts []*Part) error {
	lead := parts[0].Holder.pool
	for _, p := range parts {
		if o := p.Holder.pool; o.opts.Timeout < lead.opts.Timeout {
			lead = o
		}
	}
	if !lead.enter() {
		return ErrClosed
	}
	asked, charges, err := load(parts)
	if err != nil || len(asked) == 0 {
		lead.work.Done()
		return err
	}

	var told atomic.Bool // of a failure, once: a late answer is one already
	failed := func(err error) {
		if told.CompareAndSwap(false, true) {
			for _, p := range asked {
				p.Holder.pauseAfter(err)
			}
		}
	}
	var left atomic.Bool // whoever sets it first has the last word: the answer, or the caller who leaves
	done := make(chan error, 1)
	go func() {
		defer lead.work.Done()
		lead.count.Draws.Add(1)
		reply, err := ask(lead, "take", func(ctx context.Context) (TakeReply, error) {
			return lead.store.Take(ctx, charges)
		})
		if err != nil {
			lead.count.Failures.Add(1)
			failed(err)
		} else {
			for i, p := range asked {
				if p.land(reply, i); !told.Load() {
					p.Holder.pool.breaker.answered(p.Holder, p.Holder.pool.exact())
				}
			}
		}
		late := !left.CompareAndSwap(false, true)
		if late || err != nil || !reply.Allowed {
			undo(parts)
		}
		done <- err
	}()

	timer := time.NewTimer(lead.opts.Timeout)
	defer timer.Stop()
	select {
	case err = <-done:
		return err
	case <-ctx.Done():
		err = ctx.Err()
	case <-timer.C:
		err = &StoreError{Op: "take", Reason: ReasonTimeout, Err: context.DeadlineExceeded}
		lead.count.Late.Add(1)
		failed(err)
	}
	if !left.CompareAndSwap(false, true) {
		return <-done
	}
	return err
}

// load takes from the leases what is in hand, and makes up the charges for the rest.
func load(parts []*Part) (asked []*Part, charges []Charge, err error) {
	for _, p := range parts {
		missing, reports, err := p.load()
		if err != nil {
			for i, p := range asked {
				p.Holder.owe(charges[i].Reports)
			}
			undo(parts)
			return nil, nil, err
		}
		if missing > 0 {
			asked = append(asked, p)
			charges = append(charges, Charge{
				Key: p.Holder.Key(), Terms: p.draw.req.Terms, Cost: missing, Owe: p.Owe, Reports: reports,
			})
		}
	}
	return asked, charges, nil
}

func (p *Part) load() (missing int64, reports [2]Report, err error) {
	h := p.Holder
	h.mu.Lock()
	defer h.mu.Unlock()
	now := h.pool.exact()
	switch {
	case h.is(closed) && !p.Owe:
		return 0, reports, h.retiredError()
	case h.pool.closed.Load():
		return 0, reports, ErrClosed
	case !h.is(closed):
		h.relimitLocked(p.Limit)
		h.pruneLocked(now)
	}
	short := h.local.Available(now) < p.Cost
	if p.Owe { // a bucket holds one capacity at most, and goes into debt by as much: what is beyond is not charged
		missing = min(p.spendLocked(now), 2*p.Limit.Capacity)
	}
	if short {
		if b := h.seeLocked(); p.Owe && b.failure != nil && now < b.nextAsk {
			return 0, reports, b.failure
		}
		if err := h.pool.breaker.open(h); p.Owe && err != nil {
			return 0, reports, err
		}
		reports = h.reportLocked()
	}
	if !p.Owe { // not before the report: it may come back, and what was reported may not be kept
		missing = p.spendLocked(now)
	}
	p.draw = draw{sent: now, jumps: h.pool.jumps.Load()}
	_, p.draw.home = h.sentLocked()
	p.draw.req = AcquireRequest{Terms: *h.pool.termsOf(p.Limit), Min: missing, Need: missing}
	if missing > 0 && !p.Owe {
		h.askedLocked(p.Cost)
		h.pool.count.Waited.Add(1)
	}
	return missing, reports, nil
}

// spendLocked takes what is in hand, and reports what is missing.
func (p *Part) spendLocked(now int64) (missing int64) {
	h := p.Holder
	missing = p.Cost
	for l := range h.local.All() {
		if n := l.TakeUpTo(now, missing); n > 0 {
			p.inHand = append(p.inHand, piece{h.pool.receipt(l, now), n})
			h.addExtra(n)
			p.try(n)
			missing -= n
		}
	}
	if missing == 0 && !p.Owe {
		p.leased = true
		p.Result = Result{Verdict: FromLease, Remaining: h.remainingLocked(now)}
		h.lowWaterLocked(now)
	}
	return missing
}

// land settles the i-th part of an answer.
func (p *Part) land(reply TakeReply, i int) {
	h, d := p.Holder, &p.draw
	h.mu.Lock()
	defer h.mu.Unlock()
	now, level := h.pool.exact(), reply.Levels[i]
	if b := h.mu.busy; b != nil {
		b.failure, b.failures, b.nextAsk = nil, 0, 0
	}
	h.mu.heard = heard{at: reply.At, local: now}
	g := Grant{Level: level.Tokens, RetryAfter: level.RetryAfter}
	switch {
	case reply.Allowed:
		p.bought, g.Waiters = d.req.Need, d.req.Need
		p.try(p.bought)
		h.mu.paid += p.bought
		h.pool.count.WaiterTokens.Add(p.bought)
	case level.RetryAfter == 0: // it is not this bucket that refuses
		d.req.Need = 0
	}
	h.noteLocked(d, &g, now)
	h.grantedLocked(now, g.Waiters, level.RetryAfter > 0)
	if !h.is(closed) { // Close of its pool may wait for nothing any more
		h.pool.census.drew(now)
	}
	switch {
	case reply.Allowed:
		p.Result = Result{Verdict: FromStore, Remaining: h.remainingLocked(now)}
		if !h.is(closed) && !p.Owe {
			h.lowWaterLocked(now) // the next call finds a lease, if leasing pays
		}
	case level.RetryAfter > 0:
		h.refuse(p.Cost, RefusedStore)
		p.Result = Result{Verdict: RefusedStore, RetryAfter: p.retryAfter(now, level.RetryAfter), Remaining: h.remainingLocked(now)}
	}
	p.Result.Remaining = min(p.Limit.Capacity, p.Result.Remaining)
	h.restLocked(now)
}

// retryAfter is when the refused part could pass: what it took in hand is there again then.
func (p *Part) retryAfter(now int64, wait time.Duration) time.Duration {
	h := p.Holder
	if sent, _ := h.sentLocked(); sent != p.draw.home { // the tokens on their way may be what holds the bucket down
		if m := h.mark.Load(); m != nil {
			wait = min(wait, time.Duration(m.After(now, p.draw.req.Need)))
		}
	}
	if wait == Never {
		return Never
	}
	return max(time.Duration(precheck.Resolution)+min(wait, Never-1-time.Duration(precheck.Resolution)),
		time.Duration(h.seeLocked().nextAsk-now), time.Millisecond)
}

// pauseAfter takes note of a store that did not answer. A fault of one bucket is not one of the others that were asked with it.
func (h *Holder) pauseAfter(err error) {
	h.pool.breaker.failed(h, err, h.pool.exact())
	if ReasonOf(err).ofBucket() {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.pauseLocked(h.pool.exact(), err)
}

// Keep makes final what the part has taken.
func (p *Part) Keep() {
	p.decided()
	if p.leased {
		p.Holder.addExtra(-1)
		p.leased = false
	}
}

// decided ends what try began.
func (p *Part) decided() {
	if p.tried != 0 {
		p.Holder.lends().tried.Add(-p.tried)
		p.tried = 0
	}
}

// Undo gives back what the part has taken, as Refund does. The call is not one that was allowed then.
func (p *Part) Undo() {
	h := p.Holder
	if !p.took && p.bought == 0 && len(p.inHand) == 0 {
		return
	}
	open := h.pool.enter()
	if open {
		defer h.pool.work.Done()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if !open { // there is nobody to give it to: it ages out
		p.took, p.inHand, p.bought = false, nil, 0
	}
	p.undoLocked()
}

func (p *Part) undoLocked() {
	h := p.Holder
	p.decided()
	if p.counted {
		h.addExtra(1)
	}
	same := h.Limit() == p.Limit
	if p.took {
		h.refundLocked(p.fast, same, p.Cost)
	}
	for _, x := range p.inHand {
		h.refundLocked(x.Receipt, same, x.n)
	}
	if p.bought > 0 {
		h.refundLocked(Receipt{at: p.draw.sent, jumps: p.draw.jumps}, same, p.bought)
	}
	p.took, p.counted, p.leased, p.inHand, p.bought = false, false, false, nil, 0
}

// undo undoes the parts but for what is owed.
func undo(parts []*Part) {
	for _, p := range parts {
		if !p.Owe {
			p.Undo()
		}
	}
}
