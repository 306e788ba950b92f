package leaselimit

import (
	"hash/maphash"
	"math/bits"
	"sync/atomic"

	"github.com/leaselimit/leaselimit/lease"
)

// table finds tenants by their names. Lookups take no lock; put and remove take turns (tenants.mu). It is ours because a lookup is
// most of what a call by name costs beside the clock: with pointers to tenants that know their names it looks at one cache line
// before the tenant's own, and takes a third of the memory of a map (docs/adr/0012).
//
// A tenant is in one of the groups that its hash names, in the first that had room. Nothing is moved within a table: what a lookup
// finds, or misses, is so at some time while it looks.
type table struct {
	seed   maphash.Seed
	groups atomic.Pointer[[]group] // a power of two; replaced as a whole
	count  int
}

// group is a cache line of a table.
type group struct {
	tags  atomic.Uint64 // a byte of the hash for each slot, 0 where it is empty
	slots [groupSize]atomic.Pointer[tenant]
	next  atomic.Pointer[group] // for what has no room here
}

const (
	groupSize = 6
	maxLoad   = 5 // tenants for each group, on average

	lowBits = 0x0101010101010101
	topBits = 0x8080808080808080
)

func (b *table) init() {
	b.seed = maphash.MakeSeed()
	b.groups.Store(new(make([]group, 1)))
}

// place is the group where name is looked for first, and its tag.
func place(groups []group, hash uint64) (*group, uint64) {
	return &groups[hash&uint64(len(groups)-1)], hash>>56 | 1
}

// load returns the tenant whose [lease.TenantName] is name's, or nil.
func (b *table) load(name string) *tenant {
	name = lease.TenantName(name)
	g, tag := place(*b.groups.Load(), maphash.String(b.seed, name))
	for ; g != nil; g = g.next.Load() {
		// Bytes that equal the tag become 0, and the lowest bit that is set here is of the first of them; later lowBits may be wrong
		// (Mycroft's test), which the name tells.
		x := g.tags.Load() ^ tag*lowBits
		for hit := (x - lowBits) &^ x & topBits; hit != 0; hit &= hit - 1 {
			i := bits.TrailingZeros64(hit) / 8
			if i >= groupSize {
				break
			}
			if t := g.slots[i].Load(); t != nil && t.name() == name {
				return t
			}
		}
	}
	return nil
}

// put adds a tenant whose name is not in the table.
func (b *table) put(t *tenant) {
	b.count++
	groups := *b.groups.Load()
	if b.count > maxLoad*len(groups) {
		groups = b.resized(2 * len(groups))
		b.groups.Store(&groups)
	}
	b.insert(groups, t)
}

// resized is a copy of the table with n groups.
func (b *table) resized(n int) []group {
	groups := make([]group, n)
	for t := range b.all {
		b.insert(groups, t)
	}
	return groups
}

func (b *table) insert(groups []group, t *tenant) {
	g, tag := place(groups, maphash.String(b.seed, t.name()))
	for {
		tags := g.tags.Load()
		for i := range groupSize {
			if tags>>(8*i)&0xff == 0 {
				g.slots[i].Store(t)
				g.tags.Store(tags | tag<<(8*i))
				return
			}
		}
		if g.next.Load() == nil {
			g.next.Store(new(group))
		}
		g = g.next.Load()
	}
}

// remove takes a tenant out of the table.
func (b *table) remove(t *tenant) {
	groups := *b.groups.Load()
	g, _ := place(groups, maphash.String(b.seed, t.name()))
	for ; g != nil; g = g.next.Load() {
		for i := range groupSize {
			if g.slots[i].Load() == t {
				g.tags.Store(g.tags.Load() &^ (0xff << (8 * i)))
				g.slots[i].Store(nil)
				b.count--
				if len(groups) > 1 && 4*b.count < maxLoad*len(groups) {
					b.groups.Store(new(b.resized(len(groups) / 2)))
				}
				return
			}
		}
	}
}

// all yields every tenant. Like put and remove it has its turn.
func (b *table) all(yield func(*tenant) bool) {
	for i := range *b.groups.Load() {
		for g := &(*b.groups.Load())[i]; g != nil; g = g.next.Load() {
			for j := range groupSize {
				if t := g.slots[j].Load(); t != nil && !yield(t) {
					return
				}
			}
		}
	}
}
