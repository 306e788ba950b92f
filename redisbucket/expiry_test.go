package redisbucket_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/leaselimit/leaselimit/internal/fakeclock"
	"github.com/leaselimit/leaselimit/internal/redistest"
	"github.com/leaselimit/leaselimit/lease"
	"github.com/leaselimit/leaselimit/lease/storetest"
	"github.com/leaselimit/leaselimit/quota"
	"github.com/leaselimit/leaselimit/redisbucket"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Faults of other limiters, by their number: how long a key lives. Too short a life is a free full bucket.

const (
	maxTTL   = 400 * 24 * time.Hour
	stillTTL = 30 * 24 * time.Hour
)

// expiring is a store that keeps the argument of its last PEXPIRE in the bucket, to be read at leisure.
type expiring struct {
	*redisbucket.Store

	t     *testing.T
	rdb   *redis.Client
	clock *fakeclock.Clock
}

func newExpiring(t *testing.T) *expiring {
	t.Helper()
	const line = "redis.call('PEXPIRE', b.key, ttl(b))"
	clock := fakeclock.Mutant(startMicros, func(script string) string {
		assert.Equal(t, 1, strings.Count(script, line), "one line sets all expiries")
		return strings.Replace(script, line, "redis.call('HSET', b.key, 'expiry', ttl(b)) "+line, 1)
	})
	rdb := redistest.Client(t)
	rdb.AddHook(clock)
	return &expiring{
		Store: redisbucket.New(rdb, redisbucket.WithPrefix(redistest.Prefix(t))), t: t, rdb: rdb, clock: clock,
	}
}

// last is the last expiry of the bucket in ms, after a look at whether the key really has it.
func (e *expiring) last() int64 {
	e.t.Helper()
	asked, err := e.rdb.HGet(e.t.Context(), e.RedisKey(key), "expiry").Int64()
	require.NoError(e.t, err)
	left, err := e.rdb.PTTL(e.t.Context(), e.RedisKey(key)).Result()
	require.NoError(e.t, err)
	assert.Positive(e.t, left)
	assert.LessOrEqual(e.t, left.Milliseconds(), asked)
	return asked
}

func TestAR1_AnExpiryIsRoundedUp(t *testing.T) {
	e := newExpiring(t)
	lim := lease.Terms{Limit: quota.PerSecond(2500, 3), TTL: 10 * time.Second} // of Redis' own clock: the key is looked at, too
	draw(t, e, lim, 3)
	assert.Equal(t, int64(2+2*10_000+1000), e.last(), "1.2 ms to full, two windows and a second")
}

func TestAR2_ABurstBelowTheRateIsKept(t *testing.T) {
	s, _, rdb := single(t)
	lim := limited(quota.PerSecond(3, 1))
	assert.Equal(t, int64(1), admitted(t, s, lim, 100))
	assert.Positive(t, rdb.PTTL(t.Context(), s.RedisKey(key)).Val())
}

func TestAR10_AR11_ExpiriesHaveTheRightUnit(t *testing.T) {
	for _, rate := range []quota.Limit{
		{Refill: 1, Per: 100 * time.Second},
		{Refill: 1, Per: time.Second},
		{Refill: 10, Per: time.Second},
		{Refill: 100_000, Per: time.Second},
	} {
		for _, capacity := range []int64{1, 10, 1000} {
			e := newExpiring(t)
			lim := limited(quota.Limit{Capacity: capacity, Refill: rate.Refill, Per: rate.Per})
			draw(t, e, lim, 1)
			full := float64(rate.Per.Milliseconds()) / float64(rate.Refill)
			assert.InDelta(t, full+2*10_000+1000+0.5, e.last(), 0.5001, lim.Limit.String())
		}
	}
}

func TestAR10_ExpiriesAreCapped(t *testing.T) {
	e := newExpiring(t)
	draw(t, e, limited(quota.Limit{Capacity: quota.MaxTokens, Refill: 1, Per: 1 << 62}), 1)
	assert.Equal(t, maxTTL.Milliseconds(), e.last())
	e = newExpiring(t)
	draw(t, e, limited(quota.Limit{Capacity: 2}), 1)
	assert.Equal(t, stillTTL.Milliseconds(), e.last(), "no refill")
}

func TestAR12_AnIdleTenantIsNotFullTooEarly(t *testing.T) {
	test := func(t *testing.T, f storetest.Fixture) {
		lim := limited(quota.Limit{Capacity: 3, Refill: 1, Per: 15 * time.Second})
		draw(t, f.Store, lim, 3)
		f.Advance(14900 * time.Millisecond)
		assert.Zero(t, admitted(t, f.Store, lim, 5))
		f.Advance(100 * time.Millisecond)
		assert.Equal(t, int64(1), admitted(t, f.Store, lim, 5))
		f.Advance(15 * time.Second)
		assert.Equal(t, int64(1), admitted(t, f.Store, lim, 5))
	}
	both(t, test)
	e := newExpiring(t)
	test(t, storetest.Fixture{Store: e, Advance: e.clock.Advance})
	assert.Equal(t, int64(45_000+21_000), e.last())
}

