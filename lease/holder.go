package lease

import (
	"context"
	"errors"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leaselimit/leaselimit/localbucket"
	"github.com/leaselimit/leaselimit/precheck"
	"github.com/leaselimit/leaselimit/quota"
)

// ErrRetired is returned by a Holder that was closed while its pool was not: its tenant has to be looked up again.
var ErrRetired = errors.New("lease: holder is closed")

// A Verdict says how a call was decided.
type Verdict uint8

// The verdicts. The zero Verdict is none.
const (
	_             Verdict = iota
	FromLease             // allowed: spent from a lease in hand
	FromStore             // allowed: waited for a draw
	RefusedLocal          // refused by the pre-check, without asking
	RefusedStore          // refused by the store's answer
	RefusedFloor          // refused because the store was asked a moment ago; the one refusal that may be wrong about it
	RefusedRounds         // refused after as many draws as one call may wait for
)

// A Result is the decision on one call.
type Result struct {
	Verdict    Verdict
	Remaining  int64         // tokens left as far as this replica knows
	RetryAfter time.Duration // of a refusal: when the same cost could pass; Never if it cannot
}

// Allowed reports whether the call may go on.
func (r Result) Allowed() bool { return r.Verdict == FromLease || r.Verdict == FromStore }

// A Holder holds one tenant's leases in this replica. It is safe for concurrent use, once [Pool.Init] was called for it, and must
// not be copied.
//
// There may be a hundred thousand, most of them of tenants that call now and then. So what only some need is apart, and not
// there until they do: spends, refusals, busy (docs/adr/0012).
type Holder struct {
	// The first cache line has what a call needs that is decided in memory. Only draws write to it, and who first uses it.
	flags   atomic.Uint32
	level   float32 // tokens in the bucket by its last answer; guarded by mu
	tenant  string
	pool    *Pool
	terms   atomic.Pointer[Terms]
	local   localbucket.Bucket
	mark    atomic.Pointer[precheck.Mark]
	refused atomic.Pointer[refusals] // nil: nothing was ever refused

	spends atomic.Pointer[spends] // nil: there never was a lease

	mu struct {
		sync.Mutex
		books
		busy *busy // nil: nothing is under way
	}
}

// The flags of a Holder.
const (
	used uint32 = 1 << iota
	closed
	retired
)

func (h *Holder) is(flag uint32) bool { return h.flags.Load()&flag != 0 }

// Touch marks h as used. It writes only if it has to, so that the first line of a busy tenant stays shared.
func (h *Holder) Touch() {
	if !h.is(used) {
		h.flags.Or(used)
	}
}

// Used reports whether h was touched since it was last called.
func (h *Holder) Used() bool { return h.flags.And(^used)&used != 0 }

// busy is what a Holder needs while calls wait or a draw is under way, and what is to be heeded for a while after one. Guarded by
// the holder's mutex.
type busy struct {
	waiters []*waiter // in the order they came
	flying  bool      // a goroutine is drawing; only it removes waiters it took along
	overdue bool      // its draw is past the timeout: callers are failed over at once

	topUp    bool  // the next draw is wanted even if nobody waits
	low      bool  // the low-water mark was reached while a draw was under way
	spared   bool  // no top-up before nextTop, but for one with nothing in hand: what there was is kept for such replicas
	nextTop  int64 // no top-up before
	nextAsk  int64 // no draw before: the floor after a refusal, or the pause after a failure
	failures int   // in a row
	failure  error // of the last draw, until one succeeds

	pressed *time.Timer   // set while the replica is pressed
	home    chan struct{} // set while a draw waits for tokens on their way back; closed when some have arrived
}

// busyLocked is the busy of h, from now on if there was none.
func (h *Holder) busyLocked() *busy {
	if h.mu.busy == nil {
		h.mu.busy = new(busy)
	}
	return h.mu.busy
}

// seeLocked is a copy of the busy of h.
func (h *Holder) seeLocked() (b busy) {
	if h.mu.busy != nil {
		b = *h.mu.busy
	}
	return b
}

