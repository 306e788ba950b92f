package lease_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leaselimit/leaselimit/lease"
	"github.com/leaselimit/leaselimit/membucket"
	"github.com/leaselimit/leaselimit/quota"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// Reports ride on the next draw and say what was spent since, of each epoch.
func TestReportsRideOnTheNextDraw(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, quota.Limit{Capacity: 1000}, fixed())
		r.spend(1)
		epoch := r.store.draws()[0].grant.Epoch
		require.Equal(t, 9, r.spendN(9))
		r.spend(2) // the mark is passed: a top-up
		draws := r.store.draws()
		require.Len(t, draws, 2)
		assert.ElementsMatch(t, []lease.Report{{Epoch: epoch, Tokens: 11}, {}}, draws[1].req.Reports)
		assert.Equal(t, r.Held(), r.peek().Out)

		time.Sleep(6 * time.Second)
		r.spend(3)
		r.spend(100) // draws for what is missing
		draws = r.store.draws()
		require.Len(t, draws, 3)
		var sum int64
		for _, x := range draws[2].req.Reports {
			sum += x.Tokens
		}
		assert.Equal(t, int64(3), sum, "what was reported is not reported again")
	})
}

// What is not sent since another part cannot be asked is reported later.
func TestReportsOutliveATakeThatIsNotSent(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, quota.Limit{Capacity: 1000}, fixed())
		r.spend(1)
		require.Equal(t, 5, r.spendN(5))
		gone := r.pool.NewHolder("acme", r.limit)
		gone.Close()
		err := lease.Take(t.Context(), []*lease.Part{
			{Holder: r.Holder, Limit: r.limit, Cost: 100}, {Holder: gone, Limit: r.limit, Cost: 1},
		})
		require.ErrorIs(t, err, lease.ErrRetired)
		require.Len(t, r.store.draws(), 1)
		r.spend(200)
		draws := r.store.draws()
		require.Len(t, draws, 2)
		assert.ElementsMatch(t, []lease.Report{{Epoch: draws[0].grant.Epoch, Tokens: 5}, {}}, draws[1].req.Reports)
	})
}

// R4: a report is sent at most once. When the draw that carried it is lost, its epoch ages out by itself.
func TestR4_ALostReportIsNotSentAgain(t *testing.T) {
	for name, fault := range map[string]func(context.Context, func() (lease.Grant, error)) (lease.Grant, error){
		"lost on the way there": down, "lost on the way back": lost,
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := newRig(t, quota.Limit{Capacity: 1000}, fixed())
				r.spend(1)
				require.Equal(t, 9, r.spendN(9))
				r.store.onAcquire(fault)
				require.Equal(t, 1, r.spendN(1)) // the top-up with ten reported fails
				require.Len(t, r.store.draws(), 2)
				r.store.onAcquire(nil)
				time.Sleep(100 * time.Millisecond)
				_, err := r.try(t.Context(), 50)
				require.NoError(t, err)
				draws := r.store.draws()
				require.Greater(t, len(draws), 2)
				var sum int64
				for _, d := range draws[2:] {
					for _, x := range d.req.Reports {
						sum += x.Tokens
					}
				}
				assert.Zero(t, sum, "ten were spent before, and reported; none since but by this call")
			})
		})
	}
}

// A lease that is returned names what was spent of it and not reported: once.
func TestAReturnCarriesWhatWasNotReported(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, quota.Limit{Capacity: 1000}, fixed())
		r.spend(1)
		require.Equal(t, 10, r.spendN(10)) // ten reported by the top-up
		require.Equal(t, 3, r.spendN(3))
		require.NoError(t, r.pool.Close(t.Context(), r.holders))
		var spent, unspent int64
		for _, x := range r.store.returns() {
			spent, unspent = spent+x.Spent, unspent+x.Unspent
		}
		assert.Equal(t, int64(3), spent)
		assert.Equal(t, int64(40-13), unspent)
		st := r.peek()
		assert.Zero(t, st.Out)
		assert.InDelta(t, 1000.0-14, st.Level, 1e-6)
	})
}

// A return says what was spent of its epoch, of leases that are exhausted, too: there may be no draw any more to say it.
func TestAReturnCarriesTheReportsOfItsEpoch(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, quota.Limit{Capacity: 100}, fixed())
		for len(r.Deadlines()) < 2 { // leases: the draw that brought the second has reported what was spent of the first by then
			r.spend(1)
		}
		require.Equal(t, 12, r.spendN(12))
		require.Greater(t, r.peek().Out, r.Held(), "something is not reported yet")
		r.close(t.Context())
		assert.Zero(t, r.peek().Out)
		r.adds()
	})
}

// A return is sent once, whatever becomes of it.
func TestAReturnIsNotRetried(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, quota.Limit{Capacity: 1000}, fixed())
		r.spend(6)
		calls := 0
		r.store.onReturn(func(_ context.Context, next func() error) error {
			calls++
			_ = next()
			return &lease.StoreError{Op: "return", Reason: lease.ReasonTimeout, Err: errLost}
		})
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Equal(t, 1, calls)
		assert.Equal(t, int64(20), r.pool.Counters().ReturnLost.Load())
		assert.Zero(t, r.pool.Counters().Returned.Load())
		assert.Zero(t, r.Held())
		require.NoError(t, r.pool.Close(t.Context(), r.holders))
		assert.Equal(t, 1, calls)
		r.adds()
	})
}

