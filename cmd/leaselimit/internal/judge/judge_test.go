package judge

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

const second = int64(1e9)

func perSecond(refill, capacity int64) Limit {
	return Limit{Capacity: capacity, Rate: float64(refill) / 1e9}
}

// at is n allowed calls that were decided on at once.
func at(t int64, n int) []Call {
	calls := make([]Call, n)
	for i := range calls {
		calls[i] = Call{Start: t, End: t, Allowed: true}
	}
	return calls
}

func join(parts ...[]Call) []Call {
	var all []Call
	for _, p := range parts {
		all = append(all, p...)
	}
	return all
}

func TestOvershoot(t *testing.T) {
	refused := at(0, 50)
	for i := range refused {
		refused[i].Allowed = false
	}
	// Calls that were made at 0, and answered at 1s: any of them may have been decided on at any time between.
	waited := at(0, 30)
	for i := range waited {
		waited[i].End = second
	}
	for _, tt := range []struct {
		name  string
		calls []Call
		limit Limit
		want  float64
	}{
		{"no calls", nil, perSecond(10, 10), 0},
		{"the capacity", at(0, 10), perSecond(10, 10), 0},
		{"one more", at(0, 11), perSecond(10, 10), 1},
		{"refused calls count nothing", join(refused, at(0, 10)), perSecond(10, 10), 0},
		{"a second later as many as were refilled", join(at(0, 10), at(second, 10)), perSecond(10, 10), 0},
		{"a second later one more", join(at(0, 10), at(second, 11)), perSecond(10, 10), 1},
		{"idle time gives no more than the capacity", join(at(0, 1), at(100*second, 13)), perSecond(10, 10), 3},
		{"an early peak is not forgotten", join(at(0, 15), at(100*second, 1)), perSecond(10, 10), 5},
		{"no refill", join(at(0, 6), at(100*second, 6)), perSecond(0, 10), 2},
		{"part tokens", join(at(0, 10), at(second/20, 1)), perSecond(10, 10), 0.5},
		{"in flight: as the limiter likes it best", waited, perSecond(10, 10), 10},
		{"in flight: bunched by the answer", join(at(0, 0), func() []Call {
			c := at(second, 30)
			for i := range c {
				c[i].Start = second * int64(i) / 30
			}
			return c
		}()), perSecond(30, 2), 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			require.InDelta(t, tt.want, Overshoot(tt.calls, tt.limit), 1e-6)
		})
	}
}

// The meter as it is defined, for calls that were decided on at a known moment.
func meter(calls []Call, l Limit) float64 {
	var level, peak float64
	var last int64
	for _, c := range calls {
		if c.Allowed {
			level = max(0, level-float64(c.Start-last)*l.Rate) + 1
			last, peak = c.Start, max(peak, level)
		}
	}
	return max(0, peak-float64(l.Capacity))
}

// Of calls without a duration it is the meter; with one it is below that of every placement.
func TestOvershootIsTheMeter(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	for range 500 {
		l := perSecond(rnd.Int64N(50), 1+rnd.Int64N(20))
		calls := make([]Call, rnd.IntN(60))
		for i := range calls {
			start := rnd.Int64N(3 * second)
			calls[i] = Call{Start: start, End: start, Allowed: rnd.IntN(4) > 0}
		}
		Sort(calls)
		exact := meter(calls, l)
		require.InDelta(t, exact, Overshoot(calls, l), 1e-6)

		for i := range calls {
			calls[i].Start -= rnd.Int64N(second / 10)
			calls[i].End += rnd.Int64N(second / 10)
		}
		require.LessOrEqual(t, Overshoot(calls, l), exact+1e-6)
	}
}

func TestIdealAdmitsWhatTheLimitAllows(t *testing.T) {
	calls := join(at(0, 20), at(second, 20), at(100*second, 20))
	require.EqualValues(t, 10+5+10, Ideal(calls, perSecond(5, 10)))
	require.EqualValues(t, 10, Ideal(calls, perSecond(0, 10)))
	require.EqualValues(t, 60, Ideal(calls, perSecond(1000, 1000)))
	require.Zero(t, Ideal(nil, perSecond(5, 10)))
}

func TestIdealNeverOvershoots(t *testing.T) {
	rnd := rand.New(rand.NewPCG(7, 7))
	l := perSecond(100, 25)
	calls := make([]Call, 2000)
	for i := range calls {
		calls[i].Start = rnd.Int64N(5 * second)
	}
	Sort(calls)
	before := int64(0)
	for i := range calls { // a call is allowed if the ideal admits one more with it
		calls[i].End = calls[i].Start
		now := Ideal(calls[:i+1], l)
		calls[i].Allowed = now > before
		before = now
	}
	require.InDelta(t, 0, Overshoot(calls, l), 1e-6)
	require.InDelta(t, 25+500, float64(before), 26)
}

func TestNaiveMultipliesTheLimit(t *testing.T) {
	var calls []Call
	for i := range 400 {
		calls = append(calls, Call{Start: int64(i), Replica: i % 4})
	}
	require.EqualValues(t, 4*10, Naive(calls, 4, perSecond(0, 10)))
	require.EqualValues(t, 10, Ideal(calls, perSecond(0, 10)))
}

func TestOvershootOfManyCallsIsQuick(t *testing.T) {
	calls := make([]Call, 300_000)
	for i := range calls {
		calls[i] = Call{Start: int64(i) * 1000, End: int64(i)*1000 + int64(i%7)*100, Allowed: true}
	}
	got := Overshoot(calls, perSecond(1000, 1000)) // a million calls a second, for 0.3 s
	require.InDelta(t, 300_000-300-1000, got, 2)
	require.False(t, math.IsNaN(got))
}
