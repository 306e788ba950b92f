package lease

import (
	"github.com/leaselimit/leaselimit/localbucket"
)

// This file keeps the books of a holder: what was spent, what of it is reported, what goes back.

// observeLocked tells the demand what was asked since the last draw. It reports whether calls were refused, and the smallest
// cost of them.
func (h *Holder) observeLocked(now int64) (refused bool, smallest int64) {
	o := h.pool.sized()
	most := o.maxHold(h.Limit().Capacity)
	spent, extra := h.spentLocked(), h.extra.Load()
	tokens := spent - h.mu.spentSeen
	n := tokens - (extra - h.mu.extraSeen)
	h.mu.spentSeen, h.mu.extraSeen = spent, extra
	calls, freshTokens, fresh, smallest := h.refused.takeLocked()
	refused = calls > 0
	if smallest > most { // calls dearer than what may be held draw for themselves, and press nobody
		refused, smallest, freshTokens, fresh = false, 0, 0, 0
	}
	tokens += freshTokens + h.mu.asked[0]
	n += fresh + h.mu.asked[1]
	h.mu.asked = [2]int64{}
	h.mu.demand.observe(now, max(0, tokens), max(0, n), h.pool.opts.TTL)
	return refused, smallest
}

// meter is a leaky bucket over what this replica admitted of a tenant. It is looked at with each draw, and drained after it
// was filled, so it never shows more than there was: what it shows above the capacity is overshoot for certain.
type meter struct {
	level, peak float64
	at          int64
	seen        int64 // tokens admitted ever, as of at
}

// meterLocked brings the meter up to date.
func (h *Holder) meterLocked(now int64) {
	m := &h.mu.meter
	admitted := h.spentLocked() + h.mu.paid - h.tried.Load()
	m.level += float64(admitted - m.seen) // less, where some were given back
	m.level = max(0, m.level-float64(now-m.at)*h.Limit().PerMillisecond()/1e6)
	m.peak = max(m.peak, m.level)
	m.at, m.seen = now, admitted
}

// Overshoot is by how much, as a fraction of the capacity, this replica alone is known to have admitted more than capacity +
// refill*t in some window; 0 if it did not. What the other replicas admitted comes on top.
func (h *Holder) Overshoot() float64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.meterLocked(h.pool.clock.exact())
	c := float64(h.Limit().Capacity)
	if c <= 0 {
		return 0
	}
	return max(0, h.mu.meter.peak-c) / c
}

// askedLocked notes the demand of a call that begins to wait.
func (h *Holder) askedLocked(cost int64) {
	if o := h.pool.sized(); cost <= o.maxHold(h.Limit().Capacity) {
		h.mu.asked[0] += cost
		h.mu.asked[1]++
	}
}

// spentLocked is the number of tokens ever spent from leases.
func (h *Holder) spentLocked() int64 {
	n := h.mu.spentEnded
	for l := range h.local.All() {
		n += l.Spent()
	}
	return n
}

// reportLocked gives what was spent and not yet reported, and forgets it: a report is sent at most once.
func (h *Holder) reportLocked() (reports [2]Report) {
	for l := range h.local.All() {
		spent := l.Spent()
		h.oweLocked(l.Epoch(), spent-l.Reported)
		l.Reported = spent
	}
	reports, h.mu.owed = h.mu.owed, [2]Report{}
	return reports
}

// outLocked is how much of this replica's surplus the store counts as out, as far as this replica knows.
func (h *Holder) outLocked() int64 {
	n := h.mu.owed[0].Tokens + h.mu.owed[1].Tokens
	for l := range h.local.All() {
		n += l.Granted() - l.Reported
	}
	return n
}

// oweLocked notes n tokens spent of an epoch. Only the last two epochs matter: older ones have aged out in the store.
func (h *Holder) oweLocked(epoch, n int64) {
	if n <= 0 {
		return
	}
	owed := &h.mu.owed
	for i := range owed {
		if owed[i].Tokens > 0 && owed[i].Epoch == epoch {
			owed[i].Tokens += n
			return
		}
	}
	oldest := 0
	if owed[1].Tokens == 0 || (owed[0].Tokens > 0 && owed[1].Epoch < owed[0].Epoch) {
		oldest = 1
	}
	if owed[oldest].Tokens == 0 || owed[oldest].Epoch < epoch {
		owed[oldest] = Report{Epoch: epoch, Tokens: n}
	}
}

