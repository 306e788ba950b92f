package lease

import (
	"time"

	"github.com/leaselimit/leaselimit/quota"
)

// A View is a snapshot of what this replica knows of one tenant.
type View struct {
	Limit  quota.Limit
	Budget int64 // tokens by which all replicas together may overshoot
	Share  int64 // most tokens that may be leased out over all replicas

	Calls   int64   // decided from a lease
	Refused int64   // by the pre-check
	Rate    float64 // calls a second asked of this replica lately, refused ones too; those dearer than MaxHold are not in it

	Level     int64         // whole tokens in the shared bucket by its last answer
	Answered  time.Duration // how long ago that was; below 0 if nothing is kept of it
	Held      int64         // tokens in leases
	Leases    []LeaseView   // the oldest first
	Waiting   int           // calls that wait for a draw
	Pressed   bool          // asks in the background, since callers are refused
	Failure   error         // of the last draw, nil if it was answered
	Overshoot float64       // see [Holder.Overshoot]
}

// A LeaseView is a snapshot of one lease.
type LeaseView struct {
	Epoch         int64
	Granted, Left int64
	Ends          time.Duration // until the end of its trust window
}

// View is a snapshot of h.
func (h *Holder) View() View {
	h.mu.Lock()
	defer h.mu.Unlock()
	now, t, b := h.pool.exact(), h.terms.Load(), h.seeLocked()
	v := View{
		Limit: t.Limit, Budget: t.Budget, Share: t.Share,
		Level: whole(float64(h.level)), Answered: -1, Held: h.local.Left(now),
		Waiting: len(b.waiters), Pressed: b.pressed != nil, Failure: b.failure,
	}
	v.Calls, v.Refused, v.Rate, v.Overshoot = h.activityLocked(now)
	if k := h.mu.heard; k != (heard{}) {
		v.Answered = time.Duration(now - k.local)
	}
	for l := range h.local.All() {
		if ends := l.Deadline() - now; ends > 0 && l.Left() > 0 {
			v.Leases = append(v.Leases, LeaseView{Epoch: l.Epoch(), Granted: l.Granted(), Left: l.Left(), Ends: time.Duration(ends)})
		}
	}
	return v
}

// Activity is Calls, Refused and Rate of [Holder.View], for less.
func (h *Holder) Activity() (calls, refused int64, rate float64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	calls, refused, rate, _ = h.activityLocked(h.pool.exact())
	return calls, refused, rate
}

func (h *Holder) activityLocked(now int64) (calls, refused int64, rate, overshoot float64) {
	b, _ := h.booksLocked(now)
	_, calls, refused = h.countsLocked()
	return calls, refused, float64(b.demand.calls) * float64(time.Second), float64(b.peak)
}
