package lease

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// breaker keeps the holders of a pool from a store that does not answer. While it is open nothing waits for the store and
// nothing is drawn; one goroutine probes until an answer comes in time, and ends (docs/adr/0010).
//
// A call that a lease or the pre-check decides never looks at it. What is wrong with a single bucket does not count, nor do
// failures between answers: so the dead part of a Cluster does not keep anybody from the rest.
//
//	          3 failures in a row and no answer for a timeout, or 1 s of failures
//	closed ────────────────────────────────────────────────────────────────────────► open
//	   ▲                                                                               │ probe, one at a time, after a
//	   └───────────────────── a probe is answered in time ◄────────────────────────────┘ pause of 25 to 250 ms
//
// The first probe comes without a pause.
type breaker struct {
	pool *Pool

	opened   atomic.Bool
	failures atomic.Int64 // in a row
	since    atomic.Int64 // when the first of them was
	answer   atomic.Int64 // when the store answered last
	cause    atomic.Pointer[StoreError]
	asker    atomic.Pointer[Holder] // who was turned away last
	good     atomic.Pointer[Holder] // who was answered last
	hanging  atomic.Int64           // probes that were given up and have not ended

	mu struct {
		sync.Mutex
		stop  context.CancelFunc // of the goroutine that probes, while open
		begin int64              // of the present outage
		past  int64              // length of the earlier ones
	}
}

const (
	openAfter = 3
	openFor   = int64(time.Second)

	// maxHanging is the most probes under way, with a client that does not mind its context: as many as are begun within
	// 3 s, the timeout of such a client.
	maxHanging = 16

	longAgo = -int64(1) << 62
)

func (b *breaker) init(p *Pool) {
	b.pool = p
	b.answer.Store(longAgo)
}

// open is why a call cannot have the store, or nil. h is the one that would ask.
func (b *breaker) open(h *Holder) *StoreError {
	if !b.opened.Load() {
		return nil
	}
	if b.asker.Load() != h {
		b.asker.Store(h)
	}
	return b.cause.Load()
}

// answered is told of an answer to h in time. If the breaker is open, only a probe's counts.
func (b *breaker) answered(h *Holder, now int64) {
	if b.opened.Load() {
		return
	}
	if b.good.Load() != h {
		b.good.Store(h)
	}
	b.answer.Store(now)
	if b.failures.Load() > 0 {
		b.failures.Store(0)
	}
}

// failed is told of a call to the store that failed, once for each, whoever waited for it.
func (b *breaker) failed(h *Holder, err error, now int64) {
	e, ok := errors.AsType[*StoreError](err)
	if !ok {
		e = &StoreError{Op: "acquire", Reason: ReasonOf(err), Err: err}
	}
	b.pool.count.Failed(e.Reason).Add(1)
	if e.Reason.ofBucket() {
		b.answered(h, now)
		return
	}
	if b.opened.Load() {
		return
	}
	b.cause.Store(e)
	b.asker.Store(h)
	if b.failures.Load() == 0 {
		b.since.Store(now) // before it counts: another that fails at the same time would go by an older one
	}
	b.failures.Add(1)
	b.consider(now)
}

// consider opens the breaker if it is time.
func (b *breaker) consider(now int64) {
	n := b.failures.Load()
	if n == 0 || b.opened.Load() {
		return
	}
	silent := now-b.answer.Load() >= int64(b.pool.opts.Timeout)
	if (n < openAfter || !silent) && now-b.since.Load() < openFor {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.opened.Load() || !b.pool.enter() {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	b.mu.stop, b.mu.begin = cancel, now
	b.opened.Store(true)
	go b.run(ctx)
}

// run probes until the store answers or the pool is closed. The first probe is at once, for whoever was answered last: where a part of
// a Cluster is away and the rest has nothing to ask, that is all that there is to it, and nobody is told. It tells of the change of
// state from here, because callers hold locks.
func (b *breaker) run(ctx context.Context) {
	defer b.pool.work.Done()
	if h := b.good.Load(); h != nil {
		if b.probe(ctx, h) {
			b.close()
			return
		}
		if ctx.Err() != nil { // it was Close that ended the probe
			return
		}
	}
	tell := b.pool.opts.OnStore
	if tell != nil {
		tell(b.cause.Load(), 0)
	}
	for try := 1; ; try++ {
		if !sleep(ctx, jitter(pause(try), 0.5, 1)) {
			return
		}
		if b.probe(ctx, b.asker.Load()) {
			break
		}
	}
	lasted := b.close()
	if tell != nil {
		tell(nil, lasted)
	}
}

// probe asks for nothing, in a step that writes: a replica and a full store must not pass for one that works.
func (b *breaker) probe(ctx context.Context, h *Holder) bool {
	if b.hanging.Load() >= maxHanging {
		return false
	}
	p := b.pool
	req := AcquireRequest{Key: h.Key(), Terms: *h.terms.Load()}
	b.hanging.Add(1)
	_, err := attempt(ctx, p, "acquire", func(ctx context.Context) (Grant, error) {
		defer b.hanging.Add(-1)
		return p.store.Acquire(ctx, req)
	})
	if err == nil || ReasonOf(err).ofBucket() {
		return true
	}
	if ctx.Err() == nil {
		p.count.Failed(ReasonOf(err)).Add(1)
	}
	return false
}

func (b *breaker) close() time.Duration {
	now := b.pool.exact()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mu.stop()
	lasted := now - b.mu.begin
	b.mu.past += lasted
	b.failures.Store(0)
	b.answer.Store(now)
	b.opened.Store(false)
	return time.Duration(lasted)
}

// end has run end, for good. The breaker stays as it is.
func (b *breaker) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.mu.stop != nil {
		b.mu.stop()
	}
}

// StoreState is what a pool thinks of its store.
type StoreState struct {
	Failing bool          // the last call failed
	Open    bool          // nothing waits for the store
	Down    time.Duration // how long it was open, in all
}

// StoreState reports what p thinks of its store.
func (p *Pool) StoreState() StoreState {
	b := &p.breaker
	b.mu.Lock()
	defer b.mu.Unlock()
	s := StoreState{Failing: b.failures.Load() > 0, Open: b.opened.Load(), Down: time.Duration(b.mu.past)}
	if s.Open {
		s.Down += time.Duration(p.exact() - b.mu.begin)
	}
	return s
}

// pause is how long the store is left alone after as many failures in a row. Its most, and a timeout, is how long a store that is
// back stays unnoticed.
func pause(failures int) time.Duration {
	return min(250*time.Millisecond, 50*time.Millisecond<<min(failures-1, 10))
}

// sleep reports false if ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}
