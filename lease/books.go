package lease

import (
	"math"
	"time"

	"github.com/leaselimit/leaselimit/quota"
)

// books are what is kept of every tenant in memory, whatever it does, so there is little of it: what was admitted, as far as this
// replica's share of the limit and its overshoot go by it, and what was asked for. They are brought up to date with each draw, and
// when the share is asked. Guarded by the holder's mutex.
type books struct {
	at       int64 // up to when they are kept; below 0: they have not begun
	paid     int64 // waiters' tokens spent, ever
	admitted int64 // tokens admitted, ever, as of at

	// meter is a leaky bucket over what this replica admitted of the tenant under the limit that stands. It is drained after it was
	// filled, so it never shows more than there was: what it shows above the capacity is overshoot for certain. peak is the most
	// that it was, as a fraction of the capacity then.
	meter float64

	// share is a plain token bucket of this replica's share of the limit, for calls that the store does not decide. Whatever this
	// replica admits is taken out of it all the time, so that an outage does not begin with a burst on top of what was just
	// admitted, and leases that are spent during one are part of the share.
	share float64

	demand demand
	peak   float32
	seen   asked // by the demand, of all that was asked
	heard  heard
}

// asked counts what callers asked for: tokens, and calls.
type asked struct{ tokens, calls int64 }

// heard is the last answer of the store: its time, in ms of the store's clock, and when it came, on this replica's.
type heard struct {
	at    float64
	local int64
}

// begin opens the books: the share is full, however large it is.
func (b *books) begin() { b.at, b.share = -1, math.Inf(1) }

// keep brings the books up to now: admitted and ever are what was admitted and what was asked, of a limit of which p is the share.
// Who reads the clock first does not always come first, so now may be a little before what is kept already.
func (b *books) keep(now, admitted int64, ever asked, limit quota.Limit, p part, tau time.Duration) {
	first, dt := b.at < 0, max(0, now-b.at)
	if first {
		dt = 0
	}
	n := float64(admitted - b.admitted) // less than nothing, where some were given back
	b.admitted = admitted
	b.meter = max(0, b.meter+n-float64(dt)*limit.PerMillisecond()/1e6)
	if c := float64(limit.Capacity); c > 0 {
		b.peak = max(b.peak, floor32((b.meter-c)/c))
	}
	b.share = min(p.capacity, b.share+float64(dt)*p.rate)
	b.share = max(0, b.share-max(0, n))

	tokens, calls := max(0, ever.tokens-b.seen.tokens), max(0, ever.calls-b.seen.calls)
	switch {
	case first: // the first call starts the first interval, and tells no rate yet
		if calls > 0 {
			b.seen.tokens += tokens / calls
			b.seen.calls++
		}
		b.at = now
	case dt > 0:
		b.demand.observe(dt, tokens, calls, tau)
		b.seen, b.at = ever, now
	}
}

// stale reports whether it is time to keep the books for a draw. Draws may follow one another so quickly that what the demand
// changes by meanwhile is less than a float32 has room for, and it would stand still.
func (b *books) stale(now int64, tau time.Duration) bool {
	return b.at < 0 || now-b.at >= int64(halfLife(tau))>>18
}

// ask notes n calls that ask for some tokens, and that no other count has.
func (b *books) ask(tokens, n int64) {
	b.seen.tokens -= tokens
	b.seen.calls -= n
}

// floor32 is the largest float32 that is not above x.
func floor32(x float64) float32 {
	f := float32(x)
	if float64(f) > x {
		f = math.Nextafter32(f, float32(math.Inf(-1)))
	}
	return f
}

// keepLocked brings the books up to now, and tells the share of the limit. It is for draws and what goes by the share, not for
// whoever looks: the demand is an average over the time between two draws, and estimated more often it would be another.
func (h *Holder) keepLocked(now int64) (p part) {
	h.mu.books, p = h.booksLocked(now)
	return p
}

// booksLocked is what the books would be at now, and the share of the limit.
func (h *Holder) booksLocked(now int64) (books, part) {
	t, r := h.terms.Load(), h.refused.Load()
	p := partOf(t.Limit, h.pool.Replicas())
	spent, calls := h.spentLocked()
	admitted := spent + h.mu.paid
	if s := h.spends.Load(); s != nil {
		admitted -= s.tried.Load()
	}
	if r != nil {
		h.mu.ask(r.bookLocked())
		p = r.lack.contended(p, h.pool.opts.TTL)
	}
	b := h.mu.books
	b.keep(now, admitted, asked{spent, calls}, t.Limit, p, h.pool.opts.TTL)
	h.mu.peak = b.peak
	return b, p
}

// Overshoot is by how much, as a fraction of the capacity, this replica alone is known to have admitted more than capacity +
// refill*t in some window in which the limit stood; 0 if it did not. What the other replicas admitted comes on top.
func (h *Holder) Overshoot() float64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	b, _ := h.booksLocked(h.pool.exact())
	return float64(b.peak)
}

// askedLocked notes the demand of a call that begins to wait. Calls dearer than what may be held draw for themselves, and are no
// demand.
func (h *Holder) askedLocked(cost int64) {
	if cost <= h.maxHold() {
		h.mu.ask(cost, 1)
	}
}

// maxHold is the most surplus that this replica holds.
func (h *Holder) maxHold() int64 {
	o := h.pool.sized()
	return o.maxHold(h.Limit().Capacity)
}
