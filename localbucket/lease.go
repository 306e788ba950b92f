// Package localbucket is the arithmetic of tokens that a replica may spend without asking: leases, and the bucket of leases
// held for one tenant. It starts nothing, waits for nothing and reads no clock: the caller passes now, in nanoseconds of
// any monotonic clock, always the same one.
//
// What is not promised: that a token is spent before its lease ends, or that a refusal means that the tenant is over its
// limit. Both are for the caller to know.
package localbucket

import (
	"math"
	"sync/atomic"
)

// closed is what a lease's counter is set to when its tokens have left it: so low that no number of late Adds makes it
// positive.
const closed = math.MinInt64 / 2

// Grant describes a new lease. Times are in nanoseconds of the caller's clock, counts in tokens.
type Grant struct {
	Epoch    int64 // the name under which the store counts it
	Tokens   int64
	Deadline int64 // first moment at which it may not be spent any more

	// A future-dated lease: Ready tokens may be spent at once, the Next ones from From on, one more every Spacing after.
	// Otherwise Ready is Tokens.
	Ready, Next   int64
	From, Spacing int64

	ID int64 // by which its owner tells it from others
}

// A Lease is a batch of tokens. All methods are safe for concurrent use; none locks.
type Lease struct {
	// What spends read and write is one cache line: with many tenants in turn each line is waited for, and callers of a hot tenant
	// need the line of the counter as their own in any case.

	// At or below 0 the lease is exhausted: spends of one token go below 0 by as many as met the exhaustion at the same time, and
	// from then on only read.
	left   atomic.Int64
	plain  int64 // the deadline of a lease whose tokens are all ready from the start, and before any time of others
	low    atomic.Int64
	behind atomic.Int64
	next   atomic.Pointer[Lease] // in its bucket
	staged bool

	// Reported is for the owner of the lease to note how much of what was spent it has reported. The lease ignores it;
	// the owner guards it.
	Reported int64
	grant    Grant // from the line's last word on: a Lease takes two
}

// NewLease returns a lease of g's tokens with no low-water mark.
func NewLease(g Grant) *Lease {
	l := &Lease{grant: g, plain: g.Deadline, staged: g.Ready < g.Tokens}
	if l.staged {
		l.plain = math.MinInt64
	}
	l.left.Store(g.Tokens)
	l.low.Store(-1)
	return l
}

// ID is what the lease's owner calls it.
func (l *Lease) ID() int64 { return l.grant.ID }

// Epoch is the name under which the store counts the lease.
func (l *Lease) Epoch() int64 { return l.grant.Epoch }

// Granted is the number of tokens that the lease was made of.
func (l *Lease) Granted() int64 { return l.grant.Tokens }

// Deadline is the first moment at which the lease may not be spent any more.
func (l *Lease) Deadline() int64 { return l.grant.Deadline }

// Take spends n tokens, n > 0, all or none, and reports how many are left that are ready.
func (l *Lease) Take(now, n int64) (left int64, ok bool) {
	if n == 1 && now < l.plain {
		return l.one()
	}
	if now >= l.grant.Deadline {
		return 0, false
	}
	// Adding and undoing would be quicker, but between the two a smaller call could be refused what is there.
	later := l.later(now)
	for {
		v := l.left.Load()
		if v-later < n {
			return 0, false
		}
		if l.left.CompareAndSwap(v, v-n) {
			return v - n - later, true
		}
	}
}

// one spends a token of a lease whose window has not passed and whose tokens are all ready.
func (l *Lease) one() (left int64, ok bool) {
	if l.left.Load() < 1 {
		return 0, false
	}
	left = l.left.Add(-1)
	return left, left >= 0
}

// TakeUpTo spends as many tokens as are ready, at most n, and reports how many.
func (l *Lease) TakeUpTo(now, n int64) int64 {
	if now >= l.grant.Deadline {
		return 0
	}
	later := l.later(now)
	for {
		v := l.left.Load()
		k := min(v-later, n)
		if k <= 0 {
			return 0
		}
		if l.left.CompareAndSwap(v, v-k) {
			return k
		}
	}
}

// Undo puts back n tokens that were taken from this lease, and reports whether they could be: not after it was closed.
func (l *Lease) Undo(n int64) bool {
	for {
		v := l.left.Load()
		if v < closed/2 {
			return false
		}
		if l.left.CompareAndSwap(v, max(v, 0)+n) {
			return true
		}
	}
}

// Close takes all tokens out of the lease, for good, and reports how many had not been spent and how many had.
func (l *Lease) Close() (unspent, spent int64) {
	unspent = max(0, l.left.Swap(closed))
	return unspent, l.grant.Tokens - unspent
}

// Next is the lease after this one in its bucket, or nil.
func (l *Lease) Next() *Lease { return l.next.Load() }

// Left is the number of unspent tokens, ready or not.
func (l *Lease) Left() int64 { return max(0, l.left.Load()) }

// Spent is the number of tokens spent so far of a lease that is not closed.
func (l *Lease) Spent() int64 { return l.grant.Tokens - l.Left() }

// Available is the number of tokens that can be spent now.
func (l *Lease) Available(now int64) int64 {
	if now >= l.grant.Deadline {
		return 0
	}
	return max(0, l.left.Load()-l.later(now))
}

// When is the moment at which n tokens will be ready if none is spent until then; ok is false if there never will be.
func (l *Lease) When(now, n int64) (at int64, ok bool) {
	k := l.grant.Tokens - l.Left() + n // the number in the lease's order of the last token needed
	switch {
	case k > l.grant.Tokens:
		return 0, false
	case k <= l.ready(now):
		at = now
	case k <= l.grant.Ready+l.grant.Next:
		at = l.grant.From
	default:
		at = l.grant.From + (k-l.grant.Ready-l.grant.Next)*l.grant.Spacing
	}
	return at, at < l.grant.Deadline
}

// SetLow arms the lease's low-water mark: [Lease.Low] reports true once, when left has come down to low. A negative low
// disarms it.
func (l *Lease) SetLow(low int64) { l.low.Store(low) }

// Low reports whether left is at or below the armed low-water mark, and disarms it: of concurrent callers one is told.
func (l *Lease) Low(left int64) bool {
	low := l.low.Load()
	return left <= low && l.low.CompareAndSwap(low, -1)
}

// Behind is what [Bucket.Note] last counted behind this lease: the tokens of younger leases, and what the shared bucket had.
func (l *Lease) Behind() int64 { return l.behind.Load() }

// ready is how many of the tokens granted have become ready.
func (l *Lease) ready(now int64) int64 {
	g := &l.grant
	if !l.staged {
		return g.Tokens
	}
	if now < g.From {
		return g.Ready
	}
	n := g.Ready + g.Next
	if g.Spacing <= 0 {
		return g.Tokens
	}
	return min(g.Tokens, n+(now-g.From)/g.Spacing)
}

// later is how many of the tokens granted are not ready yet.
func (l *Lease) later(now int64) int64 {
	if !l.staged {
		return 0
	}
	return l.grant.Tokens - l.ready(now)
}
