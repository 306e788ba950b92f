package demo

import (
	"math"
	"testing"
	"time"

	"github.com/leaselimit/leaselimit/cmd/leaselimit/internal/tty"
	oracle "github.com/leaselimit/leaselimit/internal/fleet"
	"github.com/leaselimit/leaselimit/quota"
	"github.com/stretchr/testify/require"
)

func TestPercentiles(t *testing.T) {
	p50, p99 := percentiles(nil)
	require.Zero(t, p50+p99)
	p50, p99 = percentiles([]int64{7})
	require.Equal(t, []time.Duration{7, 7}, []time.Duration{p50, p99})
	ns := make([]int64, 1001)
	for i := range ns {
		ns[i] = int64(1000 - i)
	}
	p50, p99 = percentiles(ns)
	require.Equal(t, []time.Duration{500, 990}, []time.Duration{p50, p99})
}

// A store whose clock is ahead refills more in what is a second here. Exact mode would look broken otherwise.
func TestTheClockOfTheStoreCounts(t *testing.T) {
	var calls []oracle.Call
	for i := range 1000 {
		at := time.Duration(i) * 999 * time.Microsecond // 1 in 1000 faster than the limit
		calls = append(calls, oracle.Call{Start: at, End: at, Cost: 1, Allowed: true})
	}
	limit := quota.PerSecond(1000, 1)
	for _, tt := range []struct {
		ahead float64
		held  bool
	}{{0, false}, {0.0005, false}, {0.00102, true}} {
		r := result{Replicas: 1, ClockAhead: tt.ahead}
		r.judge(calls, limit)
		require.Equal(t, tt.held, r.BoundHeld, "%v ahead: overshoot %v", tt.ahead, r.Overshoot)
	}
}

func TestSeparateLimitersMultiplyTheLimit(t *testing.T) {
	limit := quota.Limit{Capacity: 10}
	var all []oracle.Call
	alone := int64(0)
	for range 4 {
		own := make([]oracle.Call, 100)
		for i := range own {
			own[i] = oracle.Call{Start: time.Duration(i), Cost: 1}
		}
		alone += naive(own, limit)
		all = append(all, own...)
	}
	require.EqualValues(t, 4*10, alone)
	require.EqualValues(t, 10, admitted(all, oracle.NewBucket(limit).Take))
}

func TestClockAhead(t *testing.T) {
	base, server := time.Unix(1000, 0), time.Unix(500, 0)
	read := func(here, there, trip time.Duration) reading {
		return reading{before: base.Add(here), after: base.Add(here + trip), server: server.Add(there)}
	}
	const ms = time.Millisecond
	require.Zero(t, ahead(reading{}, reading{}), "one clock")
	require.InDelta(t, promised, ahead(reading{}, read(0, 0, 0)), 0, "unknown")
	require.InDelta(t, promised, ahead(read(0, 0, ms), reading{}), 0, "unknown")
	require.InDelta(t, 0, ahead(read(0, 0, 0), read(10*time.Second, 10*time.Second, 0)), 2e-7)
	require.InDelta(t, 0.001, ahead(read(0, 0, 0), read(10*time.Second, 10*time.Second+10*ms, 0)), 2e-7)
	require.InDelta(t, 0.001, ahead(read(0, 0, 10*ms), read(10*time.Second, 10*time.Second, 10*ms)), 2e-6, "the trip may hide it")
	require.Zero(t, ahead(read(0, 0, 0), read(10*time.Second, 9*time.Second, 0)), "a slow clock refills less")
	require.InDelta(t, promised, ahead(read(0, 0, ms), read(0, 0, ms)), 0, "too short to tell")
}

func TestReportFitsNarrowTerminals(t *testing.T) {
	r := result{
		Replicas: 12, Offered: 123_456, Admitted: 9_999, StoreCalls: 321, Ideal: 10_000, Naive: 110_000, Bound: 100, BoundHeld: true,
		Undershoot: 1, maxOvershoot: 0.1, P50: 512, P99: 1_234_567, Late: time.Second, Degraded: 3,
	}
	wide := r.report(tty.Style{}, math.MaxInt)
	require.Contains(t, wide, `
                        admitted  store calls  per admitted    p50     p99
            leaselimit     9,999          321             0  512ns  1.23ms
   store on every call    10,000            0             0      -       -
  12 separate limiters   110,000            0             0      -       -
`)
	require.Contains(t, wide, "3 calls were refused because the store did not answer in time.")
	require.Contains(t, wide, "1 call (0.01%) fewer than one ideal central bucket admits.")
	require.Equal(t, wide, r.report(tty.Style{}, 110))

	narrow := r.report(tty.Style{}, 30)
	require.Contains(t, narrow, "12 separate limiters: admitted\n110,000,")
}