// What this replica gave back is in the bucket: the pre-check may not refuse it.
func TestThePreCheckKnowsWhatWasGivenBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, quota.Limit{Capacity: 100}, fixed())
		r.spend(1)
		r.drain(0)
		_, err := r.try(t.Context(), 70)
		require.NoError(t, err)
		require.Equal(t, lease.RefusedLocal, r.spend(70).Verdict, "20 are here, none is there")
		time.Sleep(2 * time.Second)
		require.Equal(t, lease.RefusedLocal, r.spend(21).Verdict)
		r.store.onReturn(func(_ context.Context, next func() error) error {
			time.Sleep(40 * time.Millisecond)
			return next()
		})
		r.limit.Capacity = 90 // a cut: the lease goes back
		res, err := r.try(t.Context(), 15)
		require.NoError(t, err)
		require.False(t, res.Allowed(), "the return is on its way")
		time.Sleep(60 * time.Millisecond)
		assert.True(t, r.spend(15).Allowed(), "and has arrived")
	})
}

// Each call counts once for the demand, whether it is admitted or refused, here or there.
func TestDemandCountsACallOnce(t *testing.T) {
	// Three refused calls within a trust window do not make leasing pay, nor the replica pressed.
	bubble(t, func(t *testing.T) {
		o := options()
		o.TTL = 30 * time.Second
		r := newRig(t, quota.Limit{Capacity: 1000, Refill: 1, Per: time.Hour}, o)
		r.drain(0)
		for range 40 {
			require.False(t, r.spend(1).Allowed())
			time.Sleep(10 * time.Second)
		}
		for i, d := range r.store.draws() {
			require.Zero(t, d.req.Horizon, "draw %d of 3 calls in a trust window: %+v", i, d.req)
		}
	})
	// The same with calls that are admitted after a wait. A lease of what pays would be more than one token.
	bubble(t, func(t *testing.T) {
		o := options()
		o.TTL, o.MaxHold = 30*time.Second, 1000
		r := newRig(t, quota.Limit{Capacity: 100_000}, o)
		r.drain(50_000)
		for range 40 {
			require.True(t, r.spend(20).Allowed())
			time.Sleep(10 * time.Second)
		}
		for i, d := range r.store.draws() {
			require.LessOrEqual(t, d.req.Want, int64(1), "draw %d of 3 calls in a trust window: %+v", i, d.req)
		}
	})
}

// books is a random run of one replica beside others, with every token followed.
type books struct {
	*rig
	others *rig
}

// check is what must hold after every operation: a token of an epoch goes one way only.
func (b *books) check(t *rapid.T) {
	synctest.Wait()
	granted, gone := map[int64]int64{}, map[int64]int64{}
	var reported int64
	for _, d := range b.store.draws() {
		if d.done {
			granted[d.grant.Epoch] += d.grant.Surplus
		}
		for _, x := range d.req.Reports {
			gone[x.Epoch] += x.Tokens
			reported += x.Tokens
		}
	}
	for _, x := range b.store.returns() {
		gone[x.Epoch] += x.Spent + x.Unspent
		reported += x.Spent
	}
	for epoch, n := range gone {
		if n > granted[epoch] {
			t.Fatalf("epoch %d: reported and returned %d of %d granted", epoch, n, granted[epoch])
		}
	}
	if held, out := b.Held()+b.others.Held(), b.peek().Out; held > out {
		t.Fatalf("held %d, counted as out %d", held, out)
	}
	spent, calls, _ := b.Spent()
	if reported > spent {
		t.Fatalf("reported %d of %d spent", reported, spent)
	}
	if calls < 0 { // more calls than tokens there may be: what was settled may have cost nothing
		t.Fatalf("%d calls with %d tokens", calls, spent)
	}
	c := b.pool.Counters()
	if got, want := spent+b.Held()+c.Returned.Load()+c.ReturnLost.Load()+c.Stranded.Load(), c.SurplusTokens.Load(); got != want {
		t.Fatalf("granted %d, went %d ways: spent %d, held %d, returned %d, lost %d, stranded %d",
			want, got, spent, b.Held(), c.Returned.Load(), c.ReturnLost.Load(), c.Stranded.Load())
	}
}