// restLocked drops the busy of h if there is nothing in it.
func (h *Holder) restLocked(now int64) {
	b := h.mu.busy
	if b == nil || len(b.waiters) > 0 || b.flying || b.topUp || b.pressed != nil || b.failure != nil || now < b.nextAsk || now < b.nextTop {
		return
	}
	h.mu.busy = nil
}

// A waiter is a call that waits for a draw. All fields but done are guarded by the holder's mutex.
type waiter struct {
	cost    int64
	since   int64
	rounds  int
	decided bool // done has its answer
	done    chan answer
}

type answer struct {
	result Result
	err    error
}

const (
	maxRounds = 3                    // draws that one call may wait for
	floor     = 5 * time.Millisecond // least distance between draws once one was refused
	maxFlying = 10_000               // draws under way in a pool: more would only wait for the client's connections
)

var (
	errCrowded = &StoreError{Op: "acquire", Reason: ReasonCrowded, Err: errors.New("too many draws are under way")}
	errLate    = &StoreError{Op: "acquire", Reason: ReasonTimeout, Err: context.DeadlineExceeded}
)

// NewHolder returns a holder for tenant's bucket under limit, with no lease.
func (p *Pool) NewHolder(tenant string, limit quota.Limit) *Holder {
	h := new(Holder)
	p.Init(h, tenant, limit)
	return h
}

// Init makes the zero Holder what NewHolder returns.
func (p *Pool) Init(h *Holder, tenant string, limit quota.Limit) {
	h.pool, h.tenant = p, tenant
	h.terms.Store(p.termsOf(limit))
	h.level = floor32(float64(limit.Capacity))
	h.mu.begin()
}

// Tenant is whose leases h holds.
func (h *Holder) Tenant() string { return h.tenant }

// Key is the bucket that h holds leases of.
func (h *Holder) Key() Key { return Key{Tenant: h.tenant, Class: h.pool.opts.Class} }

// Limit is the limit that h last heard of.
func (h *Holder) Limit() quota.Limit { return h.terms.Load().Limit }

// Under reports whether h goes by limit.
func (h *Holder) Under(limit *quota.Limit) bool { return h.terms.Load().Limit == *limit }

// Leased reports whether h holds leases. They may be exhausted.
func (h *Holder) Leased() bool { return h.local.First() != nil }

// TrySpend spends cost without waiting, if a lease in hand covers it. It is the hot path: no lock, no allocation. now is
// [Pool.Now]; limit is what h is [Holder.Under]; cost is from 1 to its capacity. What is left as far as this replica knows goes to
// remaining, which may have been written to if nothing was spent, too.
func (h *Holder) TrySpend(now int64, limit *quota.Limit, cost int64, remaining *int64) bool {
	return h.trySpend(now, limit.Capacity, cost, remaining) != nil
}

// trySpend tells the lease that was spent of, nil if none was. It writes remaining before the token is taken, as what it will be if
// nobody else comes between.
func (h *Holder) trySpend(now, capacity, cost int64, remaining *int64) *localbucket.Lease {
	for l := h.local.First(); l != nil; l = l.Next() {
		left := l.Left() - cost
		if left < 0 {
			continue
		}
		behind := l.Behind()
		*remaining = min(capacity, left+behind)
		got, ok := l.Take(now, cost)
		if !ok {
			continue
		}
		if got != left {
			*remaining = min(capacity, got+behind)
		}
		if cost > 1 {
			h.addExtra(cost - 1)
		}
		if l.Low(got) {
			h.lowWater()
		}
		if c := &h.pool.clock; c.coarse > 0 && got/checkEvery != (got+cost)/checkEvery {
			c.tick()
		}
		return l
	}
	return nil
}

// checkEvery is after how many tokens of a lease a spend by the coarse clock looks at the exact one: as many, and one call, may be
// spent of each lease past its window if the coarse clock stands still.
const checkEvery = 64

// TryRefuse refuses a call that the leases in hand do not cover, if the pre-check can. It goes by the latest that it may be:
// the time of a coarse clock is behind, and what has been refilled since must not be refused. The refusal is not counted: that is
// for [Holder.Refused].
func (h *Holder) TryRefuse(now, cost int64) (Result, bool) {
	late := now + h.pool.slack()
	if wait, refused := h.mark.Load().One(now, late); refused && cost == 1 {
		if _, most := h.local.Between(now, late); most == 0 {
			if at, coming := h.local.When(now, 1); coming {
				wait = min(wait, max(0, at-now))
			}
			return Result{Verdict: RefusedLocal, RetryAfter: time.Duration(wait)}, true
		}
	}
	return h.precheck(now, late, cost)
}

