package quota

import (
	"hash/maphash"
	"math/bits"
	"sync/atomic"
)

// An entry is one answer about one tenant. What does not change with use is not changed at all: a newer answer is a new
// entry in its place.
type entry struct {
	tenant string
	limit  Limit
	err    error
	kind   kind
	at     int64 // when it was looked up, of a good or unknown one
	until  int64 // from then on it is not used
	fails  int   // failed lookups since

	retry int64 // before then it is not looked up again, of one that failed

	due     atomic.Int64 // from then on it is to be looked up again; 0 if it was invalidated, or failed
	claimed atomic.Bool  // somebody has seen to that
	served  atomic.Int64 // uses from due on
	used    atomic.Bool  // since the clock hand last passed

	next atomic.Pointer[entry] // in the bucket; written under the lock of the cache
	slot int                   // in the ring; under the lock
}

// kind says what became of the last lookup.
type kind uint8

const (
	good    kind = iota // a limit
	unknown             // the source does not know the tenant
	kept                // a failure, and here is the answer before it
	failed              // a failure, and this is Default or the error
)

// usable reports whether e may answer now. A nil entry may not.
func (e *entry) usable(now int64) bool { return e != nil && now < e.until }

// touch marks e as in use. It writes only if it has to, so that a hot entry's line stays shared.
func (e *entry) touch() {
	if !e.used.Load() {
		e.used.Store(true)
	}
}

// table is a bounded hash table of entries. find takes no lock, and half of what sync.Map takes for the same
// (docs/adr/0008-quota-cache.md). All else is called under the lock of the cache.
type table struct {
	seed    maphash.Seed
	buckets []atomic.Pointer[entry] // as many as there may be entries, so that they need not grow
	ring    []*entry
	hand    int
	most    int
}

func newTable(most int) *table {
	return &table{seed: maphash.MakeSeed(), most: most, buckets: make([]atomic.Pointer[entry], 1<<bits.Len(uint(most-1)))}
}

func (t *table) bucket(tenant string) *atomic.Pointer[entry] {
	return &t.buckets[maphash.String(t.seed, tenant)&uint64(len(t.buckets)-1)]
}

func (t *table) find(tenant string) *entry {
	e := t.bucket(tenant).Load()
	for e != nil && e.tenant != tenant {
		e = e.next.Load()
	}
	return e
}

// put adds e, in the place of the tenant's old entry or else of one that was evicted. It returns those that are gone.
func (t *table) put(e *entry) (old, evicted *entry) {
	if old = t.unlink(e.tenant); old != nil {
		e.slot = old.slot
		e.used.Store(old.used.Load())
		t.ring[e.slot] = e
	} else if len(t.ring) < t.most {
		e.slot = len(t.ring)
		t.ring = append(t.ring, e)
	} else {
		evicted = t.victim()
		t.unlink(evicted.tenant)
		e.slot = evicted.slot
		t.ring[e.slot] = e
	}
	b := t.bucket(e.tenant)
	e.next.Store(b.Load())
	b.Store(e)
	return old, evicted
}

// unlink takes the entry of tenant out of its bucket. Whoever stands on it at the moment still finds the way on.
func (t *table) unlink(tenant string) *entry {
	link := t.bucket(tenant)
	for e := link.Load(); e != nil; e = link.Load() {
		if e.tenant == tenant {
			link.Store(e.next.Load())
			return e
		}
		link = &e.next
	}
	return nil
}

// maxSteps is how far the hand goes for one eviction before it takes what it meets.
const maxSteps = 64

// victim is an entry that was not used since the hand last passed it (the CLOCK algorithm of Corbató, 1968).
func (t *table) victim() *entry {
	for range maxSteps {
		e := t.ring[t.hand]
		t.hand = (t.hand + 1) % len(t.ring)
		if !e.used.Swap(false) {
			return e
		}
	}
	return t.ring[t.hand]
}
