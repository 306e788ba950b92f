package lease

import (
	"context"
	"crypto/rand"
	"sync/atomic"
	"time"
)

// A Census is a [Store] that knows how many replicas use it. A store that is none leaves it to Options.Replicas.
type Census interface {
	// Present notes that the replica id uses class, for ttl from now on in the store's time, and with a ttl of 0 that it no longer
	// does. It returns how many do. It may be repeated.
	Present(ctx context.Context, class, id string, ttl time.Duration) (replicas int, err error)
}

// census counts the replicas. It rides on draws, so it has neither goroutine nor timer of its own: a replica in use draws at
// least once in a trust window, and one that is not in use is none. What was counted last holds while the store is away.
type census struct {
	pool  *Pool
	store Census // nil if it is not asked
	id    string

	asked atomic.Bool  // ever
	busy  atomic.Bool  // one question at a time
	next  atomic.Int64 // none before
	last  atomic.Int64 // the answer, 0 before the first
	count atomic.Int64 // what is believed, 0 = unknown
}

// askEvery is the time between two questions of a replica, countedFor by how much more than a trust window it is counted after
// one.
const (
	askEvery   = 3 * time.Second
	countedFor = 10 * time.Second
)

func (c *census) init(p *Pool, s Store) {
	c.pool = p
	if store, ok := s.(Census); ok && p.opts.Replicas == 0 {
		c.store, c.id = store, rand.Text()
	}
}

// Replicas is how many replicas there are as far as is known, 0 if it is not.
func (p *Pool) Replicas() int {
	if p.opts.Replicas > 0 {
		return p.opts.Replicas
	}
	return int(p.census.count.Load())
}

// sized is the options with what is known of the replicas.
func (p *Pool) sized() Options {
	o := p.opts
	o.Replicas = p.Replicas()
	return o
}

// drew is told of a draw that was answered. The caller is work that Close waits for.
func (c *census) drew(now int64) {
	if c.store == nil || now < c.next.Load() || !c.busy.CompareAndSwap(false, true) {
		return
	}
	c.next.Store(now + int64(jitter(askEvery, 0.8, 1.2)))
	c.asked.Store(true)
	c.pool.work.Go(c.ask)
}

// leave takes this replica out of the count. The pool is closed.
func (c *census) leave() {
	if c.asked.Load() && c.busy.CompareAndSwap(false, true) {
		c.pool.work.Go(c.ask)
	} // a question under way sees to it
}

func (c *census) ask() {
	p, ttl := c.pool, c.pool.opts.TTL+countedFor
	closed := p.closed.Load()
	if closed {
		ttl = 0
	}
	n, err := ask(p, "present", func(ctx context.Context) (int, error) {
		return p.observed.present(ctx, c.store, p.opts.Class, c.id, ttl)
	})
	switch {
	case err != nil:
		p.count.Failed(ReasonOf(err)).Add(1)
	case !closed:
		c.answered(int64(n))
	}
	c.busy.Store(false)
	if !closed && p.closed.Load() {
		c.leave()
	}
}

// answered takes over a count. A rise is believed at once. A fall has to be confirmed, since after an outage, or a lost key,
// the first to ask is counted alone; and for the same reason few are not believed the first time.
func (c *census) answered(n int64) {
	before := c.last.Swap(n)
	if before == 0 && n < unknownReplicas {
		return
	}
	c.count.Store(max(n, before))
}
