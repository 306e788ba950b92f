package lease_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leaselimit/leaselimit/lease"
	"github.com/leaselimit/leaselimit/quota"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const (
	ms   = time.Millisecond
	trip = 10 * ms
)

// One draw is under way for a tenant; the next one carries all that came meanwhile, each counted once.
func TestCallsThatWaitAreMerged(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, quota.Limit{Capacity: 1000}, options())
		r.store.onAcquire(late(trip))
		first := r.start(t.Context(), 3)
		var rest []*pending
		for i := range 50 {
			rest = append(rest, r.start(t.Context(), int64(1+i%4)))
		}
		time.Sleep(2 * trip)
		synctest.Wait()
		assert.Equal(t, lease.FromStore, first.res.Verdict)
		assert.Equal(t, trip, first.took)
		for _, p := range rest {
			assert.Equal(t, lease.FromStore, p.res.Verdict)
			assert.Equal(t, 2*trip, p.took)
		}
		draws := r.store.draws()
		require.Len(t, draws, 2)
		assert.Equal(t, int64(3), draws[0].req.Min)
		assert.Equal(t, int64(3), draws[0].req.Need)
		assert.Equal(t, int64(1), draws[1].req.Min)
		assert.Equal(t, int64(13*1+13*2+12*3+12*4), draws[1].req.Need)
		assert.Equal(t, int64(3+13*1+13*2+12*3+12*4), r.pool.Counters().WaiterTokens.Load())
	})
}

// What a waiter did not spend goes back at once, in full, and never becomes surplus.
func TestTokensOfDepartedWaitersGoBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, quota.Limit{Capacity: 100}, options())
		r.store.onAcquire(late(trip))
		gone, cancel := context.WithCancel(t.Context())
		lives, leaves := r.start(t.Context(), 1), []*pending{}
		for range 3 {
			leaves = append(leaves, r.start(gone, 10))
		}
		stays := r.start(t.Context(), 5)
		time.Sleep(trip + trip/2) // the second draw carries 35
		synctest.Wait()
		cancel()
		synctest.Wait()
		for _, p := range leaves {
			require.True(t, p.done.Load(), "a caller that leaves does not wait for the draw")
			require.ErrorIs(t, p.err, context.Canceled)
		}
		assert.Zero(t, r.Waiting()-1)
		time.Sleep(trip)
		synctest.Wait()
		assert.True(t, lives.res.Allowed())
		assert.True(t, stays.res.Allowed())
		assert.Equal(t, int64(35), r.store.draws()[1].grant.Waiters)
		var back int64
		for _, x := range r.store.returns() {
			back += x.Waiters
			assert.Equal(t, 2*trip, x.at, "at once")
		}
		assert.Equal(t, int64(30), back)
		st := r.peek()
		assert.InDelta(t, 100.0-1-5-float64(r.Held()), st.Level, 1e-6)
		assert.Equal(t, r.Held(), st.Out)
		r.adds()
	})
}

// A grant that does not cover a call serves cheaper ones behind it, and what nobody can use goes back.
func TestAPartGrantServesWhomItCovers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, quota.Limit{Capacity: 100}, options())
		r.store.onAcquire(late(trip))
		r.start(t.Context(), 1)
		dear, cheap, last := r.start(t.Context(), 20), r.start(t.Context(), 5), r.start(t.Context(), 2)
		r.drain(8) // by others, unseen
		time.Sleep(2 * trip)
		synctest.Wait()
		assert.Equal(t, lease.RefusedStore, dear.res.Verdict)
		assert.Equal(t, lease.Never, dear.res.RetryAfter, "no refill")
		assert.Equal(t, lease.FromStore, cheap.res.Verdict)
		assert.Equal(t, lease.FromStore, last.res.Verdict)
		assert.Equal(t, int64(8), r.store.draws()[1].grant.Waiters)
		st := r.peek()
		assert.Equal(t, r.Held(), st.Out)
		assert.InDelta(t, 1.0, st.Level+float64(r.Held()), 1e-6)
		r.adds()
	})
}

