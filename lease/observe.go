package lease

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Hooks are told what the holders of a pool do off the hot path. Fields that are nil cost nothing. They are called where the
// thing happens, some of them under a tenant's lock: they have to be quick and must not call the limiter.
type Hooks struct {
	// CallSent is told of a call to the store that is about to be sent. The context that it returns goes to the store and
	// to CallAnswered.
	CallSent func(ctx context.Context, c Call) context.Context
	// CallAnswered is told how the call ended.
	CallAnswered func(ctx context.Context, c Call, a Answer)
	// Stranded is told of tokens that were leased and expired unspent.
	Stranded func(key Key, tokens int64)
}

// A Call is a call to the store.
type Call struct {
	Op      string // "acquire", "return", "take", "peek", "reset" or "present"
	Key     Key    // of the first bucket; of a present, which is about none, the class alone
	Buckets int    // how many the call is about
	Need    int64  // tokens that waiting callers need, of an acquire; taken, of a take
	Want    int64  // surplus wished for, of an acquire
	Given   int64  // tokens given back, of a return
}

// An Answer is how a call to the store ended.
type Answer struct {
	Took   time.Duration
	Grant  Grant // of an acquire
	Err    error
	Reason Reason // of Err, "" if it is nil
}

// CallStats is what came of the calls of one operation.
type CallStats struct {
	Op      string
	OK      int64
	Failed  map[Reason]int64 // of every reason, most of them 0
	Latency Latency          // of all, failed ones too, seen from here
}

// Add adds the calls of o, which are of the same operation.
func (s *CallStats) Add(o *CallStats) {
	s.OK += o.OK
	for reason, n := range o.Failed {
		s.Failed[reason] += n
	}
	s.Latency.Add(&o.Latency)
}

// A CallError is a call to the store that failed.
type CallError struct {
	At     time.Time
	Op     string
	Tenant string // whose bucket it was about, the first of several; "" of a present
	Reason Reason
	Err    error
}

var operations = [...]string{"acquire", "return", "take", "peek", "reset", "present"}

const (
	opAcquire = iota
	opReturn
	opTake
	opPeek
	opReset
	opPresent
)

// keptErrors is how many of the last errors are kept.
const keptErrors = 16

// observed is a Store whose calls are counted, measured and shown to hooks.
type observed struct {
	store Store
	hooks Hooks
	ops   [len(operations)]operation

	mu   sync.Mutex
	last []CallError // the oldest first
}

type operation struct {
	ok      atomic.Int64
	failed  [len(reasons)]atomic.Int64
	latency recorder
}

var errPanicked = errors.New("panic")

// watch makes a call of the operation op. The caller recovers from panics.
func watch[T any](ctx context.Context, o *observed, op int, c Call, do func(context.Context) (T, error)) (reply T, err error) {
	c.Op = operations[op]
	if o.hooks.CallSent != nil {
		ctx = o.hooks.CallSent(ctx, c)
	}
	start := time.Now()
	err = errPanicked // unless do returns
	defer func() {
		a := Answer{Took: time.Since(start), Err: err}
		a.Grant, _ = any(reply).(Grant)
		o.count(op, c, &a)
		if o.hooks.CallAnswered != nil {
			o.hooks.CallAnswered(ctx, c, a)
		}
	}()
	return do(ctx)
}

func (o *observed) count(op int, c Call, a *Answer) {
	n := &o.ops[op]
	n.latency.observe(a.Took)
	if a.Err == nil {
		n.ok.Add(1)
		return
	}
	a.Reason = ReasonOf(a.Err)
	at := len(reasons) - 1 // a reason that this package does not know is other
	for i, r := range reasons {
		if r == a.Reason {
			at = i
		}
	}
	n.failed[at].Add(1)
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.last) == keptErrors {
		o.last = append(o.last[:0], o.last[1:]...)
	}
	o.last = append(o.last, CallError{At: time.Now(), Op: c.Op, Tenant: c.Key.Tenant, Reason: a.Reason, Err: a.Err})
}

func (o *observed) Acquire(ctx context.Context, req AcquireRequest) (Grant, error) {
	c := Call{Key: req.Key, Buckets: 1, Need: req.Need, Want: req.Want}
	return watch(ctx, o, opAcquire, c, func(ctx context.Context) (Grant, error) { return o.store.Acquire(ctx, req) })
}

func (o *observed) Return(ctx context.Context, items []Return) error {
	c := Call{Key: items[0].Key, Buckets: len(items)}
	for _, r := range items {
		c.Given += r.Unspent + r.Waiters
	}
	_, err := watch(ctx, o, opReturn, c, func(ctx context.Context) (struct{}, error) { return struct{}{}, o.store.Return(ctx, items) })
	return err
}

func (o *observed) Take(ctx context.Context, charges []Charge) (TakeReply, error) {
	c := Call{Buckets: len(charges)}
	for _, ch := range charges {
		c.Key = charges[0].Key
		c.Need += ch.Cost
	}
	return watch(ctx, o, opTake, c, func(ctx context.Context) (TakeReply, error) { return o.store.Take(ctx, charges) })
}

func (o *observed) Peek(ctx context.Context, key Key, terms Terms) (State, error) {
	return watch(ctx, o, opPeek, Call{Key: key, Buckets: 1}, func(ctx context.Context) (State, error) { return o.store.Peek(ctx, key, terms) })
}

func (o *observed) Reset(ctx context.Context, key Key) error {
	_, err := watch(ctx, o, opReset, Call{Key: key, Buckets: 1}, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, o.store.Reset(ctx, key)
	})
	return err
}

// present asks c, which is the store if that is a [Census].
func (o *observed) present(ctx context.Context, c Census, class, id string, ttl time.Duration) (int, error) {
	return watch(ctx, o, opPresent, Call{Key: Key{Class: class}}, func(ctx context.Context) (int, error) {
		return c.Present(ctx, class, id, ttl)
	})
}

// Calls are the calls to the store so far, for each operation.
func (p *Pool) Calls() []CallStats {
	all := make([]CallStats, 0, len(operations))
	for i := range p.observed.ops {
		op := &p.observed.ops[i]
		s := CallStats{Op: operations[i], OK: op.ok.Load(), Failed: make(map[Reason]int64, len(reasons)), Latency: op.latency.read()}
		for j := range op.failed {
			s.Failed[reasons[j]] = op.failed[j].Load()
		}
		all = append(all, s)
	}
	return all
}

// Errors are the last calls to the store that failed, at most 16, the latest first.
func (p *Pool) Errors() []CallError {
	o := p.observed
	o.mu.Lock()
	defer o.mu.Unlock()
	all := make([]CallError, 0, len(o.last))
	for _, e := range slices.Backward(o.last) {
		all = append(all, e)
	}
	return all
}

// stranded counts tokens of a lease that expired unspent.
func (p *Pool) stranded(key Key, tokens int64) {
	if tokens == 0 {
		return
	}
	p.count.Stranded.Add(tokens)
	if f := p.observed.hooks.Stranded; f != nil {
		f(key, tokens)
	}
}