// TestBooks drives a holder at random, over a store that loses and delays answers. rapid prints the seed of a failure.
func TestBooks(t *testing.T) {
	outer := t
	rapid.Check(t, func(t *rapid.T) {
		rapid.SyncTest(t, func(t *rapid.T) {
			limit := quota.PerSecond(rapid.Int64Range(0, 200).Draw(t, "rate"), rapid.Int64Range(1, 200).Draw(t, "capacity"))
			o := options()
			o.TTL = time.Second
			o.LeaseShare = rapid.SampledFrom([]float64{0.25, 1}).Draw(t, "share")
			o.LeaseSize = rapid.SampledFrom([]int64{0, 0, 1, 8}).Draw(t, "size")
			o.Replicas = rapid.IntRange(0, 3).Draw(t, "replicas")
			shared := membucket.New()
			replica := func() *rig {
				r := &rig{t: outer, store: newTapOn(shared), pool: nil, key: lease.Key{Tenant: "acme", Class: "default"}, limit: limit}
				r.pool = lease.NewPool(r.store, o)
				r.Holder = r.pool.NewHolder(r.key.Tenant, limit)
				return r
			}
			b := &books{rig: replica(), others: replica()}
			ctx := context.Background()
			type estimated struct {
				lease.Receipt
				cost int64
			}
			var estimates []estimated
			t.Repeat(map[string]func(*rapid.T){
				"spend": func(t *rapid.T) {
					for range rapid.IntRange(1, 30).Draw(t, "calls") {
						_, _ = b.try(ctx, rapid.Int64Range(1, max(1, limit.Capacity/4)).Draw(t, "cost"))
					}
				},
				"leave": func(t *rapid.T) {
					ctx, cancel := context.WithTimeout(ctx, time.Duration(rapid.Int64Range(0, 30).Draw(t, "ms"))*time.Millisecond)
					cost := rapid.Int64Range(1, limit.Capacity).Draw(t, "cost")
					go func() {
						defer cancel()
						_, _ = b.try(ctx, cost)
					}()
				},
				"estimate": func(t *rapid.T) {
					cost := rapid.Int64Range(1, limit.Capacity).Draw(t, "cost")
					r := b.pool.Since()
					p := &lease.Part{Holder: b.Holder, Limit: limit, Cost: cost}
					if p.Try() {
						r = p.Receipt()
					} else if p.Result, _ = b.Spend(ctx, limit, cost); !p.Result.Allowed() {
						return
					}
					if p.Result.Allowed() {
						estimates = append(estimates, estimated{r, cost})
					}
				},
				"settle": func(t *rapid.T) {
					if len(estimates) == 0 {
						return
					}
					e := estimates[0]
					estimates = estimates[1:]
					switch n := rapid.Int64Range(0, 2*e.cost).Draw(t, "actual"); {
					case n < e.cost:
						_ = b.Refund(e.Receipt, true, e.cost-n)
					case n > e.cost:
						_ = lease.Take(ctx, []*lease.Part{{Holder: b.Holder, Limit: limit, Cost: n - e.cost, Owe: true}})
					}
				},
				"together": func(t *rapid.T) {
					p := &lease.Part{Holder: b.Holder, Limit: limit, Cost: rapid.Int64Range(1, limit.Capacity).Draw(t, "cost")}
					if !p.Try() {
						if p.Judge() != nil {
							return
						}
						if p.Result.Verdict == 0 && lease.Take(ctx, []*lease.Part{p}) != nil {
							return
						}
					} else {
						p.Hold()
					}
					if rapid.Bool().Draw(t, "passes") {
						p.Keep()
					} else {
						p.Undo()
					}
				},
				"others": func(t *rapid.T) { _, _ = b.others.try(ctx, rapid.Int64Range(1, limit.Capacity).Draw(t, "cost")) },
				"time": func(t *rapid.T) {
					time.Sleep(time.Duration(rapid.Int64Range(0, 400).Draw(t, "ms")) * time.Millisecond)
				},
				"store": func(t *rapid.T) {
					d := time.Duration(rapid.Int64Range(1, 1500).Draw(t, "ms")) * time.Millisecond
					b.store.onAcquire(map[string]func(context.Context, func() (lease.Grant, error)) (lease.Grant, error){
						"well": nil, "lost": lost, "down": down, "late": late(d), "slow": late(trip),
					}[rapid.SampledFrom([]string{"well", "well", "lost", "down", "late", "slow"}).Draw(t, "fault")])
				},
				"": b.check,
			})
			b.store.onAcquire(nil)
			time.Sleep(3 * time.Second) // what is under way ends
			for _, r := range []*rig{b.rig, b.others} {
				if err := r.pool.Close(ctx, r.holders); err != nil {
					t.Fatal(err)
				}
			}
			b.check(t)
			if b.Held() != 0 || b.Waiting() != 0 || b.pool.Timers(b.Holder) != 0 {
				t.Fatalf("held %d, waiting %d, timers %d after Close", b.Held(), b.Waiting(), b.pool.Timers(b.Holder))
			}
		})
	})
}

// What a holder has counted stays as it was when it is retired: whoever still looks at it must not see other counts.
func TestCountsOfARetiredHolderStay(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, quota.Limit{Capacity: 100}, fixed())
		r.spend(3)
		for range 20 {
			r.spend(2)
		}
		r.drain(0)
		for range 50 {
			r.spend(1)
		}
		tokens, calls, refused := r.Spent()
		require.Positive(t, refused)
		for range 2 {
			a, b, c := r.Retire()
			assert.Equal(t, [3]int64{tokens, calls, refused}, [3]int64{a, b, c})
			a, b, c = r.Spent()
			assert.Equal(t, [3]int64{tokens, calls, refused}, [3]int64{a, b, c})
		}
	})
}
