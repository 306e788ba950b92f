package storetest

import (
	"testing"
	"time"

	"github.com/leaselimit/leaselimit/lease"
	"github.com/stretchr/testify/assert"
)

// Surplus: how much there is of it, what it does to the refill, and when it is forgotten. R1 to R3 are the rules of the
// protocol without which it overshoots.
var leaseTests = []test{
	{"SurplusIsAShareOfTheShare", func(t *testing.T, b *bench) {
		lim := terms(100, 0, 0, 25)
		for _, tt := range []struct {
			replicas  int
			want, got int64
		}{
			{0, 100, 6}, {1, 100, 25}, {1, 7, 7}, {2, 100, 12}, {3, 100, 8}, {4, 100, 6}, {9, 100, 6}, {1, 0, 0},
		} {
			g := b.acquire(lease.AcquireRequest{Key: bucket, Terms: lim, Want: tt.want, Replicas: tt.replicas})
			assert.Equal(t, tt.got, g.Surplus, "%+v", tt)
			assert.Equal(t, tt.got, g.Ready)
			assert.Zero(t, g.Next)
			assert.InDelta(t, 100-tt.got, g.Level, near)
			b.giveBack(lease.Return{Key: bucket, Terms: lim, Epoch: g.Epoch, Unspent: g.Surplus})
		}
	}},

	{"AtLeastOneWhileTheShareLasts", func(t *testing.T, b *bench) {
		lim := terms(12, 1, 0, 3)
		for i, got := range []int64{1, 1, 1, 0, 0} {
			g := b.acquire(lease.AcquireRequest{Key: bucket, Terms: lim, Want: 10})
			assert.Equal(t, got, g.Surplus, "draw %d", i)
		}
		b.holds(lim, 9, 3)
	}},

	{"TheLastOfTheShareIsForThoseWithNone", func(t *testing.T, b *bench) {
		lim := terms(100, 1, 0, 10)
		for i, tt := range []struct{ held, got int64 }{{1, 2}, {1, 2}, {3, 1}, {1, 1}, {1, 1}, {1, 0}, {0, 1}, {9, 0}, {0, 1}, {0, 1}, {0, 0}} {
			g := b.acquire(lease.AcquireRequest{Key: bucket, Terms: lim, Want: 10, Held: tt.held})
			assert.Equal(t, tt.got, g.Surplus, "draw %d", i)
		}
		b.holds(lim, 90, 10)
	}},

	{"SurplusIsWhatWaitersLeave", func(t *testing.T, b *bench) {
		lim := terms(10, 1, 0, 10)
		g := b.acquire(lease.AcquireRequest{Key: bucket, Terms: lim, Min: 2, Need: 6, Want: 9, Replicas: 1})
		assert.Equal(t, int64(6), g.Waiters)
		assert.Equal(t, int64(4), g.Surplus)
		b.holds(lim, 0, 4)
	}},

	{"ARefusedDrawTakesNoSurplus", func(t *testing.T, b *bench) {
		lim := terms(10, 1, 0, 10)
		b.draw(lim, 7)
		g := b.acquire(lease.AcquireRequest{Key: bucket, Terms: lim, Min: 5, Need: 5, Want: 9, Replicas: 1})
		assert.Zero(t, g.Waiters+g.Surplus)
		b.wait(2*time.Second, g.RetryAfter, "retry")
		b.Advance(2 * time.Second)
		assert.Equal(t, int64(5), b.draw(lim, 5).Waiters, "the retry must hold")
	}},

	{"WhatIsOutHoldsTheRefillDown", func(t *testing.T, b *bench) {
		for _, tt := range []struct {
			budget int64
			level  float64
		}{{0, 7}, {1, 8}, {3, 10}, {9, 10}} {
			lim := terms(10, 10, tt.budget, 10)
			g := b.borrow(lim, 3)
			b.draw(lim, 7)
			b.Advance(5 * time.Second)
			b.holds(lim, tt.level, 3)
			b.reset()
			b.giveBack(lease.Return{Key: bucket, Terms: lim, Epoch: g.Epoch, Unspent: 3})
			b.reset()
		}
	}},

	{"AReportFreesTheRefill", func(t *testing.T, b *bench) {
		lim := terms(10, 10, 0, 10)
		g := b.borrow(lim, 4)
		b.Advance(time.Second)
		b.holds(lim, 6, 4)
		b.borrow(lim, 0, lease.Report{Epoch: g.Epoch, Tokens: 3})
		b.Advance(time.Second)
		b.holds(lim, 9, 1)
	}},

	{"R1_TheRefillComesBeforeTheReports", func(t *testing.T, b *bench) {
		lim := terms(10, 1, 0, 10)
		g := b.borrow(lim, 4)
		b.Advance(5 * time.Second) // which the cap of 6 keeps out, for ever
		g = b.borrow(lim, 0, lease.Report{Epoch: g.Epoch, Tokens: 4})
		assert.InDelta(t, 6, g.Level, near)
		b.Advance(time.Second)
		b.holds(lim, 7, 0)
	}},

	{"R2_BordersOfEpochsAreCrossedPiecewise", func(t *testing.T, b *bench) {
		lim := terms(10, 1, 0, 10)
		b.borrow(lim, 4)
		b.Advance(19999 * time.Millisecond)
		b.holds(lim, 6, 4)
		b.Advance(2001 * time.Millisecond) // 2 s after it has aged out
		b.holds(lim, 8, 0)
		b.borrow(lim, 4)
		b.Advance(5 * time.Second)
		b.borrow(lim, 1)           // of the same epoch
		b.Advance(6 * time.Second) // in the next one
		assert.Equal(t, int64(1), b.borrow(lim, 1).Surplus)
		b.holds(lim, 4, 6)
		b.Advance(10 * time.Second) // the first five have aged out, a second ago
		b.holds(lim, 5, 1)
	}},

	{"R3_UnknownEpochsAreIgnored", func(t *testing.T, b *bench) {
		lim := terms(10, 1, 0, 10)
		last := b.borrow(lim, 4)
		b.Advance(10 * time.Second)
		g := b.borrow(lim, 3)
		assert.Equal(t, last.Epoch+10000, g.Epoch)
		for _, epoch := range []int64{0, -1, last.Epoch - 10000, last.Epoch - 1, last.Epoch + 1, g.Epoch - 1, g.Epoch + 1, g.Epoch + 10000} {
			b.borrow(lim, 0, lease.Report{Epoch: epoch, Tokens: 2})
			b.giveBack(lease.Return{Key: bucket, Terms: lim, Epoch: epoch, Unspent: 1, Spent: 1})
			b.holds(lim, 3, 7)
		}
	}},

	{"R3_NothingGoesBelowZero", func(t *testing.T, b *bench) {
		lim := terms(10, 1, 0, 10)
		g := b.borrow(lim, 2)
		b.Advance(10 * time.Second)
		h := b.borrow(lim, 2)
		assert.NotEqual(t, g.Epoch, h.Epoch)
		b.borrow(lim, 0, lease.Report{Epoch: g.Epoch, Tokens: 3})
		b.holds(lim, 6, 2)
		b.borrow(lim, 0, lease.Report{Epoch: h.Epoch, Tokens: 1}, lease.Report{Epoch: g.Epoch, Tokens: 9})
		b.holds(lim, 6, 1)
	}},

	{"BothEpochsCanBeReportedAtOnce", func(t *testing.T, b *bench) {
		lim := terms(10, 1, 0, 10)
		g := b.borrow(lim, 3)
		b.Advance(10 * time.Second)
		h := b.borrow(lim, 2)
		b.holds(lim, 5, 5)
		b.borrow(lim, 0, lease.Report{Epoch: g.Epoch, Tokens: 3}, lease.Report{Epoch: h.Epoch, Tokens: 2})
		b.holds(lim, 5, 0)
	}},

	{"ALeaseIsCountedForItsWholeWindow", func(t *testing.T, b *bench) {
		lim := terms(10, 1, 0, 10)
		b.borrow(lim, 1) // opens an epoch
		b.Advance(9999 * time.Millisecond)
		b.borrow(lim, 3) // in its last ms
		b.Advance(10 * time.Second)
		b.holds(lim, 6, 4)
		b.Advance(time.Millisecond)
		b.holds(lim, 6, 0)
	}},

	{"TheLongestWindowRules", func(t *testing.T, b *bench) {
		short, long := terms(10, 1, 0, 10), terms(10, 1, 0, 10)
		long.TTL = 20 * time.Second
		b.borrow(short, 1)
		b.borrow(long, 1)
		b.borrow(short, 1)
		b.Advance(39 * time.Second)
		b.holds(short, 7, 3)
		b.Advance(time.Second)
		b.holds(short, 7, 0)
		b.borrow(short, 1)
		b.Advance(20 * time.Second)
		b.holds(short, 9, 0)
	}},

	{"R3_ALongerWindowLendsNoEpochAnothersName", func(t *testing.T, b *bench) {
		lim := terms(100, 1, 0, 100)
		old := b.borrow(lim, 5)
		b.Advance(10 * time.Second)
		b.borrow(lim, 7)
		b.Advance(10 * time.Second)
		b.borrow(lim, 11)
		b.holds(lim, 77, 18) // the first five have aged out
		lim.TTL = 20 * time.Second
		b.borrow(lim, 0, lease.Report{Epoch: old.Epoch, Tokens: 5})
		b.giveBack(lease.Return{Key: bucket, Terms: lim, Epoch: old.Epoch, Unspent: 5})
		assert.Equal(t, int64(18), b.peek(lim).Out)
	}},
}
