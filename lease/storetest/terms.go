package storetest

import (
	"testing"
	"time"

	"github.com/leaselimit/leaselimit/lease"
	"github.com/stretchr/testify/assert"
)

// Limits that change, and resets.
var termsTests = []test{
	{"ARaiseGivesNoTokens", func(t *testing.T, b *bench) {
		b.draw(terms(10, 1, 0, 0), 8)
		raised := terms(1000, 1, 0, 0)
		b.holds(raised, 2, 0)
		b.draw(raised, 1)
		b.Advance(time.Second)
		b.holds(raised, 2, 0)
	}},

	{"ACutTakesWhatIsAbove", func(t *testing.T, b *bench) {
		wide, narrow := terms(1000, 1, 0, 0), terms(10, 1, 0, 0)
		b.draw(wide, 1)
		assert.Equal(t, int64(10), b.acquire(lease.AcquireRequest{Key: bucket, Terms: narrow, Min: 1, Need: 500}).Waiters)
		b.holds(wide, 0, 0)
	}},

	{"ACutHoldsEvenIfNothingIsTaken", func(t *testing.T, b *bench) {
		wide, narrow := terms(1000, 1, 0, 0), terms(10, 1, 0, 0)
		b.draw(wide, 1)
		assert.Zero(t, b.draw(narrow, 11).Waiters)
		b.holds(wide, 10, 0)
	}},

	{"ACutOfTheBudgetHoldsAtOnce", func(t *testing.T, b *bench) {
		loose, exact := terms(10, 1, 5, 10), terms(10, 1, 0, 10)
		b.borrow(loose, 5)
		b.Advance(5 * time.Second)
		b.holds(loose, 10, 5)
		b.holds(exact, 5, 5)
	}},

	{"ThePastIsPricedAtItsOwnRate", func(t *testing.T, b *bench) {
		slow, quick := terms(100, 1, 0, 0), terms(100, 10, 0, 0)
		b.draw(slow, 100)
		b.Advance(5 * time.Second)
		g := b.draw(quick, 50)
		assert.Zero(t, g.Waiters)
		assert.InDelta(t, 5, g.Level, near)
		b.wait(4500*time.Millisecond, g.RetryAfter, "retry")
		b.Advance(4 * time.Second)
		b.draw(slow, 100)
		b.Advance(time.Second)
		b.holds(slow, 46, 0)
	}},

	{"DebtShrinksWithTheCapacity", func(t *testing.T, b *bench) {
		wide, narrow := terms(100, 10, 0, 100), terms(5, 10, 0, 5)
		b.draw(wide, 100)
		b.press(wide, 1, 50, 5*time.Second)
		b.holds(wide, -50, 50)
		b.holds(narrow, -5, 50)
	}},

	{"AResetFillsUp", func(t *testing.T, b *bench) {
		lim := terms(10, 1, 0, 10)
		b.reset()
		b.draw(lim, 9)
		b.reset()
		b.holds(lim, 10, 0)
	}},

	{"AResetForgetsNoLease", func(t *testing.T, b *bench) {
		lim := terms(10, 1, 2, 10)
		g := b.borrow(lim, 5)
		b.draw(lim, 5)
		b.reset()
		b.holds(lim, 7, 5) // 10 + 2 - 5
		b.giveBack(lease.Return{Key: bucket, Terms: lim, Epoch: g.Epoch, Unspent: 5})
		b.holds(lim, 10, 0)
	}},

	{"AResetForgivesDebt", func(t *testing.T, b *bench) {
		lim := terms(10, 1, 0, 10)
		b.draw(lim, 10)
		b.press(lim, 1, 4, 4*time.Second)
		b.reset()
		b.holds(lim, 6, 4)
	}},
}