// Tokens in hand complete what a call needs: the draw asks for the rest only.
func TestADrawAsksForWhatIsMissing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, quota.Limit{Capacity: 100}, fixed())
		r.spend(1)
		require.Equal(t, int64(20), r.Held())
		res := r.spend(50)
		assert.Equal(t, lease.FromStore, res.Verdict)
		d := r.store.draws()[1]
		assert.Equal(t, int64(30), d.req.Need)
		assert.Equal(t, int64(30), d.req.Min)
		spent, calls, _ := r.Spent()
		assert.Equal(t, int64(20), spent)
		assert.Zero(t, calls, "none was decided from the lease alone")
		r.adds()
	})
}

// What is in hand is in hand, though it is in two leases and the bucket is in debt.
func TestTwoLeasesServeACallWhileTheBucketIsInDebt(t *testing.T) {
	bubble(t, func(t *testing.T) {
		o := options()
		o.LeaseSize, o.MaxHold = 6, 12
		r := newRig(t, quota.PerSecond(10, 100), o)
		require.Equal(t, 4, r.spendN(4)) // three left of the first lease: topped up
		require.Equal(t, int64(9), r.Held())
		r.drain(0)
		_, err := r.store.Store.Acquire(t.Context(), lease.AcquireRequest{
			Key: r.key, Terms: o.Terms(r.limit), Want: 20, Min: 1, Horizon: 2 * time.Second,
		})
		require.NoError(t, err)
		require.False(t, r.spend(50).Allowed())
		require.Negative(t, r.peek().Level)
		res := r.spend(8)
		assert.Equal(t, lease.FromLease, res.Verdict, "%+v of %v", res, r.Leases())
		assert.False(t, r.spend(2).Allowed(), "one is left")
		spent, calls, _ := r.Spent()
		assert.Equal(t, int64(3+8), spent)
		assert.Equal(t, int64(3+1), calls, "one call, of two leases")
	})
}

// A draw that is late stays late, though a Take was answered meanwhile.
func TestALateDrawFailsCallersUntilItIsAnswered(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, quota.Limit{Capacity: 100}, options())
		r.store.onAcquire(late(time.Second))
		first := r.start(t.Context(), 1)
		time.Sleep(60 * ms)
		require.True(t, first.done.Load())
		require.Equal(t, lease.ReasonTimeout, lease.ReasonOf(first.err))

		p := &lease.Part{Holder: r.Holder, Limit: r.limit, Cost: 5}
		require.NoError(t, lease.Take(t.Context(), []*lease.Part{p}))
		require.Equal(t, lease.FromStore, p.Result.Verdict)
		res, err := r.try(t.Context(), 1)
		require.Equal(t, lease.ReasonTimeout, lease.ReasonOf(err), "%+v", res)
		r.store.onAcquire(nil)
		time.Sleep(time.Second)
		require.True(t, r.spend(1).Allowed())
	})
}

// A pressed replica does not keep from cheap calls what will not be enough for the dear ones in time.
func TestDearCallsThatAreRefusedKeepNothingFromCheapOnes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, quota.Limit{Capacity: 100, Refill: 1, Per: time.Hour}, options())
		r.drain(8)
		for range 60 {
			res := r.spend(10)
			require.False(t, res.Allowed())
			require.InDelta(t, 2*time.Hour, res.RetryAfter, float64(time.Minute))
			time.Sleep(300 * time.Millisecond)
		}
		require.NotEmpty(t, slices.DeleteFunc(r.store.draws(), func(d drawn) bool { return d.req.Horizon == 0 }), "pressed")
		assert.Equal(t, 8, r.spendN(9))
	})
}

// What a pressed replica has in hand counts for the call that it draws for: the rest becomes ready when it is due.
func TestAPressedDrawCountsWhatIsInHand(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, quota.PerSecond(10, 100), options())
		r.drain(0)
		seen := 0
		r.store.onAcquire(func(_ context.Context, next func() (lease.Grant, error)) (lease.Grant, error) {
			draws := r.store.draws()
			req, here := draws[len(draws)-1].req, r.Available()
			if req.Horizon > 0 && req.Need == 0 && here > 0 && here < 3 {
				seen++
				assert.LessOrEqual(t, req.Min, 3-here, "%d in hand: %+v", here, req)
			}
			return next()
		})
		for i := 0; i < 20_000 || (seen == 0 && i < 1_000_000); i++ { // it is a matter of chance when that is seen first
			r.spend(3)
			time.Sleep(ms)
		}
		assert.Positive(t, seen)
	})
}

