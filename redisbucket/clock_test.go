package redisbucket_test

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/leaselimit/leaselimit/internal/redistest"
	"github.com/leaselimit/leaselimit/lease"
	"github.com/leaselimit/leaselimit/quota"
	"github.com/leaselimit/leaselimit/redisbucket"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// recorder is a hook that keeps the scripts that are sent.
type recorder struct{ sent [][]any }

func (r *recorder) add(cmds ...redis.Cmder) {
	for _, cmd := range cmds {
		if strings.HasPrefix(cmd.Name(), "eval") {
			r.sent = append(r.sent, cmd.Args())
		}
	}
}

func (r *recorder) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

func (r *recorder) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		r.add(cmd)
		return next(ctx, cmd)
	}
}

func (r *recorder) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		r.add(cmds...)
		return next(ctx, cmds)
	}
}

// No time of a replica crosses the wire, so replicas with other clocks do no harm: the same request is the same bytes, at any
// time and from anyone.
func TestCL1_NoClockOfAReplicaCounts(t *testing.T) {
	prefix := redistest.Prefix(t)
	lim := lease.Terms{Limit: quota.PerSecond(10, 100), Budget: 1, Share: 25, TTL: time.Second}
	var sent [2][][]any
	for i := range sent {
		rdb, rec := redistest.Client(t), &recorder{}
		rdb.AddHook(rec)
		s := redisbucket.New(rdb, redisbucket.WithPrefix(prefix))
		draw(t, s, lim, 1) // known to the server from here on
		require.NoError(t, s.Return(t.Context(), []lease.Return{{Key: key, Terms: lim, Waiters: 1}}))
		_, err := s.Take(t.Context(), []lease.Charge{{Key: key, Terms: lim, Cost: 1}})
		require.NoError(t, err)
		_, err = s.Peek(t.Context(), key, lim)
		require.NoError(t, err)
		rec.sent = rec.sent[:0]

		draw(t, s, lim, 1)
		require.NoError(t, s.Return(t.Context(), []lease.Return{{Key: key, Terms: lim, Waiters: 1}}))
		_, err = s.Take(t.Context(), []lease.Charge{{Key: key, Terms: lim, Cost: 1}})
		require.NoError(t, err)
		_, err = s.Peek(t.Context(), key, lim)
		require.NoError(t, err)
		sent[i] = rec.sent
	}
	assert.Len(t, sent[0], 4)
	assert.Equal(t, sent[0], sent[1])
}

func TestCL1_TwoReplicasOneSecond(t *testing.T) {
	prefix := redistest.Prefix(t)
	rdb := redistest.Client(t)
	a, clock := faked(t, rdb, prefix)
	b := redisbucket.New(rdb, redisbucket.WithPrefix(prefix))
	lim := limited(quota.PerSecond(20, 10))
	var passed int64
	last := ""
	for i := range 1000 {
		s := a
		if i%2 == 1 {
			s = b
		}
		passed += draw(t, s, lim, 1).Waiters
		clock.Advance(time.Millisecond)
		now := rdb.HGet(t.Context(), a.RedisKey(key), "last_refill").Val()
		assert.GreaterOrEqual(t, now, last, "the stored time must not go back")
		last = now
	}
	assert.InDelta(t, 10+20, passed, 1)
	assert.LessOrEqual(t, passed, int64(10+20))
}

// A clock that was set back credits nothing for the time that it goes over again, and holds nobody up.
func TestCL2_TheServersClockGoesBack(t *testing.T) {
	for _, back := range []time.Duration{time.Millisecond, 5 * time.Second, time.Hour} {
		s, clock, rdb := single(t)
		lim := lease.Terms{Limit: quota.PerSecond(1, 10), Share: 5, TTL: 10 * time.Second}
		_, err := s.Acquire(t.Context(), lease.AcquireRequest{Key: key, Terms: lim, Min: 8, Need: 8, Want: 2, Replicas: 1})
		require.NoError(t, err)
		clock.Advance(-back)
		g := draw(t, s, lim, 1)
		assert.Zero(t, g.Waiters, "%v", back)
		assert.InDelta(t, 0, g.Level, 1e-9)
		assert.InDelta(t, time.Second, g.RetryAfter, float64(time.Millisecond))
		clock.Advance(3 * time.Second)
		assert.Equal(t, int64(3), admitted(t, s, lim, 10))
		out, err := s.Peek(t.Context(), key, lim)
		require.NoError(t, err)
		assert.Equal(t, int64(2), out.Out, "the lease stays counted")
		clock.Advance(20 * time.Second)
		out, err = s.Peek(t.Context(), key, lim)
		require.NoError(t, err)
		assert.Zero(t, out.Out, "and ages out all the same")

		// Written by a server whose clock is ahead.
		ahead := clock.Millis() + float64(back.Milliseconds())
		require.NoError(t, rdb.HSet(t.Context(), s.RedisKey(key), "last_refill", ahead, "epoch", ahead, "tokens", 0).Err())
		assert.Zero(t, admitted(t, s, lim, 3))
		clock.Advance(2 * time.Second)
		assert.Equal(t, int64(2), admitted(t, s, lim, 10))
	}
}

// What goes back is credited less the refill since it was granted. How much that was a clock that was set back cannot tell: the tokens
// are credited beside it, up to the cap (docs/accuracy.md).
func TestCL2_WhatGoesBackAfterTheClockDid(t *testing.T) {
	s, clock, _ := single(t)
	lim := limited(quota.PerSecond(1, 10))
	g := draw(t, s, lim, 10)
	clock.Advance(10 * time.Second)
	require.Equal(t, int64(10), admitted(t, s, lim, 20))
	back := []lease.Return{{Key: key, Terms: lim, Waiters: 10, At: g.At}}
	require.NoError(t, s.Return(t.Context(), back))
	assert.Zero(t, admitted(t, s, lim, 20))
	clock.Advance(-10 * time.Second)
	require.NoError(t, s.Return(t.Context(), back))
	assert.Equal(t, int64(10), admitted(t, s, lim, 20))
}

// A broken ms of Redis' clock is kept, in the tokens; last_refill is whole. All digits are.
func TestAR15_StoredTimesKeepTheirDigits(t *testing.T) {
	s, clock, rdb := single(t)
	lim := limited(quota.PerSecond(1000, 10))
	clock.Advance(123_456 * time.Microsecond)
	draw(t, s, lim, 10)
	hash := rdb.HGetAll(t.Context(), s.RedisKey(key)).Val()
	assert.Equal(t, "1757000000123", hash["last_refill"])
	assert.Equal(t, "1757000000123", hash["epoch"])
	assert.Regexp(t, `^-0\.456`, hash["tokens"], "nothing, less what came since the whole ms")
	clock.Advance(time.Millisecond)
	g := draw(t, s, lim, 2)
	assert.InDelta(t, 1, g.Level, 1e-3)
	assert.Equal(t, int64(1), draw(t, s, lim, 1).Waiters)
	clock.Advance(999 * time.Microsecond)
	assert.Zero(t, draw(t, s, lim, 1).Waiters)
	clock.Advance(2 * time.Microsecond)
	assert.Equal(t, int64(1), draw(t, s, lim, 1).Waiters)
}
