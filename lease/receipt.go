package lease

import (
	"github.com/leaselimit/leaselimit/localbucket"
)

// A Receipt tells where and when tokens were spent, for those that were not needed to go back the right way. The zero Receipt
// is of tokens whose lease nobody knows any more. It names the lease and does not hold it, since a lease holds all that came after.
type Receipt struct {
	lease int64 // its ID; 0: several, or the shared bucket
	at    int64 // when they were spent, or before, on the pool's clock
	jumps int64 // of the wall clock, until then
}

// Since is the receipt of what is spent from now on, wherever it is taken from.
func (p *Pool) Since() Receipt { return Receipt{at: p.Now(), jumps: p.jumps.Load()} }

func (p *Pool) receipt(l *localbucket.Lease, at int64) Receipt {
	return Receipt{l.ID(), at, p.jumps.Load()}
}

// storeTime is the time on the store's clock at a moment of this replica's, or before. The store stepped at most a round trip
// before the answer came, and the clocks run up to 0.5 % apart.
func (k heard) storeTime(local int64) float64 {
	ms := float64(local-k.local) / 1e6
	if ms > 0 {
		return k.at + ms*(1-clockDrift)
	}
	return k.at + ms*(1+clockDrift)
}

const clockDrift = 0.005

// Refund gives back n tokens. They go into the lease that they are of, as long as it lives and they
// were not reported: what was reported is not counted as out any more, and held all the same it would overshoot. Otherwise
// they go to the store as waiters' tokens do, less what the bucket was refilled with in their place, which nobody can tell unless the
// limit is the same as when they were spent. It fails with ErrClosed.
func (h *Holder) Refund(r Receipt, same bool, n int64) error {
	p := h.pool
	if !p.enter() {
		return ErrClosed
	}
	defer p.work.Done()
	p.lookAtClock()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.refundLocked(r, same, n)
	return nil
}

func (h *Holder) refundLocked(r Receipt, same bool, n int64) {
	for l := range h.local.All() {
		if l.ID() != r.lease || h.pool.exact() >= l.Deadline() {
			continue
		}
		if own := min(n, l.Spent()-l.Reported); own > 0 && l.Undo(own) {
			h.addExtra(-own)
			h.pool.count.Undone.Add(own)
			n -= own
		}
	}
	// Nor can the time be told by a clock that stood still meanwhile, or by a holder that has not heard of the store.
	if n == 0 || !same || h.pool.jumps.Load() != r.jumps || h.mu.heard == (heard{}) {
		return
	}
	h.mu.paid -= n
	h.sendBackLocked(Return{Key: h.Key(), Terms: *h.terms.Load(), Waiters: n, At: h.mu.heard.storeTime(r.at)})
}