// A call waits for three draws at most.
func TestACallWaitsForThreeDraws(t *testing.T) {
	bubble(t, func(t *testing.T) {
		// 1000/s and a round trip of 10 ms: by its age, each answer leaves room for 10 more tokens.
		r := newRig(t, quota.PerSecond(1000, 100), options())
		var cheap sync.WaitGroup
		r.store.onAcquire(func(_ context.Context, next func() (lease.Grant, error)) (lease.Grant, error) {
			r.drain(5) // others are quicker
			g, err := next()
			if g.Waiters > 0 {
				cheap.Go(func() { _, _ = r.Spend(context.Background(), r.limit, 1) }) // for the next draw to serve
			}
			time.Sleep(trip)
			return g, err
		})
		r.start(t.Context(), 1)
		dear := r.start(t.Context(), 12)
		for range 20 {
			time.Sleep(trip)
			synctest.Wait()
			if dear.done.Load() {
				break
			}
		}
		r.store.onAcquire(nil)
		time.Sleep(trip)
		cheap.Wait()
		require.True(t, dear.done.Load(), "waits for ever")
		require.NoError(t, dear.err)
		assert.Equal(t, lease.RefusedRounds, dear.res.Verdict)
		assert.Equal(t, (lease.MaxRounds+1)*trip, dear.took, "the rest of the draw under way, and three")
		assert.Positive(t, dear.res.RetryAfter)
	})
}

// Once a draw was refused, the next one of the tenant comes 5 ms later at the earliest, however calls hammer.
func TestDrawsOfARefusedTenantAreApart(t *testing.T) {
	for name, limit := range map[string]quota.Limit{
		"quick":      quota.PerSecond(1000, 10),
		"very quick": quota.PerSecond(100_000, 100),
		"slow":       quota.PerSecond(1, 10),
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := newRig(t, limit, options())
				r.store.onAcquire(func(_ context.Context, next func() (lease.Grant, error)) (lease.Grant, error) {
					r.drain(0) // others take it all
					return next()
				})
				floors := 0
				for i := range 10_000 {
					res, err := r.try(t.Context(), int64(1+i%2))
					require.NoError(t, err)
					if !res.Allowed() {
						require.Positive(t, res.RetryAfter)
					}
					if res.Verdict == lease.RefusedFloor {
						floors++
						require.LessOrEqual(t, res.RetryAfter, max(20*time.Millisecond, 3*time.Second/time.Duration(limit.Refill)))
					}
					time.Sleep(100 * time.Microsecond)
				}
				synctest.Wait()
				draws := r.store.draws()
				for i := 1; i < len(draws); i++ {
					if before := draws[i-1]; before.req.Need > 0 && before.grant.Waiters == 0 {
						assert.GreaterOrEqual(t, draws[i].at-before.at, lease.Floor, "draw %d: %+v", i, draws[i].req)
					}
					if t.Failed() {
						break
					}
				}
				assert.LessOrEqual(t, len(draws), 210, "in a second")
				assert.Equal(t, int64(floors), r.pool.Counters().Floor.Load(), "counted apart")
			})
		})
	}
}

// A store that hangs is asked once. Those that wait are failed over once, after the timeout; later calls at once.
func TestAnOverdueDrawHoldsNobodyUp(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, quota.Limit{Capacity: 100}, options())
		r.store.onAcquire(late(5 * time.Second))
		var early []*pending
		for range 20 {
			early = append(early, r.start(t.Context(), 1))
			time.Sleep(time.Millisecond)
		}
		time.Sleep(31 * time.Millisecond)
		synctest.Wait()
		for i, p := range early {
			require.True(t, p.done.Load())
			assert.Equal(t, lease.ReasonTimeout, lease.ReasonOf(p.err))
			assert.Equal(t, 50*time.Millisecond-time.Duration(i)*time.Millisecond, p.took)
		}
		for range 100 {
			p := r.start(t.Context(), 1)
			require.True(t, p.done.Load(), "a call that comes while the draw is overdue does not wait")
			assert.Equal(t, lease.ReasonTimeout, lease.ReasonOf(p.err))
			time.Sleep(40 * time.Millisecond)
		}
		for _, d := range r.store.draws()[1:] {
			assert.Zero(t, d.req.Need+d.req.Want, "only probes beside it")
		}
		time.Sleep(time.Second)
		r.store.onAcquire(nil)
		time.Sleep(1500 * time.Millisecond) // a probe ends, so that another may begin
		synctest.Wait()
		assert.True(t, r.spend(1).Allowed())
		assert.InDelta(t, 100.0-1-float64(r.Held()), r.peek().Level, 1e-6)
	})
}

