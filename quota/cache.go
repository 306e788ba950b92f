package quota

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
)

// The errors of a [Cache], and of sources behind it.
var (
	// ErrUnknownTenant is what a [Source] returns (or wraps) for a tenant that it knows not to exist. It is an answer, not a
	// failure: a Cache keeps it like any other, and answers with its Default if it has one.
	ErrUnknownTenant = errors.New("quota: unknown tenant")
	// ErrTimeout is matched by the error for a tenant whose lookup took longer than CacheOptions.Timeout. It does not match
	// context.DeadlineExceeded: that is the caller's own deadline.
	ErrTimeout = errors.New("quota: lookup timed out")
	// ErrClosed is returned after [Cache.Close].
	ErrClosed = errors.New("quota: cache is closed")
)

// A Cache is a [Source] that remembers what another one answered, so that a slow source never stands on the path of a
// decision. It is safe for concurrent use. Put it before every source that does not answer from memory.
//
// A tenant never seen, or not looked up for MaxStale, waits for its lookup, at most Timeout; callers of one tenant share
// one. Every other call is answered at once: an answer older than TTL is served while it is looked up again in the
// background. If that fails, the last good answer stays in force until it is MaxStale old. After that, and for a tenant
// never seen, a failed lookup means Default, or an error; it never means unlimited.
//
// What is not promised: that a changed limit is in force within TTL for a tenant that does not call. Its next call, however
// late up to MaxStale, still sees the old limit and has it looked up.
//
// A Cache has no goroutine but lookups under way, and a timer only while it is asked. An unused one needs no Close.
type Cache struct {
	src     Source
	opts    CacheOptions
	clock   clock
	table   *table
	closed  atomic.Bool
	closing chan struct{}
	workers sync.WaitGroup

	mu struct {
		sync.Mutex
		lookups
		log
		count counters
	}
}

// NewCache returns a Cache of src. It starts nothing and asks nothing. Errors name the field of opts and its bound.
func NewCache(src Source, opts CacheOptions) (*Cache, error) {
	if src == nil {
		return nil, errors.New("quota: source is nil")
	}
	opts = opts.withDefaults()
	if err := opts.validate(); err != nil {
		return nil, err
	}
	c := &Cache{src: src, opts: opts, table: newTable(opts.MaxTenants), closing: make(chan struct{})}
	c.clock.init(opts.TTL)
	c.mu.flights = make(map[string]*flight)
	return c, nil
}

// Limit is the limit of tenant as last looked up. It fails with ctx's error, with [ErrUnknownTenant], with the error of a
// lookup for which there is neither a good answer nor a Default, and with [ErrClosed].
func (c *Cache) Limit(ctx context.Context, tenant string) (Limit, error) {
	// Nothing is written here that all callers share, and nothing is counted: that alone would take half as long again.
	if e := c.table.find(tenant); e != nil && c.clock.coarse() < e.due.Load() {
		e.touch()
		return e.limit, e.err
	}
	return c.slow(ctx, tenant)
}

// slow answers where the clock has to be read, a refresh started or a lookup waited for.
func (c *Cache) slow(ctx context.Context, tenant string) (Limit, error) {
	if c.closed.Load() {
		return Limit{}, ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return Limit{}, err
	}
	now := c.clock.now()
	if e := c.table.find(tenant); e.usable(now) {
		c.serve(e, now)
		return e.limit, e.err
	}
	return c.wait(ctx, strings.Clone(tenant)) // not to pin a request that tenant is a part of
}

// serve is one use of e, which has it looked up once if that is due.
func (c *Cache) serve(e *entry, now int64) {
	e.touch()
	if now < e.due.Load() {
		return
	}
	e.served.Add(1)
	if now >= e.retry && !e.claimed.Load() && e.claimed.CompareAndSwap(false, true) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.refreshLocked(e)
	}
}

// Invalidate has the limit of tenant looked up again now, in the background, if it is cached. Until that is done the old
// limit is served. A lookup that is under way may have read the old limit, so it is repeated.
func (c *Cache) Invalidate(tenant string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if f := c.mu.flights[tenant]; f != nil {
		f.outdated = f.started
	} else if e := c.table.find(tenant); e != nil {
		e.due.Store(0)
		e.claimed.Store(true)
		c.refreshLocked(e)
	}
}

// InvalidateAll has the limit of every cached tenant looked up again when the tenant next calls. That call is still
// answered with the old limit.
func (c *Cache) InvalidateAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, f := range c.mu.flights {
		f.outdated = f.started
	}
	for _, e := range c.table.ring {
		e.due.Store(0)
	}
}

// Close cancels the lookups under way and waits for their end. A source that does not heed its context is waited for. Calls
// that wait for a lookup, and all later ones, get [ErrClosed]. Closing again does nothing.
func (c *Cache) Close() {
	c.mu.Lock()
	if !c.closed.Swap(true) {
		c.clock.stop()
		close(c.closing)
		for _, f := range c.mu.flights {
			if f.cancel != nil {
				f.cancel()
			}
		}
	}
	c.mu.Unlock()
	c.workers.Wait()
}
