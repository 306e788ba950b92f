package demo

import (
	"slices"
	"testing"
	"time"

	"github.com/leaselimit/leaselimit/quota"
	"github.com/stretchr/testify/require"
)

func planned(kind string, change func(*settings)) (s settings, due [][]int64, all []int64) {
	s = settings{replicas: 4, traffic: kind, limit: quota.PerSecond(1000, 1000), duration: 10 * time.Second, seed: 3}
	if change != nil {
		change(&s)
	}
	due = newPlan(&s)
	for _, d := range due {
		all = append(all, d...)
	}
	slices.Sort(all)
	return s, due, all
}

func TestPlans(t *testing.T) {
	for _, kind := range trafficOrder {
		t.Run(kind, func(t *testing.T) {
			s, due, all := planned(kind, nil)
			require.Len(t, due, 4)
			for _, d := range due {
				require.True(t, slices.IsSorted(d))
			}
			require.GreaterOrEqual(t, all[0], int64(0))
			require.Less(t, all[len(all)-1], int64(s.duration))
			_, again, _ := planned(kind, nil)
			require.Equal(t, due, again, "the seed fixes the plan")
			_, other, _ := planned(kind, func(s *settings) { s.seed++ })
			require.NotEqual(t, due, other)
		})
	}
}

func TestLoads(t *testing.T) {
	_, due, all := planned("steady", nil)
	require.InEpsilon(t, 9000, len(all), 0.05)
	require.InEpsilon(t, 9000/4, len(due[0]), 0.1)

	_, due, all = planned("overload", nil)
	require.InEpsilon(t, 50_000, len(all), 0.05)
	require.InEpsilon(t, 50_000/4, len(due[3]), 0.1)

	_, due, all = planned("skewed", nil)
	require.InEpsilon(t, 9000, len(all), 0.05)
	require.InEpsilon(t, 0.8*9000, len(due[0]), 0.05)
	require.InEpsilon(t, 0.2*9000/3, len(due[1]), 0.15)

	_, due, _ = planned("skewed", func(s *settings) { s.replicas = 1 })
	require.InEpsilon(t, 9000, len(due[0]), 0.05)
}

// A burst is 0.9 of the capacity, and the next one comes when what it took has been refilled.
func TestBursts(t *testing.T) {
	_, _, all := planned("burst", nil)
	require.Zero(t, len(all)%900)
	require.Greater(t, len(all), 900)
	for i := 0; i < len(all); i += 900 {
		require.Less(t, time.Duration(all[i+899]-all[i]), 100*time.Millisecond)
		if i > 0 {
			require.Greater(t, time.Duration(all[i]-all[i-900]), 900*time.Millisecond)
		}
	}
	require.Greater(t, time.Duration(all[0]), 100*time.Millisecond, "idle first")
}

func TestPlansOfOddLimits(t *testing.T) {
	for _, limit := range []quota.Limit{
		quota.PerSecond(0, 1), quota.PerSecond(1, 1), quota.PerSecond(0, 1000), quota.PerSecond(1000, 1), quota.PerSecond(1, 1000),
	} {
		for _, kind := range trafficOrder {
			s, _, all := planned(kind, func(s *settings) { s.limit = limit })
			if s.expected() > 5 {
				require.NotEmpty(t, all, "%s of %v", kind, limit)
			}
			require.LessOrEqual(t, float64(len(all)), 2*s.expected()+10, "%s of %v", kind, limit)
		}
	}
}
