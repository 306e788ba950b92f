package leaselimit_test

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leaselimit/leaselimit"
	"github.com/leaselimit/leaselimit/internal/redistest"
	"github.com/leaselimit/leaselimit/lease"
	"github.com/leaselimit/leaselimit/membucket"
	"github.com/leaselimit/leaselimit/quota"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// bubble runs test in a bubble of testing/synctest.
func bubble(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, test)
}

// tap is a real store whose traffic a test sees, and whose answers it can hold up or lose. Every replica of a test has a
// tap of its own on the store that they share.
type tap struct {
	lease.Store

	start time.Time
	mu    struct {
		sync.Mutex
		acquire  acquireHook
		giveBack func(ctx context.Context, next func() error) error
		draws    []drawn
		returns  []returned
		tokens   tokens
	}
}

type (
	acquireNext func() (lease.Grant, error)
	acquireHook func(ctx context.Context, req lease.AcquireRequest, next acquireNext) (lease.Grant, error)
)

// drawn is an Acquire: when it was asked, and what.
type drawn struct {
	at    time.Duration
	req   lease.AcquireRequest
	grant lease.Grant // what the caller was told
	err   error
}

// returned is an item of a Return that was sent off.
type returned struct {
	at time.Duration
	lease.Return
}

// tokens of all draws and returns.
type tokens struct {
	waiters, surplus       int64 // granted, and answered
	unspent, waitersUnused int64 // sent back
}

func newTap() *tap { return newTapOn(membucket.New()) }

func newTapOn(store lease.Store) *tap { return &tap{Store: store, start: time.Now()} }

func (s *tap) now() time.Duration { return time.Since(s.start) }

// onAcquire has f stand between the limiter and the store from now on; next is the store. nil removes it.
func (s *tap) onAcquire(f acquireHook) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.acquire = f
}

func (s *tap) onReturn(f func(ctx context.Context, next func() error) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.giveBack = f
}

func (s *tap) Acquire(ctx context.Context, req lease.AcquireRequest) (g lease.Grant, err error) {
	s.mu.Lock()
	f, i := s.mu.acquire, len(s.mu.draws)
	s.mu.draws = append(s.mu.draws, drawn{at: s.now(), req: req})
	s.mu.Unlock()
	next := func() (lease.Grant, error) { return s.Store.Acquire(context.WithoutCancel(ctx), req) }
	if f == nil {
		g, err = next()
	} else {
		g, err = f(ctx, req, next)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.draws[i].grant, s.mu.draws[i].err = g, err
	if err == nil {
		s.mu.tokens.waiters += g.Waiters
		s.mu.tokens.surplus += g.Surplus
	}
	return g, err
}

func (s *tap) Return(ctx context.Context, items []lease.Return) error {
	s.mu.Lock()
	f := s.mu.giveBack
	for _, r := range items {
		s.mu.returns = append(s.mu.returns, returned{s.now(), r})
		s.mu.tokens.unspent += r.Unspent
		s.mu.tokens.waitersUnused += r.Waiters
	}
	s.mu.Unlock()
	next := func() error { return s.Store.Return(context.WithoutCancel(ctx), items) }
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

func (s *tap) tokens() tokens {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.tokens
}

// late has the store do its step at once and answer after d, whatever the context says.
func late(d time.Duration) acquireHook {
	return func(_ context.Context, _ lease.AcquireRequest, next acquireNext) (lease.Grant, error) {
		g, err := next()
		time.Sleep(d)
		return g, err
	}
}

var errDown = errors.New("connection refused")

// down never reaches the store.
func down(context.Context, lease.AcquireRequest, acquireNext) (lease.Grant, error) {
	return lease.Grant{}, &lease.StoreError{Op: "acquire", Reason: lease.ReasonRefused, Err: errDown}
}

// hang is a store that answers nobody before the context is done.
func hang(ctx context.Context, _ lease.AcquireRequest, _ acquireNext) (lease.Grant, error) {
	<-ctx.Done()
	return lease.Grant{}, &lease.StoreError{Op: "acquire", Reason: lease.ReasonTimeout, Err: ctx.Err()}
}

// newLimiter makes a limiter that is closed when the test ends.
func newLimiter(t testing.TB, store lease.Store, cfg leaselimit.Config) *leaselimit.Limiter {
	t.Helper()
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	lim, err := leaselimit.New(store, cfg)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		assert.NoError(t, lim.Close(ctx))
	})
	return lim
}

