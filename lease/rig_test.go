package lease_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leaselimit/leaselimit/lease"
	"github.com/leaselimit/leaselimit/membucket"
	"github.com/leaselimit/leaselimit/quota"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// tap is a real store whose traffic a test sees, and whose answers it can hold up or lose. It counts time from its making.
type tap struct {
	lease.Store

	start time.Time
	mu    struct {
		sync.Mutex
		acquire  func(ctx context.Context, next func() (lease.Grant, error)) (lease.Grant, error)
		giveBack func(ctx context.Context, next func() error) error
		draws    []drawn
		returns  []returned
	}
}

// drawn is an Acquire: when it was asked, what, and what the real store answered.
type drawn struct {
	at    time.Duration
	req   lease.AcquireRequest
	grant lease.Grant
	done  bool // the store was reached
}

// returned is an item of a Return that the real store got.
type returned struct {
	at time.Duration
	lease.Return
}

func newTap() *tap { return newTapOn(membucket.New()) }

// newTapOn is a tap for one of several replicas on a store.
func newTapOn(store lease.Store) *tap { return &tap{Store: store, start: time.Now()} }

func (s *tap) now() time.Duration { return time.Since(s.start) }

// onAcquire has f stand between the holder and the store from now on; next is the store. nil removes it.
func (s *tap) onAcquire(f func(ctx context.Context, next func() (lease.Grant, error)) (lease.Grant, error)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.acquire = f
}

func (s *tap) onReturn(f func(ctx context.Context, next func() error) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.giveBack = f
}

func (s *tap) Acquire(ctx context.Context, req lease.AcquireRequest) (lease.Grant, error) {
	s.mu.Lock()
	f, i := s.mu.acquire, len(s.mu.draws)
	s.mu.draws = append(s.mu.draws, drawn{at: s.now(), req: req})
	s.mu.Unlock()
	next := func() (lease.Grant, error) {
		g, err := s.Store.Acquire(context.WithoutCancel(ctx), req)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.mu.draws[i].grant, s.mu.draws[i].done = g, true
		return g, err
	}
	if f == nil {
		return next()
	}
	return f(ctx, next)
}

func (s *tap) Return(ctx context.Context, items []lease.Return) error {
	s.mu.Lock()
	f := s.mu.giveBack
	s.mu.Unlock()
	next := func() error {
		s.mu.Lock()
		for _, r := range items {
			s.mu.returns = append(s.mu.returns, returned{s.now(), r})
		}
		s.mu.Unlock()
		return s.Store.Return(context.WithoutCancel(ctx), items)
	}
	if f == nil {
		return next()
	}
	return f(ctx, next)
}

func (s *tap) draws() []drawn {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]drawn(nil), s.mu.draws...)
}

func (s *tap) returns() []returned {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]returned(nil), s.mu.returns...)
}

// Ways to hold up an answer. The store has done its step at once in the first two.

// late answers after d, whatever the context says.
func late(d time.Duration) func(context.Context, func() (lease.Grant, error)) (lease.Grant, error) {
	return func(_ context.Context, next func() (lease.Grant, error)) (lease.Grant, error) {
		g, err := next()
		time.Sleep(d)
		return g, err
	}
}

var errLost = errors.New("connection reset")

// lost executes the step and loses the answer.
func lost(_ context.Context, next func() (lease.Grant, error)) (lease.Grant, error) {
	_, _ = next()
	return lease.Grant{}, &lease.StoreError{Op: "acquire", Reason: lease.ReasonRefused, Err: errLost}
}

// down never reaches the store.
func down(context.Context, func() (lease.Grant, error)) (lease.Grant, error) {
	return lease.Grant{}, &lease.StoreError{Op: "acquire", Reason: lease.ReasonRefused, Err: errLost}
}

// rig is a holder over a tapped store, in a bubble.
type rig struct {
	t     *testing.T
	store *tap
	pool  *lease.Pool
	key   lease.Key
	limit quota.Limit
	*lease.Holder
}

