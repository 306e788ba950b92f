package quota

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// A flight is one lookup of one tenant, shared by all who want it.
type flight struct {
	tenant   string
	waiters  int  // calls that wait for it
	waited   bool // it stands, or stood, in the queue of those
	started  bool // it was taken from a queue
	outdated bool // the tenant was invalidated since
	cancel   context.CancelFunc
	done     chan struct{} // closed when limit and err are known
	limit    Limit
	err      error
}

// lookups are the flights, at most one for a tenant. Those not started stand in one of two queues, which take turns: new
// names in any number must not keep known tenants from their refresh, nor the reverse. A flight may stand in both.
type lookups struct {
	flights   map[string]*flight
	waited    []*flight // calls wait for these, at most maxQueue
	refreshes []*flight // as many
	turn      bool      // of refreshes
	working   int       // goroutines, at most MaxLookups
}

// failurePause is how long a failed lookup keeps its place among MaxLookups, so that a source which fails at once is asked
// MaxLookups times in it at most, however many tenants there are.
const failurePause = 50 * time.Millisecond

// wait joins the lookup of tenant, or starts it, and waits for it.
func (c *Cache) wait(ctx context.Context, tenant string) (Limit, error) {
	f, e, err := c.join(tenant)
	if e != nil || err != nil {
		return answer(e, err)
	}
	timeout := time.NewTimer(c.opts.Timeout)
	defer timeout.Stop()
	select {
	case <-f.done:
		return f.limit, f.err
	case <-ctx.Done():
		c.leave(f)
		return Limit{}, ctx.Err()
	case <-c.closing:
		return Limit{}, ErrClosed
	case <-timeout.C:
		return answer(c.giveUp(f), nil)
	}
}

func answer(e *entry, err error) (Limit, error) {
	if err != nil {
		return Limit{}, err
	}
	return e.limit, e.err
}

// join adds a caller to the flight of tenant. It returns an entry instead if one has landed meanwhile.
func (c *Cache) join(tenant string) (*flight, *entry, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed.Load() {
		return nil, nil, ErrClosed
	}
	now := c.clock.now()
	if e := c.table.find(tenant); e.usable(now) {
		e.touch()
		return nil, e, nil
	}
	c.mu.count.misses++
	if len(c.mu.waited) >= c.opts.maxQueue() { // only behind a source that hangs: it would not be this one's turn in time
		e, _ := c.settleLocked(tenant, Limit{}, ErrTimeout)
		return nil, e, nil
	}
	f := c.flightLocked(tenant)
	f.waiters++
	if !f.waited && !f.started {
		f.waited = true
		c.mu.waited = append(c.mu.waited, f)
		c.workLocked()
	}
	return f, nil, nil
}

func (c *Cache) flightLocked(tenant string) *flight {
	f := c.mu.flights[tenant]
	if f == nil {
		f = &flight{tenant: tenant, done: make(chan struct{})}
		c.mu.flights[tenant] = f
	}
	return f
}

func (c *Cache) leave(f *flight) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f.waiters--
}

// giveUp is leave for a caller that has waited for Timeout, which is a failure like any other. It matters where the flight
// has not ended by then: it still stands in the queue, or the source does not heed its context.
func (c *Cache) giveUp(f *flight) *entry {
	c.mu.Lock()
	f.waiters--
	e, say := c.table.find(f.tenant), nothing
	if !e.usable(c.clock.now()) {
		e, say = c.settleLocked(f.tenant, Limit{}, ErrTimeout)
	}
	c.mu.Unlock()
	say()
	return e
}

// refreshLocked queues a flight for the tenant of e.
func (c *Cache) refreshLocked(e *entry) {
	switch {
	case c.closed.Load() || c.mu.flights[e.tenant] != nil:
		return
	case len(c.mu.refreshes) >= c.opts.maxQueue(): // entries were evicted faster than they are refreshed
		e.claimed.Store(false)
		return
	}
	c.mu.count.refreshes++
	c.mu.refreshes = append(c.mu.refreshes, c.flightLocked(e.tenant))
	c.workLocked()
}

// workLocked sees to it that a goroutine takes what was queued.
func (c *Cache) workLocked() {
	if c.mu.working < c.opts.MaxLookups {
		c.mu.working++
		c.workers.Go(c.work)
	}
}