// limited is the Config of a fixed limit.
func limited(limit quota.Limit) leaselimit.Config {
	return leaselimit.Config{Limits: quota.Fixed(limit)}
}

// still is a limit without refill.
func still(capacity int64) quota.Limit { return quota.Limit{Capacity: capacity} }

// call decides on a call. What it set going is over when it returns: it is for bubbles, and stores that answer at once.
func call(t testing.TB, lim *leaselimit.Limiter, tenant string, cost int64) leaselimit.Decision {
	t.Helper()
	d, err := lim.AllowN(context.Background(), tenant, cost)
	require.NoError(t, err)
	synctest.Wait()
	return d
}

// calls makes n calls of cost 1 and counts those allowed.
func calls(t testing.TB, lim *leaselimit.Limiter, tenant string, n int) (allowed int) {
	t.Helper()
	for range n {
		if call(t, lim, tenant, 1).Allowed {
			allowed++
		}
	}
	return allowed
}

// pending is a call under way. Its fields may be read once it is done.
type pending struct {
	leaselimit.Decision

	err  error
	took time.Duration
	done atomic.Bool
}

// start starts a call.
func start(ctx context.Context, lim *leaselimit.Limiter, tenant string, cost int64) *pending {
	p := &pending{}
	begin := time.Now()
	go func() {
		d, err := lim.AllowN(ctx, tenant, cost)
		p.Decision, p.err, p.took = d, err, time.Since(begin)
		p.done.Store(true)
	}()
	synctest.Wait()
	return p
}

// terms are the lease terms of a limit under the default Config.
func terms(limit quota.Limit) lease.Terms {
	return lease.Terms{Limit: limit, Budget: limit.Capacity / 10, Share: limit.Capacity / 4, TTL: 30 * time.Second}
}

func key(tenant string) lease.Key { return lease.Key{Tenant: tenant, Class: "default"} }

// level is what a tenant's bucket holds and what of it is out.
func level(t testing.TB, store lease.Store, tenant string, limit quota.Limit) (tokens float64, out int64) {
	t.Helper()
	st, err := store.Peek(context.Background(), key(tenant), terms(limit))
	require.NoError(t, err)
	return st.Level, st.Out
}

// warm has a store answer a draw: from then on its client has an idle connection, and the server knows the script.
func warm(t testing.TB, store lease.Store) {
	t.Helper()
	_, err := store.Acquire(context.Background(), lease.AcquireRequest{Key: key("warm"), Terms: terms(still(100)), Min: 1, Need: 1})
	require.NoError(t, err)
}

// drain takes what a bucket holds, as another replica would, but for keep tokens.
func drain(t testing.TB, store lease.Store, tenant string, limit quota.Limit, keep int64) {
	t.Helper()
	tokens, _ := level(t, store, tenant, limit)
	if n := int64(tokens) - keep; n > 0 {
		_, err := store.Take(context.Background(), []lease.Charge{{Key: key(tenant), Terms: terms(limit), Cost: n}})
		require.NoError(t, err)
	}
}

// adds checks what a snapshot says about itself after n calls.
func adds(t testing.TB, s leaselimit.Stats, n int64) {
	t.Helper()
	assert.Equal(t, n, s.Allowed()+s.Refused()+s.Errors, "allowed + refused + errors = calls: %+v", s)
	assert.Equal(t, s.TokensGranted, s.TokensSpent+s.TokensReturned+s.TokensLost+s.TokensStranded+s.TokensHeld,
		"every token of a lease goes one way: %+v", s)
}
