package lease

import "sync/atomic"

// spends is what only a tenant that has had a lease has.
type spends struct {
	extra atomic.Int64 // see Holder.addExtra
	tried atomic.Int64 // tokens in Parts that are not decided yet
	due   due

	// Guarded by the holder's mutex.
	ended      int64     // spent from leases that are no longer held
	owed       [2]Report // spent and not reported, of leases that are no longer held
	sent, home int64     // tokens given back so far: sent off, and known to have arrived or to be lost
	final      int64     // calls that Retire counted
}

// lends is the spends of h, from now on if there were none.
func (h *Holder) lends() *spends {
	if s := h.spends.Load(); s != nil {
		return s
	}
	s := new(spends)
	s.due.index = -1
	if h.spends.CompareAndSwap(nil, s) {
		return s
	}
	return h.spends.Load()
}

// spentLocked is the number of tokens ever spent from leases, and of the calls that they decided.
func (h *Holder) spentLocked() (tokens, calls int64) {
	s := h.spends.Load()
	if s == nil {
		return 0, 0
	}
	tokens = s.ended
	for l := range h.local.All() {
		tokens += l.Spent()
	}
	return tokens, tokens - s.extra.Load()
}

// sentLocked is the number of tokens given back so far: sent off, and arrived.
func (h *Holder) sentLocked() (sent, home int64) {
	if s := h.spends.Load(); s != nil {
		return s.sent, s.home
	}
	return 0, 0
}

// addExtra counts tokens spent from leases beyond one for each call that FromLease decided.
func (h *Holder) addExtra(n int64) {
	h.lends().extra.Add(n)
	if h.is(retired) {
		h.countLate()
	}
}

// countLate moves what a call counts after its holder was retired, and its counts taken, to the pool's counts. Each is
// moved once: by the swap here or by the one in Retire.
func (h *Holder) countLate() {
	h.pool.count.LateExtra.Add(h.lends().extra.Swap(0))
	if r := h.refused.Load(); r != nil {
		h.pool.count.LateRefused.Add(r.takeLocal())
	}
}
