package storetest

import (
	"testing"
	"time"

	"github.com/leaselimit/leaselimit/lease"
	"github.com/stretchr/testify/assert"
)

var takeTests = []test{
	{"AllChargesOrNone", func(t *testing.T, b *bench) {
		wide, narrow := terms(10, 1, 0, 0), terms(3, 1, 0, 0)
		other := lease.Key{Tenant: bucket.Tenant, Class: "export"}
		charges := []lease.Charge{{Key: bucket, Terms: wide, Cost: 2}, {Key: other, Terms: narrow, Cost: 2}}

		r := b.take(charges...)
		assert.True(t, r.Allowed)
		assert.InDelta(t, 8, r.Levels[0].Tokens, near)
		assert.InDelta(t, 1, r.Levels[1].Tokens, near)
		assert.Zero(t, r.Levels[0].RetryAfter+r.Levels[1].RetryAfter)

		r = b.take(charges...)
		assert.False(t, r.Allowed)
		assert.InDelta(t, 8, r.Levels[0].Tokens, near, "the one that could pass is not charged either")
		assert.InDelta(t, 1, r.Levels[1].Tokens, near)
		assert.Zero(t, r.Levels[0].RetryAfter)
		b.wait(time.Second, r.Levels[1].RetryAfter, "retry")

		b.Advance(time.Second)
		assert.True(t, b.take(charges...).Allowed)
		b.holds(wide, 7, 0)
	}},

	{"OneBucketChargedTwiceIsChargedTheSum", func(t *testing.T, b *bench) {
		lim := terms(5, 1, 0, 0)
		charge := lease.Charge{Key: bucket, Terms: lim, Cost: 2}
		r := b.take(charge, charge)
		assert.True(t, r.Allowed)
		assert.InDelta(t, 1, r.Levels[0].Tokens, near)
		assert.InDelta(t, 1, r.Levels[1].Tokens, near)
		b.Advance(2 * time.Second)
		r = b.take(charge, charge)
		assert.False(t, r.Allowed)
		b.wait(time.Second, r.Levels[0].RetryAfter, "retry")
		b.wait(time.Second, r.Levels[1].RetryAfter, "retry")
		assert.Equal(t, lease.Never, b.take(charge, charge, charge).Levels[0].RetryAfter)
		b.holds(lim, 3, 0)
	}},

	{"OneBucketChargedUnderTwoTermsIsUnderTheFirst", func(t *testing.T, b *bench) {
		wide, narrow := terms(10, 1, 0, 0), terms(3, 1, 0, 0)
		charges := []lease.Charge{{Key: bucket, Terms: wide, Cost: 2}, {Key: bucket, Terms: narrow, Cost: 2}}
		r := b.take(charges...)
		assert.True(t, r.Allowed)
		assert.InDelta(t, 6, r.Levels[0].Tokens, near)
		assert.InDelta(t, 6, r.Levels[1].Tokens, near)
		b.holds(wide, 6, 0)
	}},

	{"ATakeIsRefusedForEverWhereItCannotPass", func(t *testing.T, b *bench) {
		lim := terms(5, 1, 0, 0)
		r := b.take(lease.Charge{Key: bucket, Terms: lim, Cost: 6})
		assert.False(t, r.Allowed)
		assert.Equal(t, lease.Never, r.Levels[0].RetryAfter)
		assert.False(t, b.peek(lim).Exists)
	}},

	{"WhatIsOutCannotBeTaken", func(t *testing.T, b *bench) {
		lim := terms(10, 10, 0, 10)
		b.borrow(lim, 4)
		b.Advance(time.Second)
		r := b.take(lease.Charge{Key: bucket, Terms: lim, Cost: 7})
		assert.False(t, r.Allowed)
		b.wait(19100*time.Millisecond, r.Levels[0].RetryAfter, "retry: when the lease has aged out, and a token more")
		b.Advance(r.Levels[0].RetryAfter)
		assert.True(t, b.take(lease.Charge{Key: bucket, Terms: lim, Cost: 7}).Allowed)
	}},

	{"ReportsRideOnATake", func(t *testing.T, b *bench) {
		lim := terms(10, 10, 0, 10)
		g := b.borrow(lim, 4)
		b.Advance(time.Second) // 6, and no more while 4 are out
		charge := lease.Charge{Key: bucket, Terms: lim, Cost: 7, Reports: [2]lease.Report{{Epoch: g.Epoch, Tokens: 3}}}
		r := b.take(charge)
		assert.False(t, r.Allowed)
		b.wait(100*time.Millisecond, r.Levels[0].RetryAfter, "retry: R1, the refill before was held down")
		b.holds(lim, 6, 1)
		b.Advance(100 * time.Millisecond)
		charge.Reports[0].Epoch++ // another's name
		assert.True(t, b.take(charge).Allowed)
		b.holds(lim, 0, 1)
	}},

	{"ATakeTellsItsTime", func(t *testing.T, b *bench) {
		lim := terms(10, 1, 0, 0)
		g := b.draw(lim, 10)
		b.Advance(3 * time.Second)
		r := b.take(lease.Charge{Key: bucket, Terms: lim, Cost: 3})
		assert.True(t, r.Allowed)
		assert.InDelta(t, g.At+3000, r.At, near)
		b.Advance(time.Second)
		b.giveBack(lease.Return{Key: bucket, Terms: lim, Waiters: 3, At: r.At}) // one has been refilled in their place
		b.holds(lim, 3, 0)
	}},

	{"WhatIsOwedIsChargedIntoDebtOfOneCapacity", func(t *testing.T, b *bench) {
		lim := terms(10, 1, 0, 0)
		b.draw(lim, 10)
		owe := lease.Charge{Key: bucket, Terms: lim, Cost: 7, Owe: true}
		r := b.take(owe)
		assert.True(t, r.Allowed)
		assert.Zero(t, r.Levels[0].RetryAfter)
		assert.InDelta(t, -7, r.Levels[0].Tokens, near)
		assert.InDelta(t, -10, b.take(owe).Levels[0].Tokens, near, "the rest is forgiven")
		r = b.take(lease.Charge{Key: bucket, Terms: lim, Cost: 1})
		assert.False(t, r.Allowed)
		b.wait(11*time.Second, r.Levels[0].RetryAfter, "retry: debt is paid back by refill")
		b.Advance(11 * time.Second)
		assert.True(t, b.take(lease.Charge{Key: bucket, Terms: lim, Cost: 1}).Allowed)
		owe.Cost = 1 << 50
		assert.InDelta(t, -10, b.take(owe).Levels[0].Tokens, near, "above the capacity, too")
	}},

	{"WhatIsOwedIsChargedWithTheOthersOrNotAtAll", func(t *testing.T, b *bench) {
		lim := terms(10, 0, 0, 0)
		other := lease.Key{Tenant: bucket.Tenant, Class: "export"}
		owe := lease.Charge{Key: bucket, Terms: lim, Cost: 15, Owe: true}
		r := b.take(owe, lease.Charge{Key: other, Terms: lim, Cost: 11})
		assert.False(t, r.Allowed)
		assert.Equal(t, lease.Never, r.Levels[1].RetryAfter)
		assert.False(t, b.peek(lim).Exists)
		assert.True(t, b.take(owe, lease.Charge{Key: other, Terms: lim, Cost: 10}).Allowed)
		b.holds(lim, -5, 0)
	}},
}