// Refused counts a call that TryRefuse refused.
func (h *Holder) Refused(cost int64) {
	if cost > 1 {
		h.refuse(cost, RefusedLocal)
		return
	}
	r := h.refused.Load()
	if r == nil {
		r = h.refusals()
	}
	r.ones.Add(1)
	if h.is(retired) {
		h.countLate()
	}
}

// spend takes cost from one lease. It reports low once, when the leases have come down to the low-water mark.
func (h *Holder) spend(t *Terms, now, cost int64) (r Result, low, ok bool) {
	l, left, ok := h.local.Take(now, cost)
	if !ok {
		return Result{}, false, false
	}
	if cost > 1 {
		h.addExtra(cost - 1)
	}
	return Result{Verdict: FromLease, Remaining: min(t.Limit.Capacity, left+l.Behind())}, l.Low(left), true
}

// precheck refuses what can be neither in the leases nor in the bucket, at a time from now to late.
func (h *Holder) precheck(now, late, cost int64) (Result, bool) {
	m := h.mark.Load()
	if m == nil {
		return Result{}, false
	}
	here, most := h.local.Between(now, late)
	if !m.Refuses(late, cost-most) {
		return Result{}, false
	}
	if !m.Reachable(cost - most) {
		if _, coming := h.local.When(late, cost); !coming {
			return Result{}, false
		}
	}
	return Result{
		Verdict:    RefusedLocal,
		Remaining:  min(m.Capacity, here+whole(m.Most(late))),
		RetryAfter: h.retryAfter(now, cost, here, m),
	}, true
}

// Spend decides on a call, waiting for the store where it must. It fails with ctx's error, with a *StoreError when the store
// gave no answer in time, with ErrClosed, or with ErrRetired; then nothing was decided, and what was drawn for the call goes
// back. limit must be valid and not quota.Unlimited; cost is from 1 to its capacity.
func (h *Holder) Spend(ctx context.Context, limit quota.Limit, cost int64) (Result, error) {
	w, a := h.join(limit, cost)
	if w != nil {
		h.pool.count.Waited.Add(1)
		a = h.wait(ctx, w)
	}
	a.result.Remaining = min(limit.Capacity, a.result.Remaining) // the limit may be another one by now
	return a.result, a.err
}

// wait waits until w is decided, or ctx is done.
func (h *Holder) wait(ctx context.Context, w *waiter) answer {
	select {
	case a := <-w.done:
		return a
	case <-ctx.Done():
		if a, decided := h.leave(w); decided {
			return a
		}
		return answer{err: ctx.Err()}
	}
}

// join decides on a call if it can be decided now; otherwise it makes it wait for a draw.
func (h *Holder) join(limit quota.Limit, cost int64) (*waiter, answer) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.is(closed) {
		return nil, answer{err: h.retiredError()}
	}
	now := h.pool.exact()
	h.relimitLocked(limit)
	if a, ok := h.decideLocked(now, cost, 0, false); ok {
		return nil, a
	}
	h.askedLocked(cost)
	w := &waiter{cost: cost, since: now, done: make(chan answer, 1)}
	b := h.busyLocked()
	b.waiters = append(b.waiters, w)
	h.flyLocked()
	return w, answer{}
}

// leave takes a waiter whose caller has gone out of the queue. What a draw under way brings for it is given back when it
// lands. If the call was decided just before, the decision stands.
func (h *Holder) leave(w *waiter) (answer, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if w.decided {
		return <-w.done, true
	}
	w.decided = true
	h.dropLocked()
	return answer{}, false
}

