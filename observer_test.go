package leaselimit_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leaselimit/leaselimit"
	"github.com/leaselimit/leaselimit/lease"
	"github.com/leaselimit/leaselimit/membucket"
	"github.com/leaselimit/leaselimit/quota"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// plug is a store that can be pulled out.
type plug struct {
	*membucket.Store

	out atomic.Bool
}

var errPulled = errors.New("no route to host")

func (p *plug) Acquire(ctx context.Context, req lease.AcquireRequest) (lease.Grant, error) {
	time.Sleep(2 * time.Millisecond)
	if p.out.Load() {
		return lease.Grant{}, &lease.StoreError{Op: "acquire", Reason: lease.ReasonRefused, Err: errPulled}
	}
	return p.Store.Acquire(ctx, req)
}

func (p *plug) Return(ctx context.Context, items []lease.Return) error {
	if ctx.Value(traced{}) == nil {
		return errors.New("the context of CallSent did not come through")
	}
	return p.Store.Return(ctx, items)
}

type traced struct{}

// notes is what an Observer was told.
type notes struct {
	mu    sync.Mutex
	lines []string
}

func (n *notes) add(format string, args ...any) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lines = append(n.lines, fmt.Sprintf(format, args...))
}

func (n *notes) take() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	lines := n.lines
	n.lines = nil
	return lines
}

func (n *notes) observer() *leaselimit.Observer {
	return &leaselimit.Observer{
		CallSent: func(ctx context.Context, c lease.Call) context.Context {
			n.add("sent %s %s", c.Op, c.Key.Tenant)
			return context.WithValue(ctx, traced{}, c.Op)
		},
		CallAnswered: func(ctx context.Context, c lease.Call, a lease.Answer) {
			n.add("answered %s %s %v in %v, %d+%d tokens, %d back, %q", ctx.Value(traced{}), c.Key.Tenant, a.Err != nil, a.Took,
				a.Grant.Waiters, a.Grant.Surplus, c.Given, a.Reason)
		},
		Stranded: func(tenant string, tokens int64) { n.add("stranded %d of %s", tokens, tenant) },
		Refused: func(tenant string, cost int64, d leaselimit.Decision) {
			n.add("refused %s %d: %v", tenant, cost, d.Source)
		},
		StateChanged: func(degraded bool, reason lease.Reason) { n.add("degraded %v %q", degraded, reason) },
		Evicted:      func(tenant string) { n.add("evicted %s", tenant) },
	}
}

func TestAnObserverIsToldWhatHappensOffTheHotPath(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n notes
		store := &plug{Store: membucket.New()}
		lim, err := leaselimit.New(store, leaselimit.Config{
			Limits: quota.Fixed(quota.Limit{Capacity: 10}), LeaseSize: 3, LeaseShare: 1, Replicas: 1, MaxTenants: 1,
			Observer: n.observer(), Logger: slog.New(slog.DiscardHandler),
		})
		require.NoError(t, err)
		allow := func(tenant string, cost int64) {
			_, err := lim.AllowN(t.Context(), tenant, cost)
			require.NoError(t, err)
			synctest.Wait()
		}
		allow("acme", 7)
		assert.Equal(t, []string{"sent acquire acme", `answered acquire acme false in 2ms, 7+3 tokens, 0 back, ""`}, n.take())
		allow("acme", 1)
		assert.Empty(t, n.take(), "a lease was in hand")

		allow("bolt", 10)
		assert.Equal(t, []string{
			"evicted acme", "sent acquire bolt", "sent return acme", `answered return acme false in 0s, 0+0 tokens, 2 back, ""`,
			`answered acquire bolt false in 2ms, 10+0 tokens, 0 back, ""`,
		}, sorted(n.take()))

		allow("acme", 5)
		assert.Contains(t, n.take(), "refused acme 5: store")
		store.out.Store(true)
		for i := range 20 { // until the breaker is open
			allow(fmt.Sprint("t", i), 1)
			time.Sleep(10 * time.Millisecond)
		}
		assert.Contains(t, n.take(), `degraded true "refused"`)
		store.out.Store(false)
		time.Sleep(time.Second)
		synctest.Wait()
		assert.Contains(t, n.take(), `degraded false ""`)
		require.NoError(t, lim.Close(t.Context()))
		assert.Zero(t, lim.Stats().TokensLost, "the context of CallSent went to the store")
	})
}

