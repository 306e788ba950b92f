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

// share is a plain token bucket of one replica's share of a limit, for calls that the store does not decide. Whatever this
// replica admits is taken out of it all the time, so that an outage does not begin with a burst on top of what was just
// admitted, and leases that are spent during one are part of the share. Guarded by the holder's mutex.
type share struct {
	known  bool
	tokens float64
	at     int64
	seen   int64 // tokens admitted, as of at

	granted granted
	lacked  int64 // when calls were refused for lack of tokens; 0 = never
}

// granted is the mean rate at which the store granted tokens, by a half-life like that of the demand, from the first grant on.
type granted struct {
	tokens, span float64 // of the past, the older the less; span in ns
	at           int64   // 0 = never
}

func (g *granted) add(now, tokens int64, tau time.Duration) {
	if g.at == 0 {
		g.at = now
		return
	}
	dt := float64(max(0, now-g.at))
	keep := math.Exp2(-dt / halfLife(tau))
	g.tokens, g.span, g.at = g.tokens*keep+float64(tokens), g.span*keep+dt, now
}

func (g *granted) rate() float64 {
	if g.span <= 0 {
		return 0
	}
	return g.tokens / g.span
}

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
func (s *share) contended(p part, tau time.Duration) part {
	if s.lacked > 0 && float64(s.granted.at-s.lacked) <= halfLife(tau) {
		p.rate = min(p.rate, max(s.granted.rate(), p.rate/4))
	}
	return p
}

// feed brings the bucket up to now: admitted tokens were, ever.
func (s *share) feed(p part, now, admitted int64) {
	if !s.known {
		s.known, s.tokens, s.at, s.seen = true, p.capacity, now, admitted
	}
	s.tokens = min(p.capacity, s.tokens+float64(max(0, now-s.at))*p.rate)
	s.tokens = max(0, s.tokens-float64(max(0, admitted-s.seen)))
	s.at, s.seen = max(s.at, now), admitted
}

func (s *share) take(p part, cost int64) (ok bool, retry time.Duration) {
	if s.tokens+1e-9 >= float64(cost) {
		s.tokens = max(0, s.tokens-float64(cost))
		return true, 0
	}
	return false, s.retry(p, cost)
}

func (s *share) left() int64 { return int64(s.tokens + 1e-9) }

func (s *share) retry(p part, cost int64) time.Duration {
	switch {
	case s.tokens+1e-9 >= float64(cost):
		return 0
	case float64(cost) > p.capacity || p.rate <= 0:
		return retryUnknown // not never: the store may be back
	}
	wait := math.Ceil((float64(cost) - s.tokens) / p.rate)
	if wait >= math.MaxInt64 {
		return Never - 1
	}
	return time.Duration(max(wait, float64(time.Millisecond)))
}

// feedLocked keeps the share up to date.
func (h *Holder) feedLocked(now int64) part {
	p := h.mu.share.contended(partOf(h.Limit(), h.pool.Replicas()), h.pool.opts.TTL)
	h.mu.share.feed(p, now, h.spentLocked()+h.mu.paid)
	return p
}

// grantedLocked notes for the share what a draw brought, and whether it or calls before it lacked tokens.
func (h *Holder) grantedLocked(now, tokens int64, lacked bool) {
	s := &h.mu.share
	s.granted.add(now, tokens, h.pool.opts.TTL)
	if lacked {
		s.lacked = now
	}
}

// SpendShare decides on a call from this replica's share of the limit, without the store. A refusal is for now: its
// RetryAfter is never Never.
func (h *Holder) SpendShare(limit quota.Limit, cost int64) (ok bool, left int64, retry time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.relimitLocked(limit)
	p := h.feedLocked(h.pool.clock.exact())
	ok, retry = h.mu.share.take(p, cost)
	return ok, h.mu.share.left(), retry
}

// PeekShare is what is left of the share, and when a cost of 1 could pass.
func (h *Holder) PeekShare(limit quota.Limit) (left int64, retry time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.relimitLocked(limit)
	p := h.feedLocked(h.pool.clock.exact())
	return h.mu.share.left(), h.mu.share.retry(p, 1)
}

// GiveShare puts back n tokens of the share, for a call that another limit refuses.
func (h *Holder) GiveShare(limit quota.Limit, n int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.relimitLocked(limit)
	p := h.feedLocked(h.pool.clock.exact())
	h.mu.share.tokens = min(p.capacity, h.mu.share.tokens+float64(n))
}

// Idle reports whether forgetting h loses nothing but memory: what was admitted of late is made up for, so that the share would be
// full again in an outage, too.
func (h *Holder) Idle() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := h.feedLocked(h.pool.clock.exact())
	return len(h.mu.waiters) == 0 && !h.mu.flying && h.mu.share.tokens+1e-9 >= p.capacity
}