// A failed draw is handed to every call that waits, and the store is left alone for a while that grows to a quarter of a second.
func TestFailuresAreApart(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, quota.Limit{Capacity: 100}, options())
		r.store.onAcquire(down)
		for range 10_000 {
			_, err := r.try(t.Context(), 1)
			require.ErrorIs(t, err, errLost)
			time.Sleep(time.Millisecond)
		}
		draws := r.store.draws()
		assert.Greater(t, len(draws), 10)
		assert.Less(t, len(draws), 90, "in ten seconds")
		for i := 7; i < len(draws); i++ {
			assert.GreaterOrEqual(t, draws[i].at-draws[i-1].at, 125*time.Millisecond)
			assert.LessOrEqual(t, draws[i].at-draws[i-1].at, 251*time.Millisecond)
		}
		assert.Equal(t, int64(3), r.pool.Counters().Failures.Load(), "the others are probes")
		assert.Equal(t, int64(len(draws)), r.pool.Counters().Failed(lease.ReasonRefused).Load())

		r.store.onAcquire(nil)
		time.Sleep(time.Second)
		assert.Equal(t, lease.FromStore, r.spend(1).Verdict)
		assert.True(t, r.spend(1).Allowed(), "and all is well at once")

		r.drain(0)
		for i := range 100 { // refusals are refusals again, also those by the floor
			_, err := r.try(t.Context(), int64(1+i%40))
			require.NoError(t, err)
			time.Sleep(ms)
		}
		time.Sleep(10 * time.Second) // the leases are gone, and what was known
		again := len(r.store.draws())
		r.store.onAcquire(down)
		for range 60 {
			_, err := r.try(t.Context(), 1)
			require.ErrorIs(t, err, errLost)
			time.Sleep(ms)
		}
		assert.Len(t, r.store.draws(), again+2, "the pause begins at 50 ms again")
	})
}

// A panic of the store is an error of that draw, no more.
func TestAPanicOfTheStoreIsAnError(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, quota.Limit{Capacity: 100}, options())
		r.store.onAcquire(func(context.Context, func() (lease.Grant, error)) (lease.Grant, error) { panic("boom") })
		_, err := r.try(t.Context(), 1)
		var se *lease.StoreError
		require.ErrorAs(t, err, &se)
		assert.Equal(t, lease.ReasonOther, se.Reason)
		assert.Contains(t, err.Error(), "boom")
		r.store.onAcquire(nil)
		time.Sleep(100 * time.Millisecond)
		assert.True(t, r.spend(1).Allowed())
	})
}

func TestReasonOf(t *testing.T) {
	assert.Equal(t, lease.ReasonBusy, lease.ReasonOf(&lease.StoreError{Op: "acquire", Reason: lease.ReasonBusy, Err: errLost}))
	assert.Equal(t, lease.ReasonTimeout, lease.ReasonOf(context.DeadlineExceeded))
	assert.Equal(t, lease.ReasonTimeout, lease.ReasonOf(context.Canceled))
	assert.Equal(t, lease.ReasonOther, lease.ReasonOf(errLost))
	err := error(&lease.StoreError{Op: "acquire", Reason: lease.ReasonBusy, Err: errLost})
	require.ErrorIs(t, err, errLost)
	assert.Equal(t, "lease: acquire failed (busy): connection reset", err.Error())
	assert.Equal(t, lease.ReasonBusy, lease.ReasonOf(errors.Join(errLost, err)))
}

// A tick that waits for the lock while another takes its place is none any more.
func TestATickThatWasReplacedIsNone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, quota.PerSecond(1, 10), options())
		r.PressAgain(time.Minute)
		synctest.Wait()
		assert.True(t, r.View().Pressed, "the other has its turn in a minute")
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.False(t, r.View().Pressed)
	})
}
