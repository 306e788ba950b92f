package fleet_test

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/leaselimit/leaselimit/internal/fleet"
	"github.com/leaselimit/leaselimit/quota"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// allowed is a call that took from start to end, in milliseconds.
func allowed(start, end int, cost int64) fleet.Call {
	return fleet.Call{
		Start: time.Duration(start) * time.Millisecond, End: time.Duration(end) * time.Millisecond, Cost: cost, Allowed: true,
	}
}

func TestProved(t *testing.T) {
	t.Parallel()
	at := func(ms int, cost int64) fleet.Call { return allowed(ms, ms, cost) }
	limit := quota.PerSecond(10, 5)
	var bunched []fleet.Call
	for start := 0; start < 1000; start += 100 {
		bunched = append(bunched, allowed(start, 1000, 1))
	}
	for name, tt := range map[string]struct {
		calls []fleet.Call
		want  float64
	}{
		"one call":                         {[]fleet.Call{at(0, 3)}, -2},
		"at one moment":                    {[]fleet.Call{at(7, 3), at(7, 4)}, 2},
		"the refill between them":          {[]fleet.Call{at(0, 5), at(100, 3)}, 2},
		"part tokens":                      {[]fleet.Call{at(0, 5), at(50, 1)}, 0.5},
		"a lull before the burst":          {[]fleet.Call{at(0, 1), at(9000, 7)}, 2},
		"a burst before the lull":          {[]fleet.Call{at(0, 7), at(9000, 1)}, 2},
		"in flight: only what is inside":   {[]fleet.Call{at(0, 5), allowed(0, 300, 5)}, 2},
		"in flight: bunched by the answer": {bunched, -5},
		"refused calls do not count":       {[]fleet.Call{at(0, 5), {Cost: 100}}, 0},
		"in any order":                     {[]fleet.Call{at(100, 3), at(0, 5)}, 2},
		"one that began before the window": {[]fleet.Call{allowed(0, 1000, 1), at(1000, 7)}, 2},
	} {
		assert.InDelta(t, tt.want, fleet.Proved(tt.calls, limit), 1e-9, name)
	}
	assert.InDelta(t, 2, fleet.Proved([]fleet.Call{at(0, 6), at(100_000, 6)}, quota.Limit{Capacity: 10}), 1e-9, "no refill")
	assert.Negative(t, fleet.Proved(nil, limit), "no calls")
}

// Of calls without a duration it is the meter; with one it is at most that of every placement.
func TestProvedIsTheMeter(t *testing.T) {
	t.Parallel()
	t.Logf("seed %d", *seed)
	rng := rand.New(rand.NewPCG(*seed, 0))
	for range 500 {
		limit := quota.PerSecond(rng.Int64N(50), 1+rng.Int64N(20))
		meter := fleet.NewMeter(limit)
		calls := make([]fleet.Call, 1+rng.IntN(60))
		for i := range calls {
			start := time.Duration(rng.Int64N(int64(3 * time.Second)))
			calls[i] = fleet.Call{Start: start, End: start, Cost: 1 + rng.Int64N(3), Allowed: rng.IntN(4) > 0}
		}
		calls[0].Allowed = true
		slices.SortFunc(calls, func(a, b fleet.Call) int { return cmp.Compare(a.Start, b.Start) })
		for _, c := range calls {
			if c.Allowed {
				meter.Admit(c.Start, c.Cost)
			}
		}
		require.InDelta(t, meter.Overshoot(), fleet.Proved(calls, limit), 1e-6)

		for i := range calls {
			calls[i].Start -= time.Duration(rng.Int64N(int64(time.Second / 10)))
			calls[i].End += time.Duration(rng.Int64N(int64(time.Second / 10)))
		}
		require.LessOrEqual(t, fleet.Proved(calls, limit), meter.Overshoot()+1e-6)
	}
}

func TestProvedOfManyCallsIsQuick(t *testing.T) {
	t.Parallel()
	calls := make([]fleet.Call, 300_000) // a million a second, for 0.3 s
	for i := range calls {
		start := time.Duration(i) * time.Microsecond
		calls[i] = fleet.Call{Start: start, End: start + time.Duration(i%7)*100, Cost: 1, Allowed: true}
	}
	require.InDelta(t, 300_000-300-1000, fleet.Proved(calls, quota.PerSecond(1000, 1000)), 2)
}

func TestBucketAdmitsWhatTheLimitAllows(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		limit quota.Limit
		want  int
	}{
		{quota.PerSecond(5, 10), 10 + 5 + 10},
		{quota.Limit{Capacity: 10}, 10},
		{quota.PerSecond(1000, 1000), 60},
	} {
		bucket, got := fleet.NewBucket(tt.limit), 0
		for _, at := range []time.Duration{0, time.Second, 100 * time.Second} {
			for range 20 {
				if bucket.Take(at, 1) {
					got++
				}
			}
		}
		assert.Equal(t, tt.want, got, "%v", tt.limit)
	}
}

func TestBucketNeverOvershoots(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(*seed, 7))
	limit := quota.PerSecond(100, 25)
	bucket, meter, admitted := fleet.NewBucket(limit), fleet.NewMeter(limit), 0
	for at := range 5000 {
		for range rng.IntN(3) {
			now := time.Duration(at) * time.Millisecond
			if bucket.Take(now, 1) {
				meter.Admit(now, 1)
				admitted++
			}
		}
	}
	assert.InDelta(t, 0, meter.Overshoot(), 1e-6)
	assert.InDelta(t, 25+500, admitted, 2)
}
