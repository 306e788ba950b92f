package redisbucket_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/leaselimit/leaselimit/lease"
	"github.com/leaselimit/leaselimit/lease/storetest"
	"github.com/leaselimit/leaselimit/quota"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Faults of other limiters, by their number: arithmetic and units, on the scripts and on the model.

func TestAR3_SlowLimits(t *testing.T) {
	both(t, func(t *testing.T, f storetest.Fixture) {
		lim := limited(quota.PerMinute(1, 1))
		assert.Equal(t, int64(1), draw(t, f.Store, lim, 1).Waiters)
		f.Advance(59900 * time.Millisecond)
		g := draw(t, f.Store, lim, 1)
		assert.Zero(t, g.Waiters)
		assert.InDelta(t, 100*time.Millisecond, g.RetryAfter, float64(time.Microsecond))
		f.Advance(100 * time.Millisecond)
		assert.Equal(t, int64(1), draw(t, f.Store, lim, 1).Waiters)
	})
	both(t, func(t *testing.T, f storetest.Fixture) {
		lim := limited(quota.Limit{Capacity: 1_000_000, Refill: 1_000_000, Per: 24 * time.Hour})
		draw(t, f.Store, lim, 1_000_000)
		f.Advance(time.Second)
		st, err := f.Store.Peek(t.Context(), key, lim)
		require.NoError(t, err)
		assert.InDelta(t, 11.574, st.Level, 0.001)
	})
}

// Whatever the clock shows, the first request of a bucket is not refused for an error of rounding, and neither is one that
// comes when its token is due.
func TestAR5_FreshBucketsAtAnyTime(t *testing.T) {
	s, clock, _ := single(t)
	lim := limited(quota.PerSecond(3, 1))
	const tenants = 2000
	at := float64(1e3)
	for i := range tenants {
		clock.Advance(time.Duration(int64(at)-clock.Micros()) * time.Microsecond)
		at *= math.Pow(2e15/1e3, 1.0/tenants)
		req := lease.AcquireRequest{
			Key: lease.Key{Tenant: fmt.Sprint(i), Class: "c"}, Terms: lim, Min: 1, Need: 1,
		}
		g, err := s.Acquire(t.Context(), req)
		require.NoError(t, err)
		require.Equal(t, int64(1), g.Waiters, "at %d µs", clock.Micros())
		clock.Advance(333334 * time.Microsecond)
		g, err = s.Acquire(t.Context(), req)
		require.NoError(t, err)
		require.Equal(t, int64(1), g.Waiters, "at %d µs", clock.Micros())
	}
}

// Ten tenths are one.
func TestAR5_DeficitsOfRoundingAreNone(t *testing.T) {
	both(t, func(t *testing.T, f storetest.Fixture) {
		lim := limited(quota.PerSecond(1, 10))
		draw(t, f.Store, lim, 10)
		for i := range 200 {
			f.Advance(time.Second / 10)
			// A cut and a raise of the rate by nothing much let each tenth be stored.
			lim.Budget = int64(i % 2)
			want := int64(0)
			if i%10 == 9 {
				want = 1
			}
			require.Equal(t, want, draw(t, f.Store, lim, 1).Waiters, "after %d tenths", i+1)
		}
	})
}

func TestAR8_NoRefillAndHardlyAny(t *testing.T) {
	both(t, func(t *testing.T, f storetest.Fixture) {
		lim := limited(quota.Limit{Capacity: 5})
		assert.Equal(t, int64(5), admitted(t, f.Store, lim, 20))
		f.Advance(time.Hour)
		assert.Equal(t, lease.Never, draw(t, f.Store, lim, 1).RetryAfter)
	})
	both(t, func(t *testing.T, f storetest.Fixture) {
		lim := limited(quota.Limit{Capacity: 5, Refill: 1, Per: math.MaxInt64})
		assert.Equal(t, int64(5), admitted(t, f.Store, lim, 20))
		f.Advance(time.Hour)
		g := draw(t, f.Store, lim, 1)
		assert.Zero(t, g.Waiters)
		assert.Greater(t, g.RetryAfter, 290*365*24*time.Hour)
		assert.Less(t, draw(t, f.Store, lim, 5).RetryAfter, lease.Never, "which is only for what can never pass")
	})
}