// endLocked closes a lease that has left the bucket and reports what of it was unspent, and what was spent and not reported.
func (h *Holder) endLocked(l *localbucket.Lease) (unspent, unreported int64) {
	unspent, spent := l.Close()
	h.mu.spentEnded += spent
	return unspent, spent - l.Reported
}

// pruneLocked drops leases that are exhausted or whose window has passed.
func (h *Holder) pruneLocked(now int64) {
	for _, l := range h.local.Remove(func(l *localbucket.Lease) bool { return l.Left() == 0 || now >= l.Deadline() }) {
		unspent, spent := h.endLocked(l)
		h.pool.stranded(h.key, unspent)
		h.oweLocked(l.Epoch(), spent)
	}
}

// sweep returns the leases that are in the last tenth of their window, and has the holder swept again when the next one
// is.
func (h *Holder) sweep() {
	h.mu.Lock()
	defer h.mu.Unlock()
	now, window := h.pool.clock.exact(), int64(h.pool.opts.window())
	h.pruneLocked(now)
	h.giveBackLocked(h.local.Remove(func(l *localbucket.Lease) bool { return now >= l.Deadline()-window/10 }))
	if first := h.local.First(); first != nil {
		h.pool.expiry.schedule(h, first.Deadline()-window/10)
		h.local.Arm(h.local.Left(now) - 1)
	}
}

// strand ends all leases without returning them: their windows may have passed.
func (h *Holder) strand() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, l := range h.local.Remove(func(*localbucket.Lease) bool { return true }) {
		unspent, spent := h.endLocked(l)
		h.pool.stranded(h.key, unspent)
		h.oweLocked(l.Epoch(), spent)
	}
}

// giveBackLocked closes leases that have left the bucket and returns what they hold.
func (h *Holder) giveBackLocked(leases []*localbucket.Lease) {
	for _, l := range leases {
		unspent, spent := h.endLocked(l)
		if unspent == 0 {
			h.oweLocked(l.Epoch(), spent)
			continue
		}
		h.sendBackLocked(Return{Key: h.key, Terms: *h.terms.Load(), Epoch: l.Epoch(), Unspent: unspent, Spent: spent})
	}
}

// sendBackLocked sends tokens back that nobody here can spend any more. From now on the bucket may hold them.
func (h *Holder) sendBackLocked(item Return) {
	n := item.Unspent + item.Waiters
	h.mu.sent += n
	if m := h.mark.Load(); m != nil {
		h.mark.Store(m.Plus(n))
	}
	h.local.Note(min(h.Limit().Capacity, h.level.Add(n)))
	h.pool.returns.add(h, item)
}

// arrived is told that n tokens sent back are in the bucket, or lost.
func (h *Holder) arrived(n int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.home += n
}

// Close returns the leases of h. Calls that wait are still answered; later ones fail with ErrRetired, or ErrClosed if the
// pool is closed.
func (h *Holder) Close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.mu.closed {
		return
	}
	h.mu.closed = true
	h.mark.Store(nil) // a handle that still has this holder has to look for the next
	if h.mu.pressed != nil {
		h.mu.pressed.Stop()
		h.mu.pressed = nil
	}
	h.pool.expiry.remove(h)
	h.giveBackLocked(h.local.Remove(func(*localbucket.Lease) bool { return true }))
}

// Spent reports the tokens ever spent from leases, the calls among them that were decided from a lease, and the calls that
// the pre-check refused.
func (h *Holder) Spent() (tokens, calls, refused int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.countsLocked()
}

// countsLocked is Spent. After Retire it stays as it was then.
func (h *Holder) countsLocked() (tokens, calls, refused int64) {
	tokens = h.spentLocked()
	if h.retired.Load() {
		return tokens, h.mu.final.calls, h.mu.final.refused
	}
	return tokens, tokens - h.extra.Load(), h.refused.local.Load() + h.refused.ones.Load()
}

// Retire closes h and takes its counts, as Spent reports them, out of it. What calls under way count later goes to the
// pool's counters.
func (h *Holder) Retire() (tokens, calls, refused int64) {
	h.Close()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.retired.Swap(true) {
		return h.countsLocked()
	}
	tokens = h.spentLocked()
	h.mu.final.calls = tokens - h.extra.Swap(0)
	h.mu.final.refused = h.refused.local.Swap(0) + h.refused.ones.Swap(0)
	return tokens, h.mu.final.calls, h.mu.final.refused
}

// Held is the number of tokens in leases now, ready or not.
func (h *Holder) Held() int64 { return h.local.Left(h.pool.clock.exact()) }
