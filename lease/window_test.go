package lease_test

import (
	"context"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leaselimit/leaselimit/lease"
	"github.com/leaselimit/leaselimit/quota"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// fixed is options with a lease of 20 for each draw.
func fixed() lease.Options {
	o := options()
	o.LeaseSize = 20
	return o
}

// The trust window counts from before the question was sent: a late answer leaves less of it, and none in the end.
func TestLateRepliesDoNotLengthenTheWindow(t *testing.T) {
	const window = 9949 * time.Millisecond
	for _, latency := range []time.Duration{
		0, time.Millisecond, 40 * time.Millisecond, time.Second, 8 * time.Second, // held until the last tenth
		8955 * time.Millisecond, 9 * time.Second, window - 1, // returned on arrival
		window, 10 * time.Second, time.Minute, // not spent, and not returned either
	} {
		t.Run(latency.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := newRig(t, quota.Limit{Capacity: 100}, fixed())
				time.Sleep(3 * time.Second)
				sent := r.store.now()
				r.store.onAcquire(late(latency))
				r.start(t.Context(), 1)
				time.Sleep(latency)
				synctest.Wait()
				r.store.onAcquire(down)

				switch {
				case latency < window-window/10:
					assert.Equal(t, []time.Duration{sent + window}, r.Deadlines())
					assert.Equal(t, int64(20), r.Held())
					time.Sleep(sent + window - window/10 - r.store.now() - 1)
					synctest.Wait()
					assert.Equal(t, int64(20), r.Held(), "until the last tenth")
					time.Sleep(1)
					synctest.Wait()
				case latency >= window:
					assert.Equal(t, int64(20), r.pool.Counters().Stranded.Load())
				}
				if latency < window {
					assert.Zero(t, r.pool.Counters().Stranded.Load())
					var back int64
					for _, x := range r.store.returns() {
						back += x.Unspent
						if x.Unspent > 0 {
							assert.Equal(t, max(sent+latency, sent+window-window/10), x.at, "when it was returned")
						}
					}
					assert.Equal(t, int64(20), back)
				}
				assert.Zero(t, r.Held())
				res, err := r.try(t.Context(), 1)
				assert.False(t, res.Allowed(), "nothing of it may be spent: %+v", res)
				require.Error(t, err)
				r.adds()
			})
		})
	}
}

// Future tokens are ready as long after the answer as it says, however long that was on its way.
func TestFutureTokensCountFromTheAnswer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, quota.PerSecond(10, 100), options())
		r.drain(0)
		r.store.onAcquire(late(40 * ms))
		seen := 0
		for range 5000 {
			_, err := r.try(t.Context(), 1)
			require.NoError(t, err)
			draws := r.store.draws()
			d := draws[len(draws)-1]
			if d.grant.Next == 0 || d.at+40*ms > r.store.now() || r.Held() != d.grant.Surplus || r.Available() > 0 {
				time.Sleep(ms)
				continue
			}
			// It has landed, and nothing is ready. Be there when the next token is.
			if wait := d.at + 40*ms + d.grant.First - r.store.now(); wait > 1 && d.grant.Ready == 0 {
				time.Sleep(wait - 1)
				synctest.Wait()
				if after := r.store.draws(); len(after) > len(draws) {
					continue
				}
				require.Zero(t, r.Available(), "of %+v", d.grant)
				time.Sleep(1)
				require.Equal(t, d.grant.Next, r.Available(), "of %+v", d.grant)
				seen++
			}
			time.Sleep(ms)
		}
		assert.Positive(t, seen)
	})
}

