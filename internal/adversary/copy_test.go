package adversary_test

import (
	"context"
	"math"
	"time"

	"github.com/leaselimit/leaselimit/lease"
)

// copied is a test-only copy of the rules of a shared bucket, in fewer words than scripts/bucket.lua has, with each of them to
// be switched off. With all of them on it is as safe as the original; the tests of the oracle show that without any one of
// them it is not.
type copied struct {
	off     string
	buckets map[lease.Key]*shared
}

type shared struct {
	capacity, budget, share, rate, tau float64
	tokens, last, epoch, cur, prev     float64
}

func newCopied(off string) *copied { return &copied{off: off, buckets: map[lease.Key]*shared{}} }

func ms() float64 { return float64(time.Now().UnixMicro()) / 1000 }

func (c *copied) load(key lease.Key, t lease.Terms) *shared {
	b := c.buckets[key]
	if b == nil {
		b = &shared{
			capacity: float64(t.Limit.Capacity), budget: float64(t.Budget), share: float64(t.Share),
			rate: t.Limit.PerMillisecond(), tau: float64(t.TTL.Milliseconds()),
		}
		b.tokens, b.last, b.epoch = b.capacity, ms(), ms()
		c.buckets[key] = b
	}
	return b
}

func (c *copied) top(b *shared) float64 {
	if c.off == "refill cap" {
		return b.capacity
	}
	return min(b.capacity, b.capacity+b.budget-b.cur-b.prev)
}

func (c *copied) fill(b *shared, to float64) {
	if top := c.top(b); to > b.last {
		if b.tokens < top {
			b.tokens = min(top, b.tokens+(to-b.last)*b.rate)
		}
		b.last = to
	}
}

// refill brings b up to date under its own terms, which then make room for t.
func (c *copied) refill(b *shared, t lease.Terms) {
	if c.off == "the past is priced at its own terms" {
		b.budget = float64(t.Budget)
	}
	now := ms()
	if c.off == "R2: piecewise across borders" {
		// All borders first, then the whole refill under the new cap.
		for range 2 {
			if now >= b.epoch+b.tau && b.cur+b.prev > 0 {
				b.epoch, b.prev, b.cur = b.epoch+b.tau, b.cur, 0
			}
		}
	}
	for range 2 {
		if b.cur+b.prev > 0 && now >= b.epoch+b.tau {
			c.fill(b, b.epoch+b.tau)
			b.epoch, b.prev, b.cur = b.epoch+b.tau, b.cur, 0
		}
	}
	c.fill(b, now)
	tau := float64(t.TTL.Milliseconds())
	switch {
	case b.cur+b.prev == 0:
		b.epoch, b.tau = math.Floor(now), tau
	case tau > b.tau && c.off != "the longest trust window counts":
		b.tau, b.cur, b.prev = tau, b.cur+b.prev, 0
	}
	b.budget, b.share = float64(t.Budget), float64(t.Share)
	if c.off != "a cut of the budget takes tokens" {
		b.tokens = min(b.tokens, max(0, c.top(b)))
	}
}

func (c *copied) settle(b *shared, epoch, n float64) (taken float64) {
	switch {
	case c.off == "R3: epochs are named":
		taken = min(b.cur, n)
		b.cur -= taken
		b.prev = max(0, b.prev-(n-taken))
		return n
	case epoch == b.epoch:
		taken = min(b.cur, n)
		b.cur -= taken
	case epoch == b.epoch-b.tau:
		taken = min(b.prev, n)
		b.prev -= taken
	}
	return taken
}

// refillAndReport is how Acquire and Take begin.
func (c *copied) refillAndReport(key lease.Key, t lease.Terms, reports [2]lease.Report) *shared {
	b := c.load(key, t)
	first := c.off == "R1: refill before reports"
	if !first {
		c.refill(b, t)
	}
	for _, r := range reports {
		c.settle(b, float64(r.Epoch), float64(r.Tokens))
	}
	if first {
		c.refill(b, t)
	}
	return b
}

func whole(v float64) float64 { return max(0, math.Floor(v+1e-9)) }

func (c *copied) Acquire(_ context.Context, req lease.AcquireRequest) (lease.Grant, error) {
	b := c.refillAndReport(req.Key, req.Terms, req.Reports)
	waiters := min(float64(req.Need), whole(b.tokens))
	if waiters < float64(req.Min) {
		waiters = 0
	}
	b.tokens -= waiters
	surplus := 0.0
	if free := b.share - b.cur - b.prev; free >= 1 {
		surplus = min(float64(req.Want), math.Floor(free), whole(b.tokens))
	}
	b.tokens -= surplus
	if c.off != "surplus is counted" {
		b.cur += surplus
	}
	return lease.Grant{
		Waiters: int64(waiters), Surplus: int64(surplus), Ready: int64(surplus), Epoch: int64(b.epoch), At: b.last,
	}, nil
}

func (c *copied) Return(_ context.Context, items []lease.Return) error {
	for _, r := range items {
		b := c.load(r.Key, r.Terms)
		c.refill(b, r.Terms)
		c.settle(b, float64(r.Epoch), float64(r.Spent))
		n := c.settle(b, float64(r.Epoch), float64(r.Unspent))
		late := max(0, b.last-r.At) * b.rate
		if c.off == "late waiters' tokens are credited less the refill" {
			late = 0
		}
		n += max(0, float64(r.Waiters)-late)
		if top := c.top(b); b.tokens < top {
			b.tokens = min(top, b.tokens+n)
		}
	}
	return nil
}

func (c *copied) Take(_ context.Context, charges []lease.Charge) (r lease.TakeReply, err error) {
	for _, x := range charges { // there is one
		b := c.refillAndReport(x.Key, x.Terms, x.Reports)
		if cost := float64(x.Cost); cost <= whole(b.tokens) {
			b.tokens -= cost
			r.Allowed = true
		}
	}
	return r, nil
}

func (c *copied) Peek(context.Context, lease.Key, lease.Terms) (lease.State, error) {
	panic("not used")
}

func (c *copied) Reset(context.Context, lease.Key) error { panic("not used") }
