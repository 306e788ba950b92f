package lease

import (
	"container/heap"
	"sync"
	"time"
)

// expiry knows when which holder has a lease in the last tenth of its window, to have it returned. It is a heap with one
// entry for each holder that holds leases and one timer, which is set only while there is an entry.
//
// While leases are held the timer also goes off every second to see whether the machine was suspended.
type expiry struct {
	pool *Pool

	mu    sync.Mutex // taken under a holder's lock, never the other way round
	heap  dueHeap
	timer *time.Timer
	ended bool
}

// schedule has h swept at due, or earlier if it is scheduled already. Called under h's lock.
func (e *expiry) schedule(h *Holder, due int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ended {
		return
	}
	place := &h.lends().due
	switch {
	case place.index < 0:
		place.at = due
		heap.Push(&e.heap, h)
	case due < place.at:
		place.at = due
		heap.Fix(&e.heap, place.index)
	default:
		return
	}
	if place.index == 0 {
		e.setLocked()
	}
}

func (e *expiry) setLocked() {
	if e.ended || len(e.heap) == 0 {
		return
	}
	wait := min(time.Duration(e.heap[0].due().at-e.pool.exact()), time.Second)
	if e.timer == nil {
		e.timer = time.AfterFunc(wait, e.fire)
	} else {
		e.timer.Reset(wait)
	}
}

// fire sweeps the holders that are due.
func (e *expiry) fire() {
	e.pool.lookAtClock()
	now := e.pool.exact()
	for h := e.dueAt(now); h != nil; h = e.dueAt(now) {
		h.sweep()
	}
}

// dueAt is a holder that is due. It stays in the heap until its sweep has it moved or removed, so that endAll finds it there all the
// while that it holds leases. Without one the timer is set.
func (e *expiry) dueAt(now int64) *Holder {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.heap) > 0 && e.heap[0].due().at <= now {
		return e.heap[0]
	}
	e.setLocked()
	return nil
}

// move has h, which was swept, swept again at due. Called under h's lock.
func (e *expiry) move(h *Holder, due int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if place := h.due(); place.index >= 0 {
		place.at = due
		heap.Fix(&e.heap, place.index)
	}
}

// endAll ends all leases of the pool, whose windows may have passed unseen.
func (e *expiry) endAll() {
	e.mu.Lock()
	holders := append([]*Holder(nil), e.heap...)
	e.mu.Unlock()
	for _, h := range holders {
		h.strand()
	}
}

// remove takes h out. Called under h's lock.
func (e *expiry) remove(h *Holder) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if s := h.spends.Load(); s != nil && s.due.index >= 0 {
		heap.Remove(&e.heap, s.due.index)
	}
}

func (e *expiry) stop() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.ended = true
	if e.timer != nil {
		e.timer.Stop()
	}
	for _, h := range e.heap {
		h.due().index = -1
	}
	e.heap = nil
}

// due is a holder's place in the heap, guarded by expiry.mu.
type due struct {
	at    int64
	index int // -1: not in it
}

// due is the place of a holder that was ever in the heap.
func (h *Holder) due() *due { return &h.spends.Load().due }

type dueHeap []*Holder

func (d dueHeap) Len() int           { return len(d) }
func (d dueHeap) Less(i, j int) bool { return d[i].due().at < d[j].due().at }

func (d dueHeap) Swap(i, j int) {
	d[i], d[j] = d[j], d[i]
	d[i].due().index, d[j].due().index = i, j
}

func (d *dueHeap) Push(x any) {
	h := x.(*Holder)
	h.due().index = len(*d)
	*d = append(*d, h)
}

func (d *dueHeap) Pop() any {
	old := *d
	h := old[len(old)-1]
	old[len(old)-1] = nil
	*d = old[:len(old)-1]
	h.due().index = -1
	return h
}