// sorted puts the lines of two goroutines in one order: draws, returns and evictions, the start of each before its end.
func sorted(lines []string) []string {
	order := []string{"evicted", "sent acquire", "sent return", "answered return", "answered acquire"}
	var all []string
	for _, prefix := range order {
		for _, l := range lines {
			if strings.HasPrefix(l, prefix) {
				all = append(all, l)
			}
		}
	}
	return all
}

func TestAnObserverSeesSomeDecisions(t *testing.T) {
	var seen, allowed atomic.Int64
	cfg := leaselimit.Config{
		Limits: quota.Fixed(quota.Limit{Capacity: 500}), StoreTimeout: 10 * time.Second,
		Observer: &leaselimit.Observer{
			Decided: func(_ context.Context, tenant string, cost int64, d leaselimit.Decision) {
				assert.Equal(t, "acme", tenant)
				assert.Equal(t, int64(1), cost)
				seen.Add(1)
				if d.Allowed {
					allowed.Add(1)
				}
			},
		},
	}
	_, err := leaselimit.New(membucket.New(), cfg)
	require.ErrorContains(t, err, "Config.Observer.Sample is 0, must be 1 or more")

	cfg.Observer.Sample = 1
	lim, err := leaselimit.New(membucket.New(), cfg)
	require.NoError(t, err)
	defer lim.Close(context.Background())
	handle := lim.Tenant("acme")
	calls := []func() (leaselimit.Decision, error){
		func() (leaselimit.Decision, error) { return lim.Allow(t.Context(), "acme") },
		func() (leaselimit.Decision, error) { return lim.AllowN(t.Context(), "acme", 1) },
		func() (leaselimit.Decision, error) { return handle.Allow(t.Context()) },
		func() (leaselimit.Decision, error) { return handle.AllowN(t.Context(), 1) },
	}
	for i := range 1000 {
		_, err := calls[i%4]()
		require.NoError(t, err)
	}
	assert.Equal(t, int64(1000), seen.Load())
	assert.Equal(t, int64(500), allowed.Load())
	_, err = lim.AllowN(t.Context(), "acme", 0)
	require.ErrorIs(t, err, leaselimit.ErrInvalidCost)
	assert.Equal(t, int64(1000), seen.Load(), "no decision was made")

	cfg.Observer = &leaselimit.Observer{Sample: 10, Decided: cfg.Observer.Decided}
	some, err := leaselimit.New(membucket.New(), cfg)
	require.NoError(t, err)
	defer some.Close(context.Background())
	seen.Store(0)
	for range 10_000 {
		_, err := some.Allow(t.Context(), "acme")
		require.NoError(t, err)
	}
	assert.InDelta(t, 1000, seen.Load(), 300, "10 standard deviations")
}

