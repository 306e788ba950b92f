package leaselimit_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leaselimit/leaselimit"
	"github.com/leaselimit/leaselimit/lease"
	"github.com/leaselimit/leaselimit/membucket"
	"github.com/leaselimit/leaselimit/quota"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// moody is a store that fails, loses answers, is late or panics now and then.
type moody struct {
	lease.Store
	mood float64 // the part of the calls
}

var errMoody = errors.New("moody")

func (s *moody) step(step func() error) error {
	time.Sleep(rand.N(3 * time.Millisecond))
	if rand.Float64() >= s.mood {
		return step()
	}
	switch rand.N(8) {
	case 0:
		return &lease.StoreError{Reason: lease.ReasonRefused, Err: errMoody}
	case 1:
		return &lease.StoreError{Reason: lease.ReasonWrongType, Err: errMoody}
	case 2:
		_ = step()
		return &lease.StoreError{Reason: lease.ReasonTimeout, Err: errMoody}
	case 3:
		panic(errMoody)
	}
	time.Sleep(rand.N(200 * time.Millisecond))
	return step()
}

func (s *moody) Acquire(ctx context.Context, r lease.AcquireRequest) (g lease.Grant, err error) {
	err = s.step(func() (err error) { g, err = s.Store.Acquire(ctx, r); return err })
	return g, err
}

func (s *moody) Take(ctx context.Context, c []lease.Charge) (r lease.TakeReply, err error) {
	err = s.step(func() (err error) { r, err = s.Store.Take(ctx, c); return err })
	return r, err
}

func (s *moody) Return(ctx context.Context, items []lease.Return) error {
	return s.step(func() error { return s.Store.Return(ctx, items) })
}

// one of some values.
func one[T any](values ...T) T { return values[rand.N(len(values))] }

// Calls of all kinds, while limits change, tenants are evicted, the store is moody and a limiter is closed: every decision makes sense,
// every call is counted once and every token went one way.
func TestCountsAddUpWhateverHappens(t *testing.T) {
	limits := []quota.Limit{
		{},
		{Capacity: 1, Refill: 1, Per: time.Second},
		{Capacity: 30},
		{Capacity: 50, Refill: 1, Per: time.Hour},
		quota.PerSecond(10, 20), quota.PerSecond(100, 100), quota.PerSecond(1000, 1000), quota.Unlimited,
		{Capacity: quota.MaxTokens, Refill: 1, Per: 1 << 62},
		{Capacity: quota.MaxTokens, Refill: quota.MaxTokens, Per: 1},
	}
	for _, mood := range []float64{0, 0.1, 0.2, 0.4, 0.8} {
		for range 20 {
			bubble(t, func(t *testing.T) { addUp(t, &moody{membucket.New(), mood}, limits) })
		}
	}
}

func addUp(t *testing.T, store lease.Store, limits []quota.Limit) {
	t.Helper()
	var changed atomic.Int64 // limits, so far
	source := func(_ context.Context, tenant string) (quota.Limit, error) {
		return limits[(changed.Load()+int64(tenant[0]))%int64(len(limits))], nil
	}
	limiter := func(class string) (*leaselimit.Limiter, *atomic.Int64) {
		cfg := leaselimit.Config{
			Class: class, Limits: quota.SourceFunc(source),
			LeaseTTL: one(time.Second, 5*time.Second), LeaseSize: one[int64](0, 0, 1, 20), LeaseShare: one(0.25, 1), Exact: one(true, false),
			MaxTenants: one(1, 2, 100), Replicas: rand.N(3), Shadow: one(true, false, false), CoarseClock: one(0, time.Millisecond),
			OnFailure: one(leaselimit.FailLocal, leaselimit.FailOpen, leaselimit.FailClosed),
		}
		return newLimiter(t, store, cfg), new(atomic.Int64)
	}
	a, callsOfA := limiter("a")
	b, callsOfB := limiter("b")
	handle := a.Tenant("a")
	check := func(d leaselimit.Decision, err error) {
		if err == nil {
			assert.True(t, d.Allowed == (d.RetryAfter == 0) && d.RetryAfter >= 0, "%v: %v", d.RetryAfter, d)
			assert.True(t, d.Remaining >= 0 && d.Remaining <= d.Limit.Capacity, "%v", d)
		}
	}
	call := func() {
		ctx, cancel := context.WithTimeout(context.Background(), rand.N(100*time.Millisecond))
		defer cancel()
		tenant, cost := one("a", "b", "c"), one[int64](1, 1, 1, 2, 7, 40, quota.MaxTokens/3)
		switch rand.N(8) {
		case 0:
			callsOfA.Add(1)
			callsOfB.Add(1)
			check(leaselimit.AllowAll(ctx, tenant, leaselimit.Charge{Limiter: a, Cost: cost}, leaselimit.Charge{Limiter: b, Cost: 1}))
		case 1:
			callsOfA.Add(1)
			e, err := a.Estimate(ctx, tenant, cost)
			check(e.Decision, err)
			time.Sleep(rand.N(time.Second))
			_ = e.Settle(ctx, rand.N(2*cost))
		case 2:
			changed.Add(1)
		case 3:
			a.Stats()
			a.Tenants(3)
		case 4:
			callsOfB.Add(1)
			check(b.AllowN(ctx, tenant, cost))
		case 5:
			callsOfA.Add(1)
			check(handle.AllowN(ctx, cost))
		default:
			callsOfA.Add(1)
			check(a.AllowN(ctx, tenant, cost))
		}
	}
	var all sync.WaitGroup
	for range 6 {
		all.Go(func() {
			for range 100 {
				call()
				time.Sleep(rand.N(30 * time.Millisecond))
			}
		})
	}
	if one(true, false, false) {
		time.Sleep(rand.N(3 * time.Second))
		require.NoError(t, a.Close(context.Background()))
	}
	all.Wait()
	for lim, calls := range map[*leaselimit.Limiter]*atomic.Int64{a: callsOfA, b: callsOfB} {
		require.NoError(t, lim.Close(context.Background()))
		s := lim.Stats()
		what := fmt.Sprintf("%+v", s)
		assert.Equal(t, calls.Load(), s.Allowed()+s.Refused()+s.Errors, what)
		assert.Zero(t, s.TokensHeld, what)
		assert.Equal(t, s.TokensGranted, s.TokensSpent+s.TokensReturned+s.TokensLost+s.TokensStranded, what)
		assert.True(t, s.AllowedLease >= 0 && s.RefusedPrecheck >= 0, what)
	}
}
