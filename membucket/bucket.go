package membucket

import (
	"math"

	"github.com/leaselimit/leaselimit/internal/wire"
)

// This is the arithmetic of scripts/bucket.lua in Go, line by line, and has to give the same numbers to the bit. So the
// operations stand in the same order, and a product that is summed is converted explicitly, which forbids the compiler to
// fuse the two into one rounding. The reasons for what is done are told there.

const (
	epsilon  = 1e-9                // a deficit below this is none
	maxTTL   = 400 * 86400000.0    // ms: the longest a record lives
	stillTTL = 30 * 86400000.0     // ms: a bucket without refill, after its last use
	never    = float64(wire.Never) // a wait that does not end
)

// record is what is stored of a bucket.
type record struct {
	tokens   float64 // what the bucket held at last; below 0 is debt
	last     float64 // ms, whole where it is stored
	rate     float64 // tokens per ms \
	capacity float64 // tokens         > the terms in force since last
	budget   float64 // tokens        /
	epoch    float64 // ms: start of the current epoch, and its name
	tau      float64 // ms: its length
	cur      float64 // surplus granted in this epoch, less what was reported or returned
	prev     float64 // the same of the epoch before

	expires float64 // ms, on the clock of the store
}

// bucket is a record at work: brought up to a time and under the asker's terms.
type bucket struct {
	record

	exists bool
	dirty  bool // something of it must be stored even if nothing is taken
}

func (b *bucket) out() float64 { return b.cur + b.prev }

func (b *bucket) top() float64 {
	return min(b.capacity, b.capacity+b.budget-b.cur-b.prev)
}

func (b *bucket) fill(to float64) {
	if to <= b.last {
		return
	}
	if top := b.top(); b.tokens < top {
		b.tokens = min(top, b.tokens+float64((to-b.last)*b.rate))
	}
	b.last = to
}

// load is the bucket of record r as it is at now: refilled under the stored terms, its epochs rotated, then under terms t.
func load(r record, exists bool, now float64, t wire.Terms) bucket {
	if !exists {
		r = record{
			tokens: t.Capacity, last: now, rate: t.Rate, capacity: t.Capacity, budget: t.Budget,
			epoch: math.Floor(now), tau: t.Tau,
		}
	}
	b := bucket{record: r, exists: exists}
	if b.last > now {
		b.last = now
		b.dirty = b.exists
	}
	if b.epoch > now {
		b.epoch, b.cur, b.prev = math.Floor(now), b.cur+b.prev, 0
	}

	for range 2 {
		if b.out() > 0 && now >= b.epoch+b.tau {
			b.fill(b.epoch + b.tau)
			b.epoch, b.prev, b.cur = b.epoch+b.tau, b.cur, 0
		}
	}
	b.fill(now)

	b.dirty = b.dirty || b.rate != t.Rate || b.capacity != t.Capacity || b.budget != t.Budget
	b.rate, b.capacity, b.budget = t.Rate, t.Capacity, t.Budget
	switch {
	case b.out() <= 0:
		b.epoch, b.tau = math.Floor(now), t.Tau
	case t.Tau > b.tau:
		b.tau, b.cur, b.prev = t.Tau, b.cur+b.prev, 0
	}
	if kept := max(-b.capacity, min(b.tokens, max(0, b.top()))); kept != b.tokens {
		b.tokens, b.dirty = kept, true
	}
	return b
}

// settle takes n off what is out of an epoch and gives what it took off.
func (b *bucket) settle(epoch, n float64) float64 {
	if n <= 0 {
		return 0
	}
	var taken float64
	switch epoch {
	case b.epoch:
		taken = min(b.cur, n)
		b.cur -= taken
	case b.epoch - b.tau:
		taken = min(b.prev, n)
		b.prev -= taken
	}
	b.dirty = b.dirty || taken > 0
	return taken
}

// credit gives n tokens back, up to the cap.
func (b *bucket) credit(n float64) {
	if top := b.top(); n > 0 && b.tokens < top {
		b.tokens = min(top, b.tokens+n)
		b.dirty = true
	}
}

func (b *bucket) spendable() float64 { return math.Floor(b.tokens + epsilon) }

// retry is the ms until cost could pass if nobody else took anything and no lease came back, or never.
func (b *bucket) retry(cost float64) float64 {
	if b.tokens+epsilon >= cost {
		return 0
	}
	if cost > b.capacity || b.rate <= 0 {
		return never
	}
	at, tokens, cur, prev, epoch := b.last, b.tokens, b.cur, b.prev, b.epoch
	for cur+prev > 0 {
		top := min(b.capacity, b.capacity+b.budget-cur-prev)
		if cost <= top {
			break
		}
		border := epoch + b.tau
		if tokens < top {
			tokens = min(top, tokens+float64((border-at)*b.rate))
		}
		at, epoch, prev, cur = border, border, cur, 0
	}
	return at - b.last + float64(max(0, cost-tokens)/b.rate)
}

// ttl is how long the record must live: until the bucket is full and nothing is out.
func (b *bucket) ttl() float64 {
	if b.rate <= 0 {
		return stillTTL
	}
	full := float64((b.capacity-b.tokens)/b.rate) + float64(2*b.tau) + 1000
	return max(1, min(maxTTL, math.Ceil(full)))
}

// stored is the record of the bucket as of the last whole ms.
func (b *bucket) stored() record {
	r := b.record
	r.last = math.Floor(b.last)
	r.tokens = b.tokens - float64((b.last-r.last)*b.rate)
	r.expires = r.last + b.ttl()
	return r
}
