package localbucket

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
)

// A Bucket is the leases that a replica holds for one tenant, the oldest first. The zero Bucket holds none.
//
// Take, Available, Left and When are lock-free and may run at any time. Add, Split, Remove, Arm and Note change the list or look
// at several leases as one: their callers take turns (the holder's mutex).
type Bucket struct {
	leases atomic.Pointer[[]*Lease] // a list once stored is not changed
}

// Leases is the list of leases, the oldest first, not to be changed.
func (b *Bucket) Leases() []*Lease {
	if p := b.leases.Load(); p != nil {
		return *p
	}
	return nil
}

// Take spends n tokens of the oldest lease that has as many ready. It reports that lease and how many it has left.
func (b *Bucket) Take(now, n int64) (l *Lease, left int64, ok bool) {
	p := b.leases.Load()
	if p == nil {
		return nil, 0, false
	}
	for _, l := range *p {
		if left, ok := l.Take(now, n); ok {
			return l, left, true
		}
	}
	return nil, 0, false
}

// Split spends n tokens of several leases together, all or none.
func (b *Bucket) Split(now, n int64) bool {
	leases := b.Leases()
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
	for _, l := range b.Leases() {
		n += l.Available(now)
	}
	return n
}

// Left is the number of tokens that can be spent now or later.
func (b *Bucket) Left(now int64) (n int64) {
	for _, l := range b.Leases() {
		if now < l.Deadline() {
			n += l.Left()
		}
	}
	return n
}

// When is the first moment at which one of the leases has n tokens ready, if nothing is spent until then; ok is false if
// there never will be as many in one lease.
func (b *Bucket) When(now, n int64) (at int64, ok bool) {
	for _, l := range b.Leases() {
		if t, has := l.When(now, n); has && (!ok || t < at) {
			at, ok = t, true
		}
	}
	return at, ok
}

// Add appends l.
func (b *Bucket) Add(l *Lease) {
	leases := append(slices.Clip(slices.Clone(b.Leases())), l)
	b.leases.Store(&leases)
}

// Remove takes out of the list, and gives back, the leases for which gone reports true. They are not closed.
func (b *Bucket) Remove(gone func(*Lease) bool) (removed []*Lease) {
	var kept []*Lease
	for _, l := range b.Leases() {
		if gone(l) {
			removed = append(removed, l)
		} else {
			kept = append(kept, l)
		}
	}
	if len(removed) == 0 {
		return nil
	}
	if len(kept) == 0 {
		b.leases.Store(nil)
	} else {
		b.leases.Store(&kept)
	}
	return removed
}

// Arm sets the low-water mark of the bucket, low tokens left in all, on the one lease that will be in use when it is
// reached.
func (b *Bucket) Arm(low int64) {
	leases := b.Leases()
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
	leases := b.Leases()
	for _, lease := range slices.Backward(leases) {
		lease.behind.Store(shared)
		shared += lease.Left()
	}
}

// String lists the leases as "epoch:left/granted", for tests and logs.
func (b *Bucket) String() string {
	var s strings.Builder
	for i, l := range b.Leases() {
		if i > 0 {
			s.WriteByte(' ')
		}
		fmt.Fprintf(&s, "%d:%d/%d", l.grant.Epoch, l.Left(), l.grant.Tokens)
	}
	return s.String()
}
