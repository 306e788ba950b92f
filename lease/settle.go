package lease

import (
	"github.com/leaselimit/leaselimit/localbucket"
)

// This file keeps the books of a holder: what was spent, what of it is reported, what goes back.

// reportLocked gives what was spent and not yet reported, and forgets it: a report is sent at most once.
func (h *Holder) reportLocked() (reports [2]Report) {
	for l := range h.local.All() {
		spent := l.Spent()
		h.oweLocked(l.Epoch(), spent-l.Reported)
		l.Reported = spent
	}
	if s := h.spends.Load(); s != nil {
		reports, s.owed = s.owed, [2]Report{}
	}
	return reports
}

// outLocked is how much of this replica's surplus the store counts as out, as far as this replica knows.
func (h *Holder) outLocked() int64 {
	s := h.spends.Load()
	if s == nil {
		return 0
	}
	n := s.owed[0].Tokens + s.owed[1].Tokens
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
	owed := &h.lends().owed
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

// owedLocked gives what was spent of leases of an epoch that are no longer held, and forgets it.
func (h *Holder) owedLocked(epoch int64) (n int64) {
	owed := &h.lends().owed
	for i := range owed {
		if owed[i].Epoch == epoch {
			n += owed[i].Tokens
			owed[i] = Report{}
		}
	}
	return n
}

// owe takes back reports that were not sent.
func (h *Holder) owe(reports [2]Report) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, r := range reports {
		h.oweLocked(r.Epoch, r.Tokens)
	}
}

// endLocked closes a lease that has left the bucket and reports what of it was unspent, and what was spent and not reported.
func (h *Holder) endLocked(l *localbucket.Lease) (unspent, unreported int64) {
	unspent, spent := l.Close()
	h.lends().ended += spent
	return unspent, spent - l.Reported
}

// pruneLocked drops leases that are exhausted or whose window has passed.
func (h *Holder) pruneLocked(now int64) {
	for _, l := range h.local.Remove(func(l *localbucket.Lease) bool { return l.Left() == 0 || now >= l.Deadline() }) {
		unspent, spent := h.endLocked(l)
		h.pool.stranded(h.Key(), unspent)
		h.oweLocked(l.Epoch(), spent)
	}
}

// sweep returns the leases that are in the last tenth of their window, and has the holder swept again when the next one
// is.
func (h *Holder) sweep() {
	h.mu.Lock()
	defer h.mu.Unlock()
	now, window := h.pool.exact(), int64(h.pool.opts.window())
	h.pruneLocked(now)
	h.giveBackLocked(h.local.Remove(func(l *localbucket.Lease) bool { return now >= l.Deadline()-window/10 }))
	if first := h.local.First(); first != nil {
		h.pool.expiry.move(h, first.Deadline()-window/10)
		h.local.Arm(h.local.Left(now) - 1)
	} else {
		h.pool.expiry.remove(h)
	}
	h.restLocked(now)
}

// strand ends all leases without returning them: their windows may have passed.
func (h *Holder) strand() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.strandLocked()
}

func (h *Holder) strandLocked() {
	for _, l := range h.local.Remove(func(*localbucket.Lease) bool { return true }) {
		unspent, spent := h.endLocked(l)
		h.pool.stranded(h.Key(), unspent)
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
		spent += h.owedLocked(l.Epoch())
		h.sendBackLocked(Return{Key: h.Key(), Terms: *h.terms.Load(), Epoch: l.Epoch(), Unspent: unspent, Spent: spent})
	}
}

// sendBackLocked sends tokens back that nobody here can spend any more. From now on the bucket may hold them.
func (h *Holder) sendBackLocked(item Return) {
	n := item.Unspent + item.Waiters
	h.lends().sent += n
	if m := h.mark.Load(); m != nil {
		h.mark.Store(m.Plus(n))
	}
	h.level = floor32(float64(h.level) + float64(n))
	h.local.Note(min(h.Limit().Capacity, whole(float64(h.level))))
	h.pool.returns.add(h, item)
}

// arrived is told that n tokens sent back are in the bucket, or lost.
func (h *Holder) arrived(n int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lends().home += n
	if b := h.mu.busy; b != nil && b.home != nil {
		close(b.home)
		b.home = nil
	}
}

// Close returns the leases of h. Calls that wait are still answered; later ones fail with ErrRetired, or ErrClosed if the
// pool is closed.
func (h *Holder) Close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.flags.Or(closed)&closed != 0 {
		return
	}
	h.mark.Store(nil) // a handle that still has this holder has to look for the next
	if b := h.mu.busy; b != nil && b.pressed != nil {
		b.pressed.Stop()
		b.pressed = nil
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
	tokens, calls = h.spentLocked()
	s, r := h.spends.Load(), h.refused.Load()
	if h.is(retired) && s != nil {
		calls = s.final
	}
	switch {
	case r == nil:
	case h.is(retired):
		refused = r.final
	default:
		refused = r.local.Load() + r.ones.Load()
	}
	return tokens, calls, refused
}

// Retire closes h and takes its counts, as Spent reports them, out of it. What calls under way count later goes to the
// pool's counters.
func (h *Holder) Retire() (tokens, calls, refused int64) {
	h.Close()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.flags.Or(retired)&retired == 0 {
		if s := h.spends.Load(); s != nil {
			tokens, _ = h.spentLocked()
			s.final = tokens - s.extra.Swap(0)
		}
		if r := h.refused.Load(); r != nil {
			r.final = r.takeLocal()
		}
	}
	return h.countsLocked()
}

// Held is the number of tokens in leases now, ready or not.
func (h *Holder) Held() int64 { return h.local.Left(h.pool.exact()) }