func TestAR13_FastPollersAreNotStarved(t *testing.T) {
	for _, every := range []time.Duration{10 * time.Millisecond, 500 * time.Millisecond} {
		both(t, func(t *testing.T, f storetest.Fixture) {
			lim := limited(quota.PerSecond(1, 1))
			draw(t, f.Store, lim, 1)
			var passed int64
			for range 10 * time.Second / every {
				f.Advance(every)
				passed += draw(t, f.Store, lim, 1).Waiters
			}
			assert.Equal(t, int64(10), passed, "polled every %v", every)
		})
	}
}

func TestAR16_CountsAreExactTo2To53(t *testing.T) {
	both(t, func(t *testing.T, f storetest.Fixture) {
		_, err := f.Store.Acquire(t.Context(), lease.AcquireRequest{
			Key: key, Terms: limited(quota.Limit{Capacity: 9007199254740993}), Min: 1, Need: 1,
		})
		require.ErrorIs(t, err, quota.ErrInvalid)
		lim := limited(quota.Limit{Capacity: 9007199254740991})
		g := draw(t, f.Store, lim, 9007199254740990)
		assert.Equal(t, int64(9007199254740990), g.Waiters)
		assert.InDelta(t, 1, g.Level, 0)
	})
}

func TestAR17_PartTokensStay(t *testing.T) {
	both(t, func(t *testing.T, f storetest.Fixture) {
		lim := limited(quota.Limit{Capacity: 1, Refill: 1, Per: 2 * time.Second})
		draw(t, f.Store, lim, 1)
		f.Advance(1500 * time.Millisecond)
		g := draw(t, f.Store, lim, 1)
		assert.Zero(t, g.Waiters)
		assert.InDelta(t, 0.75, g.Level, 1e-9)
		f.Advance(500 * time.Millisecond)
		assert.Equal(t, int64(1), draw(t, f.Store, lim, 1).Waiters)
	})
}

func TestAR18_TheCapComesAfterTheRefill(t *testing.T) {
	both(t, func(t *testing.T, f storetest.Fixture) {
		lim := limited(quota.PerSecond(3, 3))
		draw(t, f.Store, lim, 3)
		f.Advance(10 * time.Second)
		assert.InDelta(t, 2, draw(t, f.Store, lim, 1).Level, 1e-9)
		f.Advance(time.Minute)
		var passed int64
		for range 100 {
			passed += draw(t, f.Store, lim, 1).Waiters
			f.Advance(100 * time.Millisecond)
		}
		assert.LessOrEqual(t, passed, int64(33))
		assert.GreaterOrEqual(t, passed, int64(32))
	})
}

func TestAR20_HugeLimitsAreRefused(t *testing.T) {
	both(t, func(t *testing.T, f storetest.Fixture) {
		for _, l := range []quota.Limit{
			{Capacity: math.MaxInt64 / 2}, {Capacity: 1, Refill: math.MaxInt64 / 2, Per: 1}, quota.Unlimited,
		} {
			_, err := f.Store.Acquire(t.Context(), lease.AcquireRequest{Key: key, Terms: limited(l), Min: 1, Need: 1})
			assert.Error(t, err, l.String())
		}
	})
}

func TestAR21_TwiceTheLimitInTheFirstSecond(t *testing.T) {
	both(t, func(t *testing.T, f storetest.Fixture) {
		lim := limited(quota.PerSecond(10, 10))
		passed := admitted(t, f.Store, lim, 50)
		for range 100 {
			f.Advance(10 * time.Millisecond)
			passed += admitted(t, f.Store, lim, 1)
		}
		assert.Equal(t, int64(20), passed)
	})
}

// A share that is rounded to nothing lends nothing, and keeps nobody from what is there.
func TestAR22_SmallBucketsPassWhole(t *testing.T) {
	for capacity := int64(1); capacity <= 3; capacity++ {
		both(t, func(t *testing.T, f storetest.Fixture) {
			for _, share := range []int64{0, 1} {
				key := lease.Key{Tenant: fmt.Sprint(capacity), Class: fmt.Sprint(share)}
				lim := lease.Terms{Limit: quota.Limit{Capacity: capacity}, Share: share, TTL: time.Minute}
				var passed int64
				for range 10 {
					g, err := f.Store.Acquire(t.Context(), lease.AcquireRequest{Key: key, Terms: lim, Min: 1, Need: 1, Want: 5})
					require.NoError(t, err)
					assert.LessOrEqual(t, g.Surplus, share)
					passed += g.Waiters + g.Surplus
				}
				assert.Equal(t, capacity, passed)
			}
		})
	}
}
