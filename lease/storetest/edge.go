package storetest

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leaselimit/leaselimit/lease"
	"github.com/leaselimit/leaselimit/quota"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Faulty requests, contexts that are done, and many callers at once.
var edgeTests = []test{
	{"InvalidRequestsDoNothing", func(t *testing.T, b *bench) {
		good := terms(10, 1, 1, 5)
		acquires := map[string]func(*lease.AcquireRequest){
			"no tenant":           func(r *lease.AcquireRequest) { r.Key.Tenant = "" },
			"no class":            func(r *lease.AcquireRequest) { r.Key.Class = "" },
			"invalid limit":       func(r *lease.AcquireRequest) { r.Terms.Limit.Capacity = -1 },
			"capacity above 2^53": func(r *lease.AcquireRequest) { r.Terms.Limit.Capacity = quota.MaxTokens + 1 },
			"no period":           func(r *lease.AcquireRequest) { r.Terms.Limit.Per = 0 },
			"unlimited":           func(r *lease.AcquireRequest) { r.Terms.Limit = quota.Unlimited },
			"negative budget":     func(r *lease.AcquireRequest) { r.Terms.Budget = -1 },
			"negative share":      func(r *lease.AcquireRequest) { r.Terms.Share = -1 },
			"no TTL":              func(r *lease.AcquireRequest) { r.Terms.TTL = 0 },
			"negative need":       func(r *lease.AcquireRequest) { r.Need = -100 },
			"negative min":        func(r *lease.AcquireRequest) { r.Min = -100 },
			"min above need":      func(r *lease.AcquireRequest) { r.Min = 2 },
			"negative want":       func(r *lease.AcquireRequest) { r.Want = math.MinInt64 },
			"negative horizon":    func(r *lease.AcquireRequest) { r.Horizon = -1 },
			"negative replicas":   func(r *lease.AcquireRequest) { r.Replicas = -1 },
			"negative held":       func(r *lease.AcquireRequest) { r.Held = -1 },
			"negative report":     func(r *lease.AcquireRequest) { r.Reports[1].Tokens = -1 },
		}
		for name, spoil := range acquires {
			req := lease.AcquireRequest{Key: bucket, Terms: good, Min: 1, Need: 1, Want: 1}
			spoil(&req)
			_, err := b.Store.Acquire(t.Context(), req)
			refusedAs(t, err, "acquire", lease.ReasonOther, name)
		}
		for name, charges := range map[string][]lease.Charge{
			"none":          {},
			"cost 0":        {{Key: bucket, Terms: good}},
			"negative cost": {{Key: bucket, Terms: good, Cost: 1}, {Key: bucket, Terms: good, Cost: -100}},
			"two tenants":   {{Key: bucket, Terms: good, Cost: 1}, {Key: lease.Key{Tenant: "b", Class: "c"}, Terms: good, Cost: 1}},
		} {
			_, err := b.Store.Take(t.Context(), charges)
			refusedAs(t, err, "take", lease.ReasonOther, name)
		}
		_, err := b.Store.Peek(t.Context(), lease.Key{}, good)
		refusedAs(t, err, "peek", lease.ReasonOther, "no key")
		refusedAs(t, b.Store.Reset(t.Context(), lease.Key{}), "reset", lease.ReasonOther, "no key")
		assert.Equal(t, lease.State{Level: 10}, b.peek(good), "nothing may have happened")
	}},

	{"NothingHappensUnderADoneContext", func(t *testing.T, b *bench) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		lim := terms(10, 1, 0, 10)
		g := b.borrow(lim, 5)

		_, err := b.Store.Acquire(ctx, lease.AcquireRequest{Key: bucket, Terms: lim, Min: 1, Need: 1})
		refusedAs(t, err, "acquire", lease.ReasonTimeout, "acquire")
		_, err = b.Store.Take(ctx, []lease.Charge{{Key: bucket, Terms: lim, Cost: 1}})
		refusedAs(t, err, "take", lease.ReasonTimeout, "take")
		_, err = b.Store.Peek(ctx, bucket, lim)
		refusedAs(t, err, "peek", lease.ReasonTimeout, "peek")
		refusedAs(t, b.Store.Reset(ctx, bucket), "reset", lease.ReasonTimeout, "reset")
		err = b.Store.Return(ctx, []lease.Return{{Key: bucket, Terms: lim, Epoch: g.Epoch, Unspent: 5}})
		refusedAs(t, err, "return", lease.ReasonTimeout, "return")
		require.ErrorIs(t, err, context.Canceled)

		b.holds(lim, 5, 5)
	}},

	{"ManyCallersGetExactlyTheCapacity", func(t *testing.T, b *bench) {
		const capacity, callers, calls = 100, 200, 10
		lim := lease.Terms{Limit: quota.Limit{Capacity: capacity}, Share: 25, TTL: time.Minute}
		var granted atomic.Int64
		var wg sync.WaitGroup
		for i := range callers {
			wg.Go(func() {
				for j := range calls {
					if (i+j)%2 == 0 {
						r, err := b.Store.Take(t.Context(), []lease.Charge{{Key: bucket, Terms: lim, Cost: 1}})
						assert.NoError(t, err)
						if r.Allowed {
							granted.Add(1)
						}
						continue
					}
					g, err := b.Store.Acquire(t.Context(), lease.AcquireRequest{Key: bucket, Terms: lim, Min: 1, Need: 1, Want: 1})
					assert.NoError(t, err)
					granted.Add(g.Waiters + g.Surplus)
				}
			})
		}
		wg.Wait()
		assert.Equal(t, int64(capacity), granted.Load())
	}},
}

// refusedAs checks that a call failed with a StoreError that says so.
func refusedAs(t *testing.T, err error, op string, reason lease.Reason, what string) {
	t.Helper()
	var se *lease.StoreError
	if assert.ErrorAs(t, err, &se, what) {
		assert.Equal(t, op, se.Op, what)
		assert.Equal(t, reason, se.Reason, what)
	}
}