// Waiters whose draw is late have been failed over; what it brings for them goes back, its surplus is for later calls.
func TestALateGrantServesLaterCalls(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, quota.Limit{Capacity: 100}, fixed())
		r.store.onAcquire(late(time.Second))
		p := r.start(t.Context(), 7)
		time.Sleep(time.Second)
		synctest.Wait()
		require.Error(t, p.err)
		assert.Equal(t, 50*time.Millisecond, p.took)
		assert.Equal(t, lease.ReasonTimeout, lease.ReasonOf(p.err))
		assert.Equal(t, int64(1), r.pool.Counters().Late.Load())
		assert.Equal(t, int64(20), r.Held())
		st := r.peek()
		assert.InDelta(t, 80.0, st.Level, 1e-6, "the seven are back")
		assert.Equal(t, int64(20), st.Out, "and did not become surplus")
		assert.Equal(t, lease.FromLease, r.spend(20).Verdict)
		r.adds()
	})
}

// An idle replica gives back what it holds in the last tenth of the window, naming the epoch, with what it has not reported.
func TestUnspentTokensAreReturnedInTheLastTenth(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, quota.Limit{Capacity: 100}, fixed())
		require.Equal(t, 6, r.spendN(6))
		require.Equal(t, int64(15), r.Held())
		epoch := r.store.draws()[0].grant.Epoch
		assert.Equal(t, int64(20), r.peek().Out)

		time.Sleep(9 * time.Second)
		synctest.Wait()
		require.Len(t, r.store.returns(), 1)
		got := r.store.returns()[0]
		assert.Equal(t, 8954100*time.Microsecond, got.at)
		assert.Equal(t, epoch, got.Epoch)
		assert.Equal(t, int64(15), got.Unspent)
		assert.Equal(t, int64(5), got.Spent)
		assert.Zero(t, got.Waiters)
		st := r.peek()
		assert.Zero(t, st.Out)
		assert.InDelta(t, 94.0, st.Level, 1e-6)
		assert.Zero(t, r.pool.Timers(r.Holder), "an idle replica has no timer")
		r.adds()
	})
}

// Many holders are swept by one timer, each at its own time, and what is due together goes in one trip.
func TestEachLeaseIsReturnedAtItsOwnTime(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := newTap()
		pool := lease.NewPool(store, fixed())
		limit := quota.Limit{Capacity: 100}
		store.onReturn(func(_ context.Context, next func() error) error {
			err := next()
			time.Sleep(ms) // meanwhile the others gather
			return err
		})
		var all []*lease.Holder
		want := map[string]time.Duration{}
		for i := range 50 {
			h := pool.NewHolder(string(rune('A'+i)), limit)
			all = append(all, h)
			_, err := h.Spend(t.Context(), limit, 1)
			require.NoError(t, err)
			want[h.Key().Tenant] = store.now() + 8954100*time.Microsecond
			if i%10 == 9 {
				time.Sleep(100 * time.Millisecond)
			}
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		require.Len(t, store.returns(), 50)
		for _, x := range store.returns() {
			assert.GreaterOrEqual(t, x.at, want[x.Key.Tenant], x.Key.Tenant)
			assert.LessOrEqual(t, x.at, want[x.Key.Tenant]+ms, x.Key.Tenant)
		}
		// Five moments, at each one trip for the first and one for what gathered meanwhile.
		assert.LessOrEqual(t, pool.Counters().ReturnCalls.Load(), int64(10))
		require.NoError(t, pool.Close(t.Context(), func(yield func(*lease.Holder) bool) {
			for _, h := range all {
				if !yield(h) {
					return
				}
			}
		}))
	})
}

