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
}