// options of most tests: a trust window of 10 s, whose leases are given up after 9.949 s and returned after 8.9541 s.
func options() lease.Options {
	return lease.Options{
		Class: "default", MaxOvershoot: 0.1, LeaseShare: 0.25, TTL: 10 * time.Second, Timeout: 50 * time.Millisecond, Replicas: 1,
	}
}

// bubble runs test in a bubble of testing/synctest.
func bubble(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, test)
}

func newRig(t *testing.T, limit quota.Limit, opts lease.Options) *rig {
	t.Helper()
	return newRigOn(t, newTap(), limit, opts)
}

// newRigOn makes one more replica on a store.
func newRigOn(t *testing.T, store *tap, limit quota.Limit, opts lease.Options) *rig {
	t.Helper()
	r := &rig{t: t, store: store, pool: lease.NewPool(store, opts), key: lease.Key{Tenant: "acme", Class: "default"}, limit: limit}
	r.Holder = r.pool.NewHolder(r.key.Tenant, limit)
	t.Cleanup(func() { r.close(context.Background()) })
	return r
}

func (r *rig) close(ctx context.Context) { _ = r.pool.Close(ctx, r.holders) }

func (r *rig) holders(yield func(*lease.Holder) bool) { yield(r.Holder) }

// try decides on a call as a limiter does.
func (r *rig) try(ctx context.Context, cost int64) (lease.Result, error) {
	if res, ok := r.fromMemory(&r.limit, cost); ok {
		return res, nil
	}
	return r.Spend(ctx, r.limit, cost)
}

// fromMemory decides as a limiter does, or not at all.
func (r *rig) fromMemory(limit *quota.Limit, cost int64) (res lease.Result, ok bool) {
	if !r.Under(limit) {
		return res, false
	}
	now := r.pool.Now()
	if r.TrySpend(now, limit, cost, &res.Remaining) {
		res.Verdict = lease.FromLease
		return res, true
	}
	if res, ok = r.TryRefuse(now, cost); ok {
		r.Refused(cost)
	}
	return res, ok
}

// spend is try where an answer is expected. What it set going is over when it returns, unless the store holds it up.
func (r *rig) spend(cost int64) lease.Result {
	r.t.Helper()
	res, err := r.try(r.t.Context(), cost)
	require.NoError(r.t, err)
	synctest.Wait()
	return res
}

// spendN lets n calls of cost 1 come one after the other and counts those allowed.
func (r *rig) spendN(n int) (allowed int) {
	r.t.Helper()
	for range n {
		if r.spend(1).Allowed() {
			allowed++
		}
	}
	return allowed
}

// pending is a call under way. Its fields may be read once it is done.
type pending struct {
	res  lease.Result
	err  error
	took time.Duration
	done atomic.Bool
}

// start starts a call.
func (r *rig) start(ctx context.Context, cost int64) *pending {
	p := &pending{}
	begin := time.Now()
	go func() {
		res, err := r.try(ctx, cost)
		p.res, p.err, p.took = res, err, time.Since(begin)
		p.done.Store(true)
	}()
	synctest.Wait()
	return p
}

func (r *rig) peek() lease.State {
	r.t.Helper()
	st, err := r.store.Peek(context.Background(), r.key, r.pool.Options().Terms(r.limit))
	require.NoError(r.t, err)
	return st
}

// drain takes what the bucket holds, as another replica would, but for keep tokens.
func (r *rig) drain(keep int64) {
	r.t.Helper()
	terms := r.pool.Options().Terms(r.limit)
	if n := int64(r.peek().Level) - keep; n > 0 {
		_, err := r.store.Take(context.Background(), []lease.Charge{{Key: r.key, Terms: terms, Cost: n}})
		require.NoError(r.t, err)
	}
}

// adds checks that every surplus token went exactly one way.
func (r *rig) adds() {
	r.t.Helper()
	synctest.Wait()
	c := r.pool.Counters()
	spent, _, _ := r.Spent()
	assert.Equal(r.t, c.SurplusTokens.Load(),
		spent+r.Held()+c.Returned.Load()+c.ReturnLost.Load()+c.Stranded.Load(), "granted = spent+held+returned+lost+stranded")
}