// A machine that was suspended has a monotonic clock that stood still. Its leases have ended meanwhile.
func TestASuspendedMachineEndsItsLeases(t *testing.T) {
	suspend := func(t *testing.T, opts lease.Options) (*rig, *atomic.Int64) {
		var slept atomic.Int64
		r := newRig(t, quota.Limit{Capacity: 100}, opts)
		lease.SetWall(r.pool, func() time.Duration { return r.store.now() + time.Duration(slept.Load()) })
		require.Equal(t, 6, r.spendN(6))
		require.Equal(t, int64(15), r.Held())
		return r, &slept
	}
	t.Run("within a second", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			r, slept := suspend(t, fixed())
			slept.Store(int64(time.Minute))
			time.Sleep(time.Second)
			synctest.Wait()
			assert.Zero(t, r.Held())
			assert.Equal(t, int64(15), r.pool.Counters().Stranded.Load())
			assert.Empty(t, r.store.returns(), "what may have aged out must not be given back")
			before := len(r.store.draws())
			assert.Equal(t, lease.FromStore, r.spend(1).Verdict, "the store is asked anew")
			assert.Len(t, r.store.draws(), before+1)
			r.adds()
		})
	})
	t.Run("before the next draw", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			r, slept := suspend(t, fixed())
			slept.Store(int64(time.Minute))
			assert.Equal(t, lease.FromStore, r.spend(18).Verdict) // more than is held
			assert.Equal(t, int64(15), r.pool.Counters().Stranded.Load(), "none of the old lease helped")
			r.adds()
		})
	})
	t.Run("a draw that was under way", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			r, slept := suspend(t, fixed())
			require.Equal(t, 15, r.spendN(15))
			time.Sleep(time.Second) // the tick of the clock check has just passed
			r.store.onAcquire(func(_ context.Context, next func() (lease.Grant, error)) (lease.Grant, error) {
				g, err := next()
				time.Sleep(20 * time.Millisecond)
				slept.Store(int64(time.Minute))
				return g, err
			})
			granted := r.pool.Counters().SurplusTokens.Load()
			r.start(t.Context(), 15)
			time.Sleep(20 * time.Millisecond)
			synctest.Wait()
			if r.pool.Counters().SurplusTokens.Load() > granted {
				assert.Zero(t, r.Held(), "granted a minute ago by the store's clock")
			}
		})
	})
	t.Run("a sweep that was under way", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			r, slept := suspend(t, fixed())
			time.Sleep(5 * time.Second)
			require.Equal(t, 10, r.spendN(10))
			ends := r.Deadlines()
			require.Len(t, ends, 2)
			yield := func() {
				for range 1000 {
					runtime.Gosched()
				}
			}
			looked := make(chan struct{})
			r.Locked(func() {
				time.Sleep(ends[0] - 994900*time.Microsecond - r.store.now())
				yield() // the sweep waits for the lock
				slept.Store(int64(time.Minute))
				go func() {
					defer close(looked)
					r.pool.LookAtClock()
				}()
				yield()
			})
			<-looked
			synctest.Wait()
			assert.Zero(t, r.Held())
			r.adds()
		})
	})
	t.Run("less than a second is none", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			r, slept := suspend(t, fixed())
			slept.Store(int64(900 * time.Millisecond))
			time.Sleep(3 * time.Second)
			assert.Equal(t, int64(15), r.Held())
		})
	})
	t.Run("a wall clock that is set back is none", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			r, slept := suspend(t, fixed())
			slept.Store(-int64(time.Hour))
			time.Sleep(3 * time.Second)
			assert.Equal(t, int64(15), r.Held())
			slept.Add(int64(2 * time.Second)) // and from there ahead
			time.Sleep(time.Second)
			synctest.Wait()
			assert.Zero(t, r.Held())
		})
	})
}

// A receipt that is kept for long does not keep the leases that came after its own.
func TestAReceiptKeepsNoLease(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, quota.Limit{Capacity: 1000}, fixed())
		r.spend(1)
		p := lease.Part{Holder: r.Holder, Limit: r.limit, Cost: 1}
		require.True(t, p.Try())
		receipt, first := p.Receipt(), r.LastLease()
		for r.LastLease() == first {
			r.spend(1)
		}
		second := r.LastLease()
		for r.LastLease() == second {
			r.spend(1)
		}
		require.Equal(t, 20, r.spendN(20)) // and both have left
		runtime.GC()
		assert.Nil(t, second.Value())
		assert.Nil(t, first.Value())
		runtime.KeepAlive(&receipt)
		runtime.KeepAlive(&p)
	})
}