// decideLocked decides on a call that has had as many rounds, if nothing has to be asked for it. queued reports whether it
// waited for a draw; one that did not can join the draw under way.
func (h *Holder) decideLocked(now, cost int64, rounds int, queued bool) (answer, bool) {
	r, low, ok := h.spend(h.terms.Load(), now, cost)
	if low {
		h.lowWaterLocked(now)
	}
	if !ok && h.local.Available(now) >= cost && h.local.Split(now, cost) {
		h.addExtra(cost - 1)
		r, ok = Result{Verdict: FromLease, Remaining: h.remainingLocked(now)}, true
	}
	if ok {
		if queued {
			h.addExtra(1) // a call that waited is not one of the lease's
			r.Verdict = FromStore
		}
		return answer{result: r}, true
	}
	return h.judgeLocked(now, cost, rounds, queued)
}

// judgeLocked is decideLocked for a call that the leases in hand do not cover.
func (h *Holder) judgeLocked(now, cost int64, rounds int, queued bool) (answer, bool) {
	b := h.seeLocked()
	switch {
	case h.pool.closed.Load():
		return answer{err: ErrClosed}, true
	case b.overdue:
		h.pool.breaker.consider(now)
		return answer{err: errLate}, true
	case b.failure != nil && now < b.nextAsk:
		return answer{err: b.failure}, true
	}
	if err := h.pool.breaker.open(h); err != nil {
		return answer{err: err}, true
	}
	if r, ok := h.precheck(now, now, cost); ok {
		if queued {
			r.Verdict = RefusedStore
		}
		h.refuse(cost, r.Verdict)
		return answer{result: r}, true
	}
	if !b.flying && h.pool.flying.Load() >= maxFlying {
		h.pool.count.Failed(ReasonCrowded).Add(1)
		return answer{err: errCrowded}, true
	}
	r := Result{Verdict: RefusedFloor}
	switch {
	case rounds >= maxRounds:
		r.Verdict = RefusedRounds
	case now >= b.nextAsk || (!queued && b.flying) || h.mark.Load().Holds(cost-h.local.Available(now)):
		return answer{}, false
	case queued:
		r.Verdict = RefusedStore
	}
	h.refuse(cost, r.Verdict)
	r.Remaining = h.remainingLocked(now)
	wait := h.retryAfter(now, cost, h.local.Available(now), h.mark.Load())
	r.RetryAfter = max(wait, time.Duration(b.nextAsk-now), time.Millisecond)
	return answer{result: r}, true
}

// remainingLocked is what this replica knows to be left.
func (h *Holder) remainingLocked(now int64) int64 {
	return min(h.Limit().Capacity, h.local.Left(now)+whole(float64(h.level)))
}

// retryAfter is when a refused call could pass: as soon as a lease in hand or the bucket has the tokens, whichever is
// first, and the bucket may be asked again. m may be nil.
func (h *Holder) retryAfter(now, cost, here int64, m *precheck.Mark) time.Duration {
	at, ok := h.local.When(now, cost)
	wait := int64(0)
	if m != nil {
		wait = m.After(now, cost-here)
		ok = ok && (at-now < wait || !m.Reachable(cost-here))
	}
	if ok {
		return time.Duration(max(0, at-now))
	}
	return time.Duration(wait)
}

// retiredError is why a closed holder does not decide.
func (h *Holder) retiredError() error {
	if h.pool.closed.Load() {
		return ErrClosed
	}
	return ErrRetired
}

// relimitLocked takes over a limit. A raise gives nothing by itself: the bucket is asked anew. A cut takes back what is
// held beyond it.
func (h *Holder) relimitLocked(limit quota.Limit) {
	old := h.terms.Load()
	if old.Limit == limit {
		return
	}
	if h.mu.at >= 0 { // what was admitted is a matter of the limit that stood
		h.keepLocked(h.pool.exact())
		h.mu.meter = 0
	}
	h.terms.Store(h.pool.termsOf(limit))
	h.mark.Store(nil)
	h.level = 0
	if b := h.mu.busy; b != nil {
		b.nextTop = 0
		if b.failure == nil {
			b.nextAsk = 0
		}
	}
	if limit.Capacity < old.Limit.Capacity || limit.PerMillisecond() < old.Limit.PerMillisecond() {
		h.giveBackLocked(h.local.Remove(func(*localbucket.Lease) bool { return true }))
	}
}

// whole is the number of whole tokens in a level.
func whole(level float64) int64 {
	return int64(max(0, math.Floor(level+1e-9)))
}
