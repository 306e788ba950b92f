package localbucket

import (
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync/atomic"
)

// A Bucket is the leases that a replica holds for one tenant, the oldest first. The zero Bucket holds none.
//
// Take, All, Available, Between, Left and When are lock-free and may run at any time. Add, Split, Remove, Arm and Note change the leases or
// look at several as one: their callers take turns (the holder's mutex).
//
// The leases are a list from one to the next, so that the first, which most spends are of, is one step away. A lease that is
// removed keeps its next one: whoever is looking at it finds the others.
type Bucket struct {
	first atomic.Pointer[Lease]
}

// All yields the leases, the oldest first.
func (b *Bucket) All() iter.Seq[*Lease] {
	return func(yield func(*Lease) bool) {
		for l := b.first.Load(); l != nil; l = l.next.Load() {
			if !yield(l) {
				return
			}
		}
	}
}

// First is the oldest lease, or nil.
func (b *Bucket) First() *Lease { return b.first.Load() }

// Take spends n tokens of the oldest lease that has as many ready. It reports that lease and how many it has left.
func (b *Bucket) Take(now, n int64) (l *Lease, left int64, ok bool) {
	l = b.first.Load()
	if l == nil {
		return nil, 0, false
	}
	if n == 1 && now < l.plain {
		if left, ok := l.one(); ok {
			return l, left, true
		}
	}
	return l.takeOn(now, n)
}

// takeOn is Take from l on.
func (l *Lease) takeOn(now, n int64) (*Lease, int64, bool) {
	for ; l != nil; l = l.next.Load() {
		if left, ok := l.Take(now, n); ok {
			return l, left, true
		}
	}
	return nil, 0, false
}

// Split spends n tokens of several leases together, all or none.
func (b *Bucket) Split(now, n int64) bool {
	leases := slices.Collect(b.All())
	taken := make([]int64, len(leases))
	rest := n
	for i, l := range leases {
		taken[i] = l.TakeUpTo(now, rest)
		if rest -= taken[i]; rest == 0 {
			return true
		}
	}
	for i, l := range leases {
		if taken[i] > 0 {
			l.Undo(taken[i])
		}
	}
	return false
}

// Available is the number of tokens that can be spent now.
func (b *Bucket) Available(now int64) (n int64) {
	for l := range b.All() {
		n += l.Available(now)
	}
	return n
}

// Between is the fewest and the most tokens that can be spent at some time from now to late, if none is until then: some may become
// ready meanwhile, and some may end. With late == now both are Available.
func (b *Bucket) Between(now, late int64) (fewest, most int64) {
	for l := b.first.Load(); l != nil; l = l.next.Load() {
		left := l.left.Load()
		if late < l.grant.Deadline {
			fewest += max(0, left-l.later(now))
		}
		if now < l.grant.Deadline {
			most += max(0, left-l.later(late))
		}
	}
	return fewest, most
}

// Left is the number of tokens that can be spent now or later.
func (b *Bucket) Left(now int64) (n int64) {
	for l := range b.All() {
		if now < l.Deadline() {
			n += l.Left()
		}
	}
	return n
}

// When is the first moment at which one of the leases has n tokens ready, if nothing is spent until then; ok is false if
// there never will be as many in one lease.
func (b *Bucket) When(now, n int64) (at int64, ok bool) {
	for l := b.first.Load(); l != nil; l = l.next.Load() {
		if t, has := l.When(now, n); has && (!ok || t < at) {
			at, ok = t, true
		}
	}
	return at, ok
}

// Add appends l.
func (b *Bucket) Add(l *Lease) {
	end := &b.first
	for at := end.Load(); at != nil; at = end.Load() {
		end = &at.next
	}
	end.Store(l)
}

// Remove takes out of the list, and gives back, the leases for which gone reports true. They are not closed.
func (b *Bucket) Remove(gone func(*Lease) bool) (removed []*Lease) {
	end := &b.first // what points to the next lease to be kept
	for l := range b.All() {
		if gone(l) {
			removed = append(removed, l)
			continue
		}
		if end.Load() != l {
			end.Store(l)
		}
		end = &l.next
	}
	if end.Load() != nil {
		end.Store(nil)
	}
	return removed
}

// Arm sets the low-water mark of the bucket, low tokens left in all, on the one lease that will be in use when it is
// reached.
func (b *Bucket) Arm(low int64) {
	leases := slices.Collect(b.All())
	armed := false
	for i, l := range slices.Backward(leases) {
		left := l.Left()
		if !armed && (low < left || i == 0) {
			l.SetLow(low)
			armed = true
			continue
		}
		l.SetLow(-1)
		low -= left
	}
}

// Note counts for each lease what there is when it is spent: the leases after it, and shared tokens more.
func (b *Bucket) Note(shared int64) {
	leases := slices.Collect(b.All())
	for _, lease := range slices.Backward(leases) {
		lease.behind.Store(shared)
		shared += lease.Left()
	}
}

// String lists the leases as "epoch:left/granted", for tests and logs.
func (b *Bucket) String() string {
	var s strings.Builder
	for l := range b.All() {
		if s.Len() > 0 {
			s.WriteByte(' ')
		}
		fmt.Fprintf(&s, "%d:%d/%d", l.grant.Epoch, l.Left(), l.grant.Tokens)
	}
	return s.String()
}
