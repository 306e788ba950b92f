package storetest

import (
	"testing"
	"time"

	"github.com/leaselimit/leaselimit/lease"
	"github.com/leaselimit/leaselimit/quota"
	"github.com/stretchr/testify/assert"
)

// What a bucket does by itself, and what waiters get of it.
var drawTests = []test{
	{"AFreshBucketIsFull", func(t *testing.T, b *bench) {
		lim := terms(10, 1, 0, 0)
		assert.Equal(t, lease.State{Level: 10}, b.peek(lim))
		assert.Equal(t, lease.State{Level: 10}, b.peek(lim), "a peek must not create a bucket")

		g := b.draw(lim, 3)
		assert.Equal(t, int64(3), g.Waiters)
		assert.InDelta(t, 7, g.Level, near)
		assert.Zero(t, g.RetryAfter)
		assert.Zero(t, g.Surplus)
		assert.True(t, b.peek(lim).Exists)
	}},

	{"WaitersGetMinToNeedOrNothing", func(t *testing.T, b *bench) {
		lim := terms(10, 1, 0, 0)
		ask := lease.AcquireRequest{Key: bucket, Terms: lim, Min: 3, Need: 8}
		assert.Equal(t, int64(8), b.acquire(ask).Waiters, "all that is needed")
		b.Advance(2 * time.Second)
		assert.Equal(t, int64(4), b.acquire(ask).Waiters, "what is there, from min on")
		b.Advance(2 * time.Second)
		g := b.acquire(ask)
		assert.Zero(t, g.Waiters, "less than min is nothing")
		assert.InDelta(t, 2, g.Level, near)
		b.wait(time.Second, g.RetryAfter, "retry")
	}},

	{"PartTokensAreNotGranted", func(t *testing.T, b *bench) {
		lim := terms(10, 1, 0, 10)
		b.draw(lim, 10)
		b.Advance(1900 * time.Millisecond)
		g := b.acquire(lease.AcquireRequest{Key: bucket, Terms: lim, Min: 1, Need: 5})
		assert.Equal(t, int64(1), g.Waiters)
		assert.InDelta(t, 0.9, g.Level, near)
		assert.Zero(t, b.borrow(lim, 5).Surplus)
		b.Advance(100 * time.Millisecond)
		assert.Equal(t, int64(1), b.borrow(lim, 5).Surplus)
	}},

	{"ARefusalChangesNothing", func(t *testing.T, b *bench) {
		lim := terms(10, 1, 0, 0)
		b.draw(lim, 10)
		for i := range 99 {
			b.Advance(10 * time.Millisecond)
			g := b.draw(lim, 1)
			assert.Zero(t, g.Waiters)
			b.wait(time.Second-time.Duration(i+1)*10*time.Millisecond, g.RetryAfter, "retry")
		}
		b.Advance(10 * time.Millisecond)
		assert.Equal(t, int64(1), b.draw(lim, 1).Waiters)
	}},

	{"WhoWaitsTheRetryIsAdmitted", func(t *testing.T, b *bench) {
		lim := lease.Terms{Limit: quota.Limit{Capacity: 7, Refill: 3, Per: 7 * time.Second}, TTL: 10 * time.Second}
		b.draw(lim, 7)
		for cost := int64(1); cost <= 7; cost++ {
			g := b.draw(lim, cost)
			assert.Zero(t, g.Waiters)
			b.Advance(g.RetryAfter.Truncate(time.Microsecond) + 2*time.Microsecond) // the clocks' resolution
			assert.Equal(t, cost, b.draw(lim, cost).Waiters, "cost %d after %v", cost, g.RetryAfter)
		}
	}},

	{"TheRefillStopsAtCapacity", func(t *testing.T, b *bench) {
		lim := terms(10, 1, 5, 0)
		b.draw(lim, 4)
		b.Advance(3 * time.Second)
		b.holds(lim, 9, 0)
		b.Advance(time.Hour)
		b.holds(lim, 10, 0)
		assert.InDelta(t, 9, b.draw(lim, 1).Level, near)
	}},

	{"WhatCannotPassIsRefusedForEver", func(t *testing.T, b *bench) {
		lim := terms(10, 1, 5, 10)
		g := b.draw(lim, 11)
		assert.Zero(t, g.Waiters)
		assert.Equal(t, lease.Never, g.RetryAfter, "cost above capacity")
		assert.False(t, b.peek(lim).Exists, "a refusal must not create a bucket")

		still := lease.Terms{Limit: quota.Limit{Capacity: 2}, TTL: 10 * time.Second}
		assert.Equal(t, int64(2), b.draw(still, 2).Waiters)
		b.Advance(time.Hour)
		assert.Equal(t, lease.Never, b.draw(still, 1).RetryAfter, "no refill")
	}},

	{"ABlockedTenantGetsNothing", func(t *testing.T, b *bench) {
		lim := lease.Terms{TTL: time.Second}
		g := b.acquire(lease.AcquireRequest{Key: bucket, Terms: lim, Min: 1, Need: 3, Want: 9, Horizon: time.Second})
		assert.Equal(t, lease.Never, g.RetryAfter)
		assert.Zero(t, g.Waiters+g.Surplus)
		assert.False(t, b.take(lease.Charge{Key: bucket, Terms: lim, Cost: 1}).Allowed)
	}},

	{"BucketsAreApart", func(t *testing.T, b *bench) {
		lim := terms(1, 1, 0, 0)
		for _, key := range []lease.Key{
			{Tenant: "a", Class: "x"},
			{Tenant: "a", Class: "y"},
			{Tenant: "A", Class: "x"},
			{Tenant: "a:x", Class: "x"},
			{Tenant: "a}", Class: "x"},
			{Tenant: "{a}", Class: "x"},
			{Tenant: "a%", Class: "x"},
			{Tenant: "\x00", Class: "x"},
			{Tenant: "\xff", Class: "x"},
			{Tenant: "ü", Class: "x"},
			{Tenant: " ", Class: "x"},
		} {
			g := b.acquire(lease.AcquireRequest{Key: key, Terms: lim, Min: 1, Need: 1})
			assert.Equal(t, int64(1), g.Waiters, "%q", key)
			g = b.acquire(lease.AcquireRequest{Key: key, Terms: lim, Min: 1, Need: 1})
			assert.Zero(t, g.Waiters, "%q", key)
		}
	}},

	{"LargeCountsAreExact", func(t *testing.T, b *bench) {
		lim := lease.Terms{Limit: quota.Limit{Capacity: quota.MaxTokens}, TTL: time.Second}
		g := b.draw(lim, quota.MaxTokens-1)
		assert.Equal(t, quota.MaxTokens-1, g.Waiters)
		assert.InDelta(t, 1, g.Level, 0)
		assert.Equal(t, int64(1), b.draw(lim, 1).Waiters)
		assert.Zero(t, b.draw(lim, 1).Waiters)
	}},
}
