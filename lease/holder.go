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
type Holder struct {
	// Read by every call, written by draws. The first cache line has what a call needs that is decided from a lease.
	pool  *Pool
	terms atomic.Pointer[Terms]
	local localbucket.Bucket
	mark  atomic.Pointer[precheck.Mark]

	retired atomic.Bool
	level   atomic.Int64 // whole tokens in the bucket by its last answer
	refused refusals
	extra   atomic.Int64 // see addExtra

	tried atomic.Int64 // tokens in Parts that are not decided yet

	key Key
	due due

	mu struct {
		sync.Mutex
		state
	}
}

// state is what a Holder's mutex guards.
type state struct {
	closed  bool
	waiters []*waiter // in the order they came
	flying  bool      // a goroutine is drawing; only it removes waiters it took along
	overdue bool      // its draw is past the timeout: callers are failed over at once

	topUp    bool  // the next draw is wanted even if nobody waits
	low      bool  // the low-water mark was reached while a draw was under way
	nextTop  int64 // no top-up before
	spared   bool  // but for one with nothing in hand: what there was is kept for such replicas
	nextAsk  int64 // no draw before: the floor after a refusal, or the pause after a failure
	failure  error // of the last draw, until one succeeds
	failures int   // in a row

	pressed *time.Timer // set while the replica is pressed

	heard      heard
	meter      meter
	share      share
	paid       int64 // waiters' tokens spent
	demand     demand
	asked      [2]int64 // tokens and calls of those that began to wait, not observed yet
	spentSeen  int64    // of Spent and extra, what demand has observed
	extraSeen  int64
	spentEnded int64 // spent from leases that are no longer held

	owed [2]Report // spent and not reported, of leases that are no longer held

	final struct{ calls, refused int64 } // what Retire counted

	sent, home int64 // tokens given back so far: sent off, and known to have arrived or to be lost
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

var errCrowded = &StoreError{Op: "acquire", Reason: ReasonCrowded, Err: errors.New("too many draws are under way")}

// NewHolder returns a holder for the bucket key under limit, with no lease.
func (p *Pool) NewHolder(key Key, limit quota.Limit) *Holder {
	h := new(Holder)
	p.Init(h, key, limit)
	return h
}

// Init makes the zero Holder what NewHolder returns.
func (p *Pool) Init(h *Holder, key Key, limit quota.Limit) {
	h.pool, h.key = p, key
	h.terms.Store(p.termsOf(limit))
	h.due.index = -1
	h.mu.demand.at = -1
	h.level.Store(limit.Capacity)
}

// Key is the bucket that h holds leases of.
func (h *Holder) Key() Key { return h.key }

// Limit is the limit that h last heard of.
func (h *Holder) Limit() quota.Limit { return h.terms.Load().Limit }

// TrySpend decides on a call without waiting if a lease in hand covers it or the pre-check refuses it. It is the hot path:
// no lock, no allocation. limit is the tenant's limit now; cost is from 1 to its capacity.
func (h *Holder) TrySpend(limit *quota.Limit, cost int64) (r Result, ok bool) {
	t := h.terms.Load()
	if t.Limit != *limit {
		return Result{}, false
	}
	c := &h.pool.clock
	now := c.now()
	l, left, ok := h.local.Take(now, cost)
	if !ok {
		return h.tryRefuse(now, cost)
	}
	if cost > 1 {
		h.addExtra(cost - 1)
	}
	if l.Low(left) {
		h.lowWater()
	}
	if c.coarse > 0 && left/checkEvery != (left+cost)/checkEvery {
		c.tick()
	}
	return Result{Verdict: FromLease, Remaining: min(t.Limit.Capacity, left+l.Behind())}, true
}

// checkEvery is after how many tokens of a lease a spend by the coarse clock looks at the exact one: as many, and one call, may be
// spent of each lease past its window if the coarse clock stands still.
const checkEvery = 64

// tryRefuse refuses a call that the leases in hand do not cover, if the pre-check can. It goes by the latest that it may be:
// now, of a coarse clock, is behind, and what has been refilled since must not be refused.
func (h *Holder) tryRefuse(now, cost int64) (Result, bool) {
	late := now + h.pool.clock.slack()
	if wait, refused := h.mark.Load().One(now, late); refused && cost == 1 {
		if _, most := h.local.Between(now, late); most == 0 {
			if at, coming := h.local.When(now, 1); coming {
				wait = min(wait, max(0, at-now))
			}
			h.refused.ones.Add(1)
			h.countLate()
			return Result{Verdict: RefusedLocal, RetryAfter: time.Duration(wait)}, true
		}
	}
	r, ok := h.precheck(now, late, cost)
	if ok {
		h.refuse(cost, r.Verdict)
	}
	return r, ok
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
	if w == nil {
		return a.result, a.err
	}
	h.pool.count.Waited.Add(1)
	select {
	case a := <-w.done:
		return a.result, a.err
	case <-ctx.Done():
		if a, decided := h.leave(w); decided {
			return a.result, a.err
		}
		return Result{}, ctx.Err()
	}
}

// join decides on a call if it can be decided now; otherwise it makes it wait for a draw.
func (h *Holder) join(limit quota.Limit, cost int64) (*waiter, answer) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.mu.closed {
		return nil, answer{err: h.retiredError()}
	}
	now := h.pool.clock.exact()
	h.relimitLocked(limit)
	if a, ok := h.decideLocked(now, cost, 0, false); ok {
		return nil, a
	}
	h.askedLocked(cost)
	w := &waiter{cost: cost, since: now, done: make(chan answer, 1)}
	h.mu.waiters = append(h.mu.waiters, w)
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
		r, ok = Result{Verdict: FromLease, Remaining: h.remaining(now)}, true
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
	switch {
	case h.pool.closed.Load():
		return answer{err: ErrClosed}, true
	case h.mu.overdue:
		h.pool.breaker.consider(now)
		return answer{err: h.mu.failure}, true
	case h.mu.failure != nil && now < h.mu.nextAsk:
		return answer{err: h.mu.failure}, true
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
	if !h.mu.flying && h.pool.flying.Load() >= maxFlying {
		h.pool.count.Failed(ReasonCrowded).Add(1)
		return answer{err: errCrowded}, true
	}
	r := Result{Verdict: RefusedFloor}
	switch {
	case rounds >= maxRounds:
		r.Verdict = RefusedRounds
	case now >= h.mu.nextAsk || (!queued && h.mu.flying) || h.mark.Load().Holds(cost-h.local.Available(now)):
		return answer{}, false
	case queued:
		r.Verdict = RefusedStore
	}
	h.refuse(cost, r.Verdict)
	r.Remaining = h.remaining(now)
	wait := h.retryAfter(now, cost, h.local.Available(now), h.mark.Load())
	r.RetryAfter = max(wait, time.Duration(h.mu.nextAsk-now), time.Millisecond)
	return answer{result: r}, true
}

// remaining is what this replica knows to be left.
func (h *Holder) remaining(now int64) int64 {
	return min(h.Limit().Capacity, h.local.Left(now)+h.level.Load())
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
	h.terms.Store(h.pool.termsOf(limit))
	h.mark.Store(nil)
	h.level.Store(0)
	h.mu.nextTop = 0
	if h.mu.failure == nil {
		h.mu.nextAsk = 0
	}
	if limit.Capacity < old.Limit.Capacity || limit.PerMillisecond() < old.Limit.PerMillisecond() {
		h.giveBackLocked(h.local.Remove(func(*localbucket.Lease) bool { return true }))
	}
}

// refuse counts a refusal.
func (h *Holder) refuse(cost int64, v Verdict) {
	r := &h.refused
	r.calls.Add(1)
	switch v {
	case RefusedLocal:
		r.local.Add(1)
		h.countLate()
	case RefusedFloor:
		h.pool.count.Floor.Add(1)
	}
	if v == RefusedLocal || v == RefusedFloor {
		r.tokens.Add(cost) // the others were counted when they began to wait
		r.fresh.Add(1)
	}
	for {
		least := r.min.Load()
		if (least != 0 && least <= cost) || r.min.CompareAndSwap(least, cost) {
			return
		}
	}
}

// addExtra counts tokens spent from leases beyond one for each call that FromLease decided.
func (h *Holder) addExtra(n int64) {
	h.extra.Add(n)
	h.countLate()
}

// countLate moves what a call counts after its holder was retired, and its counts taken, to the pool's counts. Each is
// moved once: by the swap here or by the one in Retire.
func (h *Holder) countLate() {
	if h.retired.Load() {
		h.pool.count.LateExtra.Add(h.extra.Swap(0))
		h.pool.count.LateRefused.Add(h.refused.local.Swap(0) + h.refused.ones.Swap(0))
	}
}

// refusals count what was refused since a draw last looked at it, and by the pre-check in all.
type refusals struct {
	calls         atomic.Int64
	tokens, fresh atomic.Int64 // of calls that no other count of the demand has
	min           atomic.Int64 // smallest cost, 0 = none
	local         atomic.Int64 // calls refused by the pre-check, ever, but for ones
	ones          atomic.Int64 // calls of cost 1 refused by the pre-check, ever: no other count has them
	onesSeen      int64        // of them, what a draw has looked at; guarded by the holder's mutex
}

// anyLocked reports whether calls were refused since a draw last looked.
func (r *refusals) anyLocked() bool { return r.calls.Load() > 0 || r.ones.Load() != r.onesSeen }

// takeLocked gives what was refused since it was last called: the calls, and of the calls that no other count of the demand has
// the tokens and the number; and the smallest cost, 0 if there was none.
func (r *refusals) takeLocked() (calls, tokens, fresh, smallest int64) {
	ones := r.ones.Load()
	n := max(0, ones-r.onesSeen) // less only after the holder was retired
	r.onesSeen = ones
	calls, tokens, fresh, smallest = r.calls.Swap(0)+n, r.tokens.Swap(0)+n, r.fresh.Swap(0)+n, r.min.Swap(0)
	if n > 0 {
		smallest = 1
	}
	return calls, tokens, fresh, smallest
}

// whole is the number of whole tokens in a level.
func whole(level float64) int64 {
	return int64(max(0, math.Floor(level+1e-9)))
}
