package lease_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leaselimit/leaselimit/lease"
	"github.com/leaselimit/leaselimit/quota"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// What remains is told of the limit that the call was made under, though another one has come meanwhile.
func TestRemainingIsOfTheCallsOwnLimit(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, quota.Limit{Capacity: 10}, options())
		r.store.onAcquire(func(context.Context, func() (lease.Grant, error)) (lease.Grant, error) {
			time.Sleep(trip)
			r.store.onAcquire(nil)
			return lease.Grant{RetryAfter: time.Second}, nil
		})
		r.start(t.Context(), 1)
		small := r.start(t.Context(), 1)
		r.limit = quota.Limit{Capacity: 1000}
		large := r.start(t.Context(), 1)
		time.Sleep(2 * trip)
		synctest.Wait()
		require.Equal(t, lease.Result{Verdict: lease.FromStore, Remaining: 10}, small.res)
		require.Greater(t, large.res.Remaining, int64(900))
	})
}

// Leases that a cut of the limit sends back hold the bucket down until they arrive. A draw that overtakes them is refused; the next one
// waits for them, and if they take too long the caller is told to come soon, not when they would have aged.
func TestACutDoesNotRefuseForWhatIsOnItsWayBack(t *testing.T) {
	for name, c := range map[string]struct {
		back, trip time.Duration // how long a return takes, and a draw
		want       lease.Verdict
		most       time.Duration // of RetryAfter
	}{
		"at once":            {0, 0, lease.FromStore, 0},
		"soon":               {10 * ms, 0, lease.FromStore, 0},
		"too late":           {time.Second, 0, lease.RefusedRounds, 10 * ms},
		"soon and far away":  {14 * ms, 10 * ms, lease.FromStore, 0},
		"never and far away": {time.Second, 10 * ms, lease.RefusedRounds, 10 * ms},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				o := options()
				o.LeaseSize, o.MaxHold = 200, 200
				r := newRig(t, quota.PerSecond(1000, 1000), o)
				r.spendN(10)
				require.Equal(t, int64(191), r.Held())
				r.store.onReturn(func(_ context.Context, next func() error) error {
					time.Sleep(c.back)
					return next()
				})
				r.store.onAcquire(late(c.trip))
				r.limit = quota.PerSecond(1000, 7)
				call := r.start(t.Context(), 1)
				time.Sleep(o.Timeout)
				synctest.Wait()
				require.NoError(t, call.err)
				assert.Equal(t, c.want, call.res.Verdict)
				assert.LessOrEqual(t, call.res.RetryAfter, c.most)
				time.Sleep(2 * time.Second)
				assert.True(t, r.spend(1).Allowed())
			})
		})
	}
}

// The same for a call that several limits have to let pass, which asks once.
func TestACutOfOneOfSeveralLimitsTellsNoLongWait(t *testing.T) {
	bubble(t, func(t *testing.T) {
		o := options()
		o.LeaseSize, o.MaxHold = 200, 200
		r := newRig(t, quota.PerSecond(1000, 1000), o)
		r.spendN(10)
		r.store.onReturn(func(_ context.Context, next func() error) error {
			time.Sleep(10 * time.Millisecond)
			return next()
		})
		p := &lease.Part{Holder: r.Holder, Limit: quota.PerSecond(1000, 7), Cost: 1}
		require.NoError(t, p.Judge())
		require.Zero(t, p.Result.Verdict)
		require.NoError(t, lease.Take(t.Context(), []*lease.Part{p}))
		assert.Equal(t, lease.RefusedStore, p.Result.Verdict)
		assert.LessOrEqual(t, p.Result.RetryAfter, 10*time.Millisecond)
	})
}

// A raise drops the pre-check; a cut gives back what is held.
func TestAChangedLimit(t *testing.T) {
	t.Run("a raise is asked for at once", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			r := newRig(t, quota.Limit{Capacity: 10, Refill: 1, Per: time.Hour}, options())
			require.Equal(t, 10, r.spendN(12))
			require.Equal(t, lease.RefusedLocal, r.spend(1).Verdict)
			r.limit = quota.PerSecond(1000, 1000)
			assert.Equal(t, lease.RefusedStore, r.spend(1).Verdict, "a raise gives no tokens")
			time.Sleep(10 * time.Millisecond)
			assert.Equal(t, lease.FromStore, r.spend(1).Verdict)
		})
	})
	t.Run("a raise keeps what is held", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			r := newRig(t, quota.Limit{Capacity: 100}, fixed())
			r.spend(1)
			r.limit.Capacity = 200
			assert.Equal(t, lease.FromLease, r.spend(1).Verdict)
			assert.Equal(t, int64(19), r.Held())
		})
	})
	for name, cut := range map[string]quota.Limit{
		"capacity": {Capacity: 50, Refill: 1, Per: time.Hour},
		"rate":     {Capacity: 100, Refill: 1, Per: 2 * time.Hour},
	} {
		t.Run("a cut of the "+name+" gives back the leases", func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := newRig(t, quota.Limit{Capacity: 100, Refill: 1, Per: time.Hour}, fixed())
				require.Equal(t, 4, r.spendN(4))
				require.Equal(t, int64(17), r.Held())
				r.limit = cut
				res := r.spend(10)
				assert.Equal(t, lease.FromStore, res.Verdict)
				var back []returned
				for _, x := range r.store.returns() {
					if x.Unspent > 0 {
						back = append(back, x)
					}
				}
				require.Len(t, back, 1)
				assert.Equal(t, int64(17), back[0].Unspent)
				assert.Equal(t, int64(3), back[0].Spent)
				assert.Equal(t, cut, back[0].Terms.Limit)
				r.adds()
			})
		})
	}
	t.Run("the answer to an old question is not believed", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			r := newRig(t, quota.Limit{Capacity: 10, Refill: 1, Per: time.Hour}, fixed())
			r.drain(0)
			r.store.onAcquire(late(trip))
			old := r.start(t.Context(), 5)
			r.limit = quota.PerSecond(1000, 1000)
			fresh := r.start(t.Context(), 5)
			time.Sleep(2 * trip)
			synctest.Wait()
			assert.False(t, old.res.Allowed() && fresh.res.Allowed())
			time.Sleep(2 * trip)
			r.store.onAcquire(nil)
			assert.True(t, r.spend(5).Allowed(), "ten tokens are there by now, whatever the old answer said")
			r.adds()
		})
	})
	t.Run("a lease of an old limit is given back on arrival", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			r := newRig(t, quota.Limit{Capacity: 100}, fixed())
			r.store.onAcquire(late(trip))
			r.start(t.Context(), 1)
			r.limit.Capacity = 50
			r.start(t.Context(), 1)
			time.Sleep(trip)
			synctest.Wait()
			r.store.onAcquire(nil)
			time.Sleep(trip)
			synctest.Wait()
			st := r.peek()
			assert.Equal(t, r.Held(), st.Out)
			r.adds()
		})
	})
}