// Out of debt it takes longer, and so the key lives longer.
func TestAR12_DebtIsNotForgotten(t *testing.T) {
	e := newExpiring(t)
	lim := lease.Terms{Limit: quota.PerSecond(10, 100), Share: 25, TTL: time.Second}
	draw(t, e, lim, 100)
	g, err := e.Acquire(t.Context(), lease.AcquireRequest{Key: key, Terms: lim, Min: 1, Need: 1, Want: 50, Horizon: 5 * time.Second})
	require.NoError(t, err)
	require.Equal(t, int64(50), g.Surplus)
	assert.Equal(t, int64(15_000+3000), e.last())
}

func TestAT3_EveryFirstDrawSetsAnExpiry(t *testing.T) {
	s, _, rdb := single(t)
	lim := limited(quota.PerSecond(1, 7))
	draw(t, s, lim, 5)
	assert.Positive(t, rdb.PTTL(t.Context(), s.RedisKey(key)).Val())
	draw(t, s, lim, 5)
	assert.Positive(t, rdb.PTTL(t.Context(), s.RedisKey(key)).Val())
}

func TestAT11_ARefusedRequestSpendsNothing(t *testing.T) {
	s, _, rdb := single(t)
	lim := limited(quota.PerSecond(1, 10))
	draw(t, s, lim, 8)
	ttl := func() time.Duration { return rdb.PTTL(t.Context(), s.RedisKey(key)).Val() }
	before := ttl()
	for _, cost := range []int64{5, 10, 1_000_000} {
		g := draw(t, s, lim, cost)
		assert.Zero(t, g.Waiters)
		assert.InDelta(t, 2, g.Level, 1e-9)
		assert.LessOrEqual(t, ttl(), before, "a denial must not lengthen the life of the key")
	}
	assert.Equal(t, int64(2), draw(t, s, lim, 2).Waiters)
	assert.Zero(t, draw(t, s, lim, 1).Waiters)
}

func TestMC1_EveryKeyExpires(t *testing.T) {
	srv := redistest.Start(t)
	rdb := srv.Client(t)
	s := redisbucket.New(rdb)
	const tenants = 2000
	lim := lease.Terms{Limit: quota.PerSecond(10_000, 10), Share: 10, TTL: time.Millisecond}
	for i := range tenants {
		_, err := s.Acquire(t.Context(), lease.AcquireRequest{
			Key: lease.Key{Tenant: fmt.Sprint("t", i), Class: "c"}, Terms: lim, Min: 1, Need: 1, Want: 2,
		})
		require.NoError(t, err)
	}
	for _, k := range rdb.Keys(t.Context(), "*").Val() {
		ttl := rdb.PTTL(t.Context(), k).Val()
		require.Truef(t, ttl != -1 && ttl <= 1100*time.Millisecond, "%s lives %v", k, ttl)
	}
	require.Eventually(t, func() bool { return srv.CLI(t, "DBSIZE") == "0" }, time.Minute, 50*time.Millisecond)
}

// Half-written and wrongly typed state is repaired: no error, no gift, and whole again after the next grant.
func TestMC2_BrokenStateIsRepaired(t *testing.T) {
	fields := []string{"tokens", "last_refill", "rate", "capacity", "budget", "epoch", "tau", "out_cur", "out_prev"}
	values := []string{"", "x", "nan", "-nan", "inf", "-inf", "-1", "1e400", "0x10", " 5 ", "{}", "-1e300"}
	lim := lease.Terms{Limit: quota.PerSecond(1, 10), Budget: 1, Share: 5, TTL: 10 * time.Second}
	for _, field := range fields {
		for _, value := range append(values, "(gone)") {
			t.Run(field+"="+value, func(t *testing.T) {
				s, clock, rdb := single(t)
				g, err := s.Acquire(t.Context(), lease.AcquireRequest{Key: key, Terms: lim, Min: 6, Need: 6, Want: 2, Replicas: 1})
				require.NoError(t, err)
				require.Equal(t, int64(2), g.Surplus)
				if value == "(gone)" {
					require.NoError(t, rdb.HDel(t.Context(), s.RedisKey(key), field).Err())
				} else {
					require.NoError(t, rdb.HSet(t.Context(), s.RedisKey(key), field, value).Err())
				}

				_, err = s.Peek(t.Context(), key, lim)
				require.NoError(t, err)
				gift := int64(2) // what was there
				switch {
				case field == "tokens": // some of these are numbers, if odd ones
					gift = map[string]int64{"0x10": 10, " 5 ": 5}[value]
				case field == "last_refill" && strings.ContainsAny(value, "15"): // and some are times, if long ago
					gift = 10
				}
				assert.LessOrEqual(t, admitted(t, s, lim, 20), gift)
				clock.Advance(time.Second)
				assert.LessOrEqual(t, admitted(t, s, lim, 20), int64(16), "no endless refusal, no endless grant")
				clock.Advance(time.Hour)
				assert.Equal(t, int64(10), admitted(t, s, lim, 20))
				for _, f := range fields {
					_, err := strconv.ParseFloat(rdb.HGet(t.Context(), s.RedisKey(key), f).Val(), 64)
					assert.NoError(t, err, f)
				}
			})
		}
	}
}