func (c *Cache) work() {
	for {
		f, ctx := c.next()
		if f == nil {
			return
		}
		limit, err := c.ask(ctx, f.tenant)
		if err != nil && (ctx.Err() != nil || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)) {
			err = fmt.Errorf("%w: %v", ErrTimeout, err) //nolint:errorlint // not to be taken for the caller's context
		}
		f.cancel()
		if c.land(f, limit, err) {
			select {
			case <-time.After(failurePause):
			case <-c.closing:
			}
		}
	}
}

// ask asks the source. That it panics is a failure like any other, since no caller of it could recover here.
func (c *Cache) ask(ctx context.Context, tenant string) (limit Limit, err error) {
	defer func() {
		if value := recover(); value != nil {
			err = fmt.Errorf("panic: %v", value)
		}
	}()
	if limit, err = c.src.Limit(ctx, tenant); err == nil {
		err = limit.Validate()
	}
	return limit, err
}

// next takes a flight from the queues. Without one the goroutine has to end.
func (c *Cache) next() (*flight, context.Context) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for !c.closed.Load() {
		f := c.popLocked()
		switch {
		case f == nil:
			c.mu.working--
			return nil, nil
		case f.started || c.mu.flights[f.tenant] != f: // from the other queue, or dropped
		case f.waiters <= 0 && c.table.find(f.tenant) == nil: // nobody wants it any more
			delete(c.mu.flights, f.tenant)
		default:
			var ctx context.Context
			ctx, f.cancel = context.WithTimeout(context.Background(), c.opts.Timeout)
			f.started = true
			c.mu.count.lookups++
			return f, ctx
		}
	}
	c.mu.working--
	return nil, nil
}

func (c *Cache) popLocked() *flight {
	q, other := &c.mu.waited, &c.mu.refreshes
	if c.mu.turn {
		q, other = other, q
	}
	c.mu.turn = !c.mu.turn
	if len(*q) == 0 {
		q = other
	}
	if len(*q) == 0 {
		*q = nil
		return nil
	}
	f := (*q)[0]
	(*q)[0] = nil
	*q = (*q)[1:]
	return f
}

// land stores what a lookup has come to and tells the waiters. It reports whether the source is to be spared for a moment.
func (c *Cache) land(f *flight, limit Limit, err error) (pause bool) {
	say := nothing
	defer func() { say() }() // without the lock: what the logger does is its own affair
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.mu.flights, f.tenant)
	if c.closed.Load() {
		f.err = ErrClosed
		close(f.done)
		return false
	}
	var e *entry
	e, say = c.settleLocked(f.tenant, limit, err)
	f.limit, f.err = e.limit, e.err
	close(f.done)
	if f.outdated {
		e.due.Store(0)
		e.claimed.Store(true)
		c.refreshLocked(e)
	}
	return e.fails > 0 && !errors.Is(err, ErrInvalid)
}

// settleLocked makes an entry of the outcome of a lookup and puts it into the table. say logs it, if that is due.
func (c *Cache) settleLocked(tenant string, limit Limit, err error) (e *entry, say func()) {
	now := c.clock.now()
	old := c.table.find(tenant)
	e = &entry{tenant: tenant, limit: limit, at: now, until: now + int64(c.opts.MaxStale)}
	due := now + jitter(c.opts.TTL)
	switch {
	case err == nil:
	case errors.Is(err, ErrUnknownTenant):
		e.kind = unknown
		e.limit, e.err = c.orDefault(err)
	default:
		e.kind = failed
		if old != nil {
			e.fails = old.fails
		}
		e.fails++
		due = 0 // to be counted, each time
		e.retry = now + jitter(c.opts.pause(e.fails))
		if old.usable(now) && old.kind != failed {
			e.kind, e.limit, e.err, e.at, e.until = kept, old.limit, old.err, old.at, old.until
		} else {
			e.limit, e.err = c.orDefault(fmt.Errorf("quota: lookup failed: %w", err))
			e.until = e.retry
		}
	}
	e.due.Store(due)
	say = c.recordLocked(e, err)
	old, evicted := c.table.put(e)
	c.mu.count.gone(old)
	if c.mu.count.gone(evicted); evicted != nil {
		c.mu.count.evictions++
	}
	return e, say
}

func (c *Cache) orDefault(err error) (Limit, error) {
	if c.opts.Default != nil {
		return *c.opts.Default, nil
	}
	return Limit{}, err
}

// jitter is 0.8 d to d.
func jitter(d time.Duration) int64 { return int64(d) - rand.Int64N(int64(d)/5+1) }
