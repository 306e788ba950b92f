package lease

import "sync/atomic"

// refusals is what only a tenant has that was refused something.
type refusals struct {
	ones  atomic.Int64 // calls of cost 1 refused by the pre-check, ever: no other count has them
	local atomic.Int64 // the others refused by it, ever

	// Since a draw last looked, but for ones: the calls, and their smallest cost, 0 = none.
	calls, least atomic.Int64
	// Not booked yet, but for ones: the tokens and calls that no other count of the demand has.
	tokens, fresh atomic.Int64

	// Guarded by the holder's mutex.
	seen, booked int64 // of ones: what a draw has looked at, and what is booked
	lack         lack
	final        int64 // what Retire counted
}

// refusals is the refusals of h, from now on if there were none.
func (h *Holder) refusals() *refusals {
	if r := h.refused.Load(); r != nil {
		return r
	}
	h.refused.CompareAndSwap(nil, new(refusals))
	return h.refused.Load()
}

// refuse counts a refusal.
func (h *Holder) refuse(cost int64, v Verdict) {
	r := h.refusals()
	r.calls.Add(1)
	switch v {
	case RefusedLocal:
		r.local.Add(1)
		if h.is(retired) {
			h.countLate()
		}
	case RefusedFloor:
		h.pool.count.Floor.Add(1)
	}
	if (v == RefusedLocal || v == RefusedFloor) && cost <= h.maxHold() { // the others were counted when they began to wait
		r.tokens.Add(cost)
		r.fresh.Add(1)
	}
	for {
		least := r.least.Load()
		if (least != 0 && least <= cost) || r.least.CompareAndSwap(least, cost) {
			return
		}
	}
}

// pressedLocked reports whether calls were refused since a draw last looked.
func (h *Holder) pressedLocked() bool {
	r := h.refused.Load()
	return r != nil && (r.calls.Load() > 0 || r.ones.Load() != r.seen)
}

// lookLocked reports whether calls were refused since it was last called, and the smallest cost of them. Calls dearer than what
// may be held draw for themselves, and press nobody.
func (h *Holder) lookLocked() (refused bool, smallest int64) {
	r := h.refused.Load()
	if r == nil {
		return false, 0
	}
	ones := r.ones.Load()
	calls, smallest := r.calls.Swap(0), r.least.Swap(0)
	if ones > r.seen {
		calls, smallest = calls+1, 1
	}
	r.seen = ones
	if calls == 0 || smallest > h.maxHold() {
		return false, 0
	}
	return true, smallest
}

// bookLocked is what was refused that no other count of the demand has, once.
func (r *refusals) bookLocked() (tokens, calls int64) {
	ones := r.ones.Load()
	n := max(0, ones-r.booked) // less only after the holder was retired
	r.booked = ones
	return r.tokens.Swap(0) + n, r.fresh.Swap(0) + n
}

// takeLocal takes the count of what the pre-check refused.
func (r *refusals) takeLocal() int64 { return r.local.Swap(0) + r.ones.Swap(0) }
