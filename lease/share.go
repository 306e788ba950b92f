package lease

import (
	"math"
	"time"

	"github.com/leaselimit/leaselimit/quota"
)

// unknownReplicas is how many replicas there are where nobody knows.
const unknownReplicas = 4

// retryUnknown is the RetryAfter of what this replica's share can never give: nobody knows when the store will be back.
const retryUnknown = time.Second

// lack is what a tenant was granted whose calls were refused for lack of tokens.
type lack struct {
	granted granted
	last    int64 // when the last was refused
}

// granted is the mean rate at which the store granted tokens, by a half-life like that of the demand, from the first lack on.
type granted struct {
	tokens, span float64 // of the past, the older the less; span in ns
	at           int64
}

func (g *granted) add(now, tokens int64, tau time.Duration) {
	dt := float64(max(0, now-g.at))
	keep := math.Exp2(-dt / halfLife(tau))
	g.tokens, g.span, g.at = g.tokens*keep+float64(tokens), g.span*keep+dt, now
}

func (g *granted) rate() float64 { return g.tokens / g.span }

// part is the size of a share: tokens, tokens per nanosecond.
type part struct{ capacity, rate float64 }

// partOf is the limit over the replicas, with a capacity of at least one token.
func partOf(limit quota.Limit, replicas int) part {
	n := float64(unknownReplicas)
	if replicas > 0 {
		n = float64(replicas)
	}
	return part{
		capacity: math.Max(1, math.Floor(float64(limit.Capacity)/n)),
		rate:     limit.PerMillisecond() / 1e6 / n,
	}
}

// contended limits the part to what this replica was granted, where calls were refused of late: then that is what it can get,
// and there may be more replicas than are known. Where none were, it tells what was asked and not what there is. A quarter
// stays in any case, for the count is seldom wrong and an outage may be long (docs/adr/0011).
func (k *lack) contended(p part, tau time.Duration) part {
	if k.granted.span > 0 && float64(k.granted.at-k.last) <= halfLife(tau) {
		p.rate = min(p.rate, max(k.granted.rate(), p.rate/4))
	}
	return p
}

// grantedLocked notes what a draw brought, and whether it or calls before it lacked tokens.
func (h *Holder) grantedLocked(now, tokens int64, lacked bool) {
	tau, r := h.pool.opts.TTL, h.refused.Load()
	if lacked {
		r = h.refusals()
	}
	if r == nil {
		return
	}
	k := &r.lack
	switch {
	case k.last > 0:
		k.granted.add(now, tokens, tau)
	case lacked:
		k.granted.at = now
	}
	if lacked {
		k.last = now
	}
}

// take takes cost out of the share.
func (b *books) take(p part, cost int64) (ok bool, retry time.Duration) {
	if b.share+1e-9 >= float64(cost) {
		b.share = max(0, b.share-float64(cost))
		return true, 0
	}
	return false, b.retry(p, cost)
}

// left is what is left of the share.
func (b *books) left() int64 { return int64(b.share + 1e-9) }

// retry is when the share could have cost.
func (b *books) retry(p part, cost int64) time.Duration {
	switch {
	case b.share+1e-9 >= float64(cost):
		return 0
	case float64(cost) > p.capacity || p.rate <= 0:
		return retryUnknown // not never: the store may be back
	}
	wait := math.Ceil((float64(cost) - b.share) / p.rate)
	if wait >= math.MaxInt64 {
		return Never - 1
	}
	return time.Duration(max(wait, float64(time.Millisecond)))
}

// SpendShare decides on a call from this replica's share of the limit, without the store. A refusal is for now: its
// RetryAfter is never Never.
func (h *Holder) SpendShare(limit quota.Limit, cost int64) (ok bool, left int64, retry time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.relimitLocked(limit)
	p := h.keepLocked(h.pool.exact())
	ok, retry = h.mu.take(p, cost)
	return ok, h.mu.left(), retry
}

// PeekShare is what is left of the share, and when a cost of 1 could pass.
func (h *Holder) PeekShare(limit quota.Limit) (left int64, retry time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.relimitLocked(limit)
	p := h.keepLocked(h.pool.exact())
	return h.mu.left(), h.mu.retry(p, 1)
}

// GiveShare puts back n tokens of the share, for a call that another limit refuses.
func (h *Holder) GiveShare(limit quota.Limit, n int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.relimitLocked(limit)
	p := h.keepLocked(h.pool.exact())
	h.mu.share = min(p.capacity, h.mu.share+float64(n))
}

// Idle reports whether forgetting h loses nothing but memory: what was admitted of late is made up for, so that the share would be
// full again in an outage, too.
func (h *Holder) Idle() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := h.pool.exact()
	p, b := h.keepLocked(now), h.seeLocked() // what was admitted is taken out now, and the next round finds it made up for
	h.restLocked(now)
	return len(b.waiters) == 0 && !b.flying && h.mu.share+1e-9 >= p.capacity
}