func TestTenantStats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &plug{Store: membucket.New()}
		lim, err := leaselimit.New(store, leaselimit.Config{
			Limits: quota.Fixed(quota.Limit{Capacity: 10}), LeaseSize: 5, LeaseShare: 1, Replicas: 1, Logger: slog.New(slog.DiscardHandler),
			OnFailure: leaselimit.FailClosed, Observer: (&notes{}).observer(),
		})
		require.NoError(t, err)
		defer lim.Close(t.Context())
		_, ok := lim.TenantStats("acme")
		require.False(t, ok)
		_, err = lim.Allow(t.Context(), "acme") // waits, and brings five along
		require.NoError(t, err)
		_, err = lim.Allow(t.Context(), "acme")
		require.NoError(t, err)
		s, ok := lim.TenantStats("acme")
		require.True(t, ok)
		assert.Equal(t, int64(2), s.Allowed)
		assert.Equal(t, int64(4), s.Held)
		assert.Equal(t, int64(4), s.Level)
		assert.Equal(t, int64(1), s.Budget)
		require.Len(t, s.Leases, 1)
		assert.Equal(t, int64(5), s.Leases[0].Granted)
		assert.Equal(t, int64(4), s.Leases[0].Left)
		assert.Positive(t, s.Leases[0].Ends)
		assert.Less(t, s.Leases[0].Ends, 30*time.Second)
		assert.Zero(t, s.Answered)

		for range 20 {
			_, err = lim.Allow(t.Context(), "acme")
			require.NoError(t, err)
		}
		s, _ = lim.TenantStats("acme")
		assert.Equal(t, int64(10), s.Allowed)
		assert.Equal(t, int64(12), s.Refused)
		assert.Empty(t, s.Leases)

		store.out.Store(true)
		_, err = lim.Allow(t.Context(), "bolt")
		require.NoError(t, err)
		s, _ = lim.TenantStats("bolt")
		assert.Equal(t, int64(1), s.Refused)
		assert.Equal(t, int64(1), s.Degraded)
		require.ErrorIs(t, s.Failure, errPulled)
		var sum int64
		for _, s := range lim.Tenants(10) {
			sum += s.Allowed + s.Refused
		}
		st := lim.Stats()
		assert.Equal(t, st.Allowed()+st.Refused(), sum, "the tenants add up to the class")
	})
}

// lines counts the lines of a log.
type lines struct{ n atomic.Int64 }

func (l *lines) Write(p []byte) (int, error) {
	l.n.Add(int64(strings.Count(string(p), "\n")))
	return len(p), nil
}

func TestOB2_AnOutageIsAFewLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log lines
		store := &plug{Store: membucket.New()}
		lim, err := leaselimit.New(store, leaselimit.Config{
			Limits: quota.Fixed(quota.PerSecond(100, 100)), Logger: slog.New(slog.NewTextHandler(&log, nil)), Observer: (&notes{}).observer(),
		})
		require.NoError(t, err)
		defer lim.Close(t.Context())
		call := func(n int) {
			for i := range n {
				_, err := lim.Allow(t.Context(), fmt.Sprint("tenant-", i%100))
				require.NoError(t, err)
				time.Sleep(time.Millisecond)
			}
		}
		store.out.Store(true)
		call(10_000)
		assert.Equal(t, int64(1), log.n.Load(), "of the outage")
		assert.Positive(t, lim.Stats().AllowedFallback)
		store.out.Store(false)
		call(2000)
		assert.Equal(t, int64(2), log.n.Load(), "and one of its end")
	})
}

// tardy is a store whose answers take longer than a lease may be spent.
type tardy struct{ *membucket.Store }

func (s tardy) Acquire(ctx context.Context, req lease.AcquireRequest) (lease.Grant, error) {
	g, err := s.Store.Acquire(context.WithoutCancel(ctx), req)
	time.Sleep(2 * time.Second)
	return g, err
}

func TestAnObserverIsToldOfStrandedTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n notes
		lim, err := leaselimit.New(tardy{membucket.New()}, leaselimit.Config{
			Limits: quota.Fixed(quota.Limit{Capacity: 10}), LeaseSize: 3, LeaseShare: 1, Replicas: 1, LeaseTTL: time.Second,
			Observer: &leaselimit.Observer{Stranded: func(tenant string, tokens int64) { n.add("stranded %d of %s", tokens, tenant) }},
			Logger:   slog.New(slog.DiscardHandler),
		})
		require.NoError(t, err)
		defer lim.Close(t.Context())
		d, err := lim.Allow(t.Context(), "acme")
		require.NoError(t, err)
		require.True(t, d.Degraded())
		time.Sleep(2 * time.Second)
		synctest.Wait()
		assert.Equal(t, []string{"stranded 3 of acme"}, n.take())
		assert.Equal(t, int64(3), lim.Stats().TokensStranded)
	})
}
