package lease_test

import (
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leaselimit/leaselimit/quota"
	"github.com/stretchr/testify/require"
)

// Whoever looks at a tenant, and however often, changes nothing of what is drawn for it.
func TestLookingChangesNothing(t *testing.T) {
	type asked struct {
		at   time.Duration
		want int64
		need int64
	}
	run := func(t *testing.T, expected float64, looks bool) (all []asked) {
		t.Helper()
		bubble(t, func(t *testing.T) {
			o := options()
			r := newRig(t, quota.PerSecond(1000, 10_000), o)
			random := rand.New(rand.NewPCG(1, 2))
			for range 200 {
				next := time.Now().Add(time.Duration(random.ExpFloat64() * float64(o.TTL) / expected))
				for looks && time.Until(next) > time.Second {
					time.Sleep(700 * time.Millisecond)
					r.View()
					r.Activity()
					r.Overshoot()
				}
				time.Sleep(time.Until(next))
				require.True(t, r.spend(1).Allowed())
				synctest.Wait()
			}
			for _, d := range r.store.draws() {
				all = append(all, asked{d.at, d.req.Want, d.req.Need})
			}
		})
		return all
	}
	for _, expected := range []float64{0.5, 1, 2, 4, 8} { // calls in a trust window
		require.Equal(t, run(t, expected, false), run(t, expected, true), "%v calls a trust window", expected)
	}
}

// The rate that is shown is of what was asked up to now, not up to the last draw.
func TestALookIsUpToDate(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, quota.PerSecond(1000, 10_000), fixed())
		r.spend(1)
		before := r.View().Rate
		time.Sleep(time.Second)
		require.Equal(t, 5, r.spendN(5)) // from the lease, so nothing is drawn
		require.Len(t, r.store.draws(), 1)
		after := r.View().Rate
		require.Greater(t, after, before)
		_, _, again := r.Activity()
		require.InDelta(t, after, again, 1e-9, "looking twice is looking once")
		time.Sleep(time.Second)
		require.Less(t, r.View().Rate, after)
	})
}

// The rate that is shown is of what was asked, allowed or refused, each call once, however many draws look at it.
func TestARefusedCallIsAskedOnce(t *testing.T) {
	for _, cost := range []int64{1, 2} {
		bubble(t, func(t *testing.T) {
			r := newRig(t, quota.PerSecond(10, 100), options())
			for range 300 {
				for range 10 {
					_, err := r.try(t.Context(), cost)
					require.NoError(t, err)
				}
				time.Sleep(100 * time.Millisecond)
			}
			v := r.View()
			require.Greater(t, len(r.store.draws()), 30)
			require.Greater(t, v.Refused, int64(2000))
			require.InEpsilon(t, 100, v.Rate, 0.05, "cost %d", cost)
		})
	}
}
