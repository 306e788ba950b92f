package storetest

import (
	"testing"
	"time"

	"github.com/leaselimit/leaselimit/lease"
	"github.com/leaselimit/leaselimit/quota"
	"github.com/stretchr/testify/assert"
)

// press asks like a replica that refuses callers: in the background, for tokens of the next horizon.
func (b *bench) press(lim lease.Terms, least, want int64, horizon time.Duration) lease.Grant {
	b.t.Helper()
	return b.acquire(lease.AcquireRequest{Key: bucket, Terms: lim, Min: least, Need: least, Want: want, Horizon: horizon})
}

// Future-dated grants.
var pressedTests = []test{
	{"APressedReplicaMayGoIntoDebt", func(t *testing.T, b *bench) {
		lim := terms(100, 10, 0, 25)
		b.draw(lim, 100)
		b.Advance(50 * time.Millisecond) // half a token
		g := b.press(lim, 1, 99, time.Second)
		assert.Zero(t, g.Waiters)
		assert.Equal(t, int64(10), g.Surplus, "what is there and what comes within the horizon, whole tokens")
		assert.Zero(t, g.Ready)
		assert.Equal(t, int64(1), g.Next)
		b.wait(50*time.Millisecond, g.First, "first")
		b.wait(100*time.Millisecond, g.Spacing, "spacing")
		b.wait(50*time.Millisecond, g.RetryAfter, "retry")
		assert.InDelta(t, -9.5, g.Level, near)
		b.holds(lim, -9.5, 10)

		g = b.press(lim, 1, 99, time.Second)
		assert.Zero(t, g.Surplus, "debt is at most the horizon's")
		b.wait(1050*time.Millisecond, g.RetryAfter, "retry")
		b.Advance(1050 * time.Millisecond)
		assert.Equal(t, int64(1), b.draw(lim, 1).Waiters)
	}},

	{"WhatIsThereIsReadyAtOnce", func(t *testing.T, b *bench) {
		lim := terms(100, 10, 0, 25)
		b.draw(lim, 97)
		g := b.press(lim, 1, 99, time.Second)
		assert.Equal(t, int64(1), g.Waiters)
		assert.Equal(t, int64(12), g.Surplus)
		assert.Equal(t, int64(2), g.Ready)
		assert.Equal(t, int64(1), g.Next)
		b.wait(100*time.Millisecond, g.First, "first")
		b.holds(lim, -10, 12)
	}},

	{"AReplicaThatAsksForNobodyGetsWhatIsThere", func(t *testing.T, b *bench) {
		lim := terms(100, 10, 0, 25)
		b.draw(lim, 97)
		g := b.acquire(lease.AcquireRequest{Key: bucket, Terms: lim, Min: 3, Want: 99, Horizon: time.Second})
		assert.Zero(t, g.Waiters)
		assert.Equal(t, int64(13), g.Surplus)
		assert.Equal(t, int64(3), g.Ready)
		assert.Zero(t, g.RetryAfter, "the smallest cost could pass")
		b.holds(lim, -10, 13)
	}},

	{"TheFirstFutureTokensAreForTheSmallestCost", func(t *testing.T, b *bench) {
		lim := terms(100, 10, 0, 25)
		b.draw(lim, 98)
		g := b.press(lim, 5, 99, time.Second)
		assert.Zero(t, g.Waiters)
		assert.Equal(t, int64(12), g.Surplus)
		assert.Zero(t, g.Ready, "two tokens are no use to a call that costs five")
		assert.Equal(t, int64(5), g.Next)
		b.wait(300*time.Millisecond, g.First, "first")
	}},

	{"WhatWouldBeReadyTooLateStays", func(t *testing.T, b *bench) {
		lim := terms(100, 1, 0, 25)
		b.draw(lim, 95)
		least := 5 + int64(lim.TTL/time.Second) // is there when the lease would end
		g := b.press(lim, least, 99, time.Second)
		assert.Equal(t, lease.Grant{RetryAfter: lim.TTL, Level: 5, Epoch: g.Epoch, At: g.At}, g)
		b.holds(lim, 5, 0)

		g = b.press(lim, least-1, 99, time.Second)
		assert.Equal(t, int64(6), g.Surplus)
		assert.Zero(t, g.Ready)
		assert.Equal(t, int64(6), g.Next)
		b.wait(lim.TTL-time.Second, g.First, "first")
	}},

	{"DebtIsLimitedByWhatIsOut", func(t *testing.T, b *bench) {
		lim := terms(10, 1, 0, 10)
		assert.Equal(t, int64(9), b.press(lim, 0, 99, time.Hour).Surplus)
		g := b.press(lim, 2, 99, time.Hour)
		assert.Zero(t, g.Surplus, "more would stop the refill below one token")
		b.holds(lim, 1, 9)
	}},

	{"NoMoreThanWished", func(t *testing.T, b *bench) {
		lim := terms(10, 1, 0, 10)
		b.draw(lim, 10)
		g := b.press(lim, 1, 2, 5*time.Second)
		assert.Equal(t, int64(2), g.Surplus)
		b.holds(lim, -2, 2)
	}},

	{"WithoutRefillThereIsNoFuture", func(t *testing.T, b *bench) {
		lim := lease.Terms{Limit: quota.Limit{Capacity: 10}, Share: 10, TTL: 10 * time.Second}
		g := b.acquire(lease.AcquireRequest{
			Key: bucket, Terms: lim, Min: 1, Need: 1, Want: 4, Horizon: time.Minute, Replicas: 1,
		})
		assert.Equal(t, int64(1), g.Waiters)
		assert.Equal(t, int64(4), g.Surplus)
		assert.Equal(t, int64(4), g.Ready)
		b.draw(lim, 5)
		g = b.press(lim, 1, 4, time.Minute)
		assert.Zero(t, g.Surplus)
		assert.Equal(t, lease.Never, g.RetryAfter)
	}},
}
