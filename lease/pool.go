package lease

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leaselimit/leaselimit/quota"
)

// Options are the rules of the protocol for one class of limits. leaselimit.Config documents and validates them; a Pool
// takes them as they are, all set.
type Options struct {
	MaxOvershoot float64       // B as a fraction of capacity
	LeaseShare   float64       // S as a fraction of capacity
	TTL          time.Duration // tau
	LeaseSize    int64         // fixed surplus per draw, 0 = adaptive
	MaxHold      int64         // most surplus held for one tenant, 0 = by capacity and replicas
	Timeout      time.Duration // of one call to the store
	Class        string        // of the buckets
	Replicas     int           // 0 = counted by the store, if it is a Census
	Coarse       time.Duration // resolution of the clock for spends, 0 = exact

	// OnStore, if set, is called when the store has ceased to answer, with why, and when it answers again, with nil and how
	// long it did not: one at a time, in turns, under no lock.
	OnStore func(cause *StoreError, lasted time.Duration)
	Hooks   Hooks
}

// Terms are the terms of a bucket with this limit under these options.
func (o *Options) Terms(l quota.Limit) Terms {
	return Terms{
		Limit:  l,
		Budget: fraction(o.MaxOvershoot, l.Capacity),
		Share:  fraction(o.LeaseShare, l.Capacity),
		TTL:    o.TTL,
	}
}

// fraction is floor(f*n), for f from 0 to 1, without the error that would make 0.1 of 30 less than 3.
func fraction(f float64, n int64) int64 {
	return min(n, int64(math.Floor(f*float64(n)+1e-9)))
}

func (o *Options) replicas() int64 {
	if o.Replicas > 0 {
		return int64(o.Replicas)
	}
	return unknownReplicas
}

// window is how long a lease may be spent, from before it was asked for, on this replica's clock: shorter than tau by what
// this clock may run slower than the store's.
func (o *Options) window() time.Duration {
	return o.TTL - o.TTL/200 - time.Millisecond - 2*o.Coarse
}

// A Pool is what the holders of one limiter share: the store, the options, the clock, the returns, the counts.
//
// NewPool starts nothing. A Pool runs goroutines only for draws and returns under way, and timers only while leases are
// held; after Close there are none.
type Pool struct {
	store    Store // is observed
	opts     Options
	clock    // of everything in the pool; Now is its
	count    Counters
	rtt      peak
	observed *observed
	jumps    atomic.Int64 // of the wall clock: times that the machine was suspended
	terms    atomic.Pointer[Terms]
	leases   atomic.Int64 // that there were

	ctx    context.Context // of every call to the store; done when Close gives up waiting
	cancel context.CancelFunc
	work   sync.WaitGroup // draws and returns under way

	returns returns
	expiry  expiry
	breaker breaker
	census  census
	flying  atomic.Int64 // draws under way
	closing sync.Once
	gate    sync.Mutex // orders enter and Close
	closed  atomic.Bool
}

// NewPool returns a Pool over store.
func NewPool(store Store, opts Options) *Pool {
	o := &observed{store: store, hooks: opts.Hooks}
	p := &Pool{store: o, observed: o, opts: opts}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.startClock(opts.Coarse)
	p.returns.pool = p
	p.expiry.pool = p
	p.breaker.init(p)
	p.census.init(p, store)
	return p
}

// Counters count what the pool's holders did. What they spent each holder knows (Holder.Spent). Every surplus token goes one
// way: SurplusTokens = spent + held + Returned + ReturnLost + Stranded, but for returns under way.
type Counters struct {
	Draws         atomic.Int64 // calls to Acquire and Take
	Failures      atomic.Int64 // of them, failed
	ReturnCalls   atomic.Int64 // calls to Return
	WaiterTokens  atomic.Int64 // granted to waiting callers
	SurplusTokens atomic.Int64 // granted as surplus
	Returned      atomic.Int64 // given back, and known to have arrived
	ReturnLost    atomic.Int64 // given back, and not known to have arrived
	Stranded      atomic.Int64 // leased and expired unspent
	Undone        atomic.Int64 // spent, and put back into their leases: they are held, and not spent any more
	Waited        atomic.Int64 // calls that waited for a draw
	Floor         atomic.Int64 // refusals by the least distance between draws
	Late          atomic.Int64 // draws that were answered after their waiters had been failed over
	LateExtra     atomic.Int64 // see Holder.countLate
	LateRefused   atomic.Int64

	failed [len(reasons)]atomic.Int64
}

// Failed counts the calls to the store, of all kinds, that failed for a reason. One that was given up counts once, as a timeout.
func (c *Counters) Failed(r Reason) *atomic.Int64 {
	i := slices.Index(reasons[:], r)
	if i < 0 {
		i = len(reasons) - 1
	}
	return &c.failed[i]
}

// Counters returns the pool's live counters, to be read only.
func (p *Pool) Counters() *Counters { return &p.count }

// lookAtClock ends all leases, also those on their way, if the machine was suspended.
func (p *Pool) lookAtClock() {
	if p.jumped() {
		p.jumps.Add(1)
		p.expiry.endAll()
	}
}

// termsOf is the terms of a bucket with this limit. Most tenants have the same limit as the one before, and share them.
func (p *Pool) termsOf(l quota.Limit) *Terms {
	if t := p.terms.Load(); t != nil && t.Limit == l {
		return t
	}
	t := p.opts.Terms(l)
	p.terms.Store(&t)
	return &t
}

// ClockLag is the furthest that the coarse clock was seen behind.
func (p *Pool) ClockLag() time.Duration { return time.Duration(p.lag.Load()) }

// Options returns the options of the pool.
func (p *Pool) Options() *Options { return &p.opts }

// Close returns all leases and waits until what is under way has ended, or until ctx is done: then it cancels what is left,
// whose tokens age out in the store, and returns ctx.Err() without waiting for a client that ignores contexts. Holders refuse
// with ErrClosed from the moment it is called. holders are all holders of this pool. Further calls, at the same time too,
// wait in the same way and do nothing else.
func (p *Pool) Close(ctx context.Context, holders func(yield func(*Holder) bool)) error {
	first := false
	p.closing.Do(func() {
		first = true
		p.gate.Lock()
		p.closed.Store(true)
		p.gate.Unlock()
		p.expiry.stop()
		p.breaker.end()
		for h := range holders {
			h.Close()
		}
		p.census.leave()
	})
	done := make(chan struct{})
	go func() {
		p.work.Wait()
		close(done)
	}()
	select {
	case <-done:
		p.cancel()
		p.stopTicks()
		return nil
	case <-ctx.Done():
		if first {
			p.cancel()
			p.stopTicks()
		}
		return ctx.Err()
	}
}

// enter begins work that Close waits for, unless the pool is closed. Draws and returns need no gate: their holders' locks
// order them before Close.
func (p *Pool) enter() bool {
	p.gate.Lock()
	defer p.gate.Unlock()
	if p.closed.Load() {
		return false
	}
	p.work.Add(1)
	return true
}

// jitter is d times a random number from lo to hi.
func jitter(d time.Duration, lo, hi float64) time.Duration {
	return time.Duration(float64(d) * (lo + rand.Float64()*(hi-lo)))
}

// peak follows the high end (about p99) of a series of durations: at once upwards, 1 % a sample downwards.
type peak struct{ ns atomic.Int64 }

func (p *peak) observe(d int64) {
	for {
		v := p.ns.Load()
		if p.ns.CompareAndSwap(v, max(d, v-v/100)) {
			return
		}
	}
}

func (p *peak) get() int64 { return p.ns.Load() }
