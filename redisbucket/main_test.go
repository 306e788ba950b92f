package redisbucket_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/leaselimit/leaselimit/internal/fakeclock"
	"github.com/leaselimit/leaselimit/internal/redistest"
	"github.com/leaselimit/leaselimit/lease"
	"github.com/leaselimit/leaselimit/lease/storetest"
	"github.com/leaselimit/leaselimit/membucket"
	"github.com/leaselimit/leaselimit/quota"
	"github.com/leaselimit/leaselimit/redisbucket"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) { redistest.Main(m) }

const startMicros = 1_757_000_000_000_000 // of fake clocks: a whole ms

// faked is a store whose scripts see a clock that the test moves.
func faked(t *testing.T, rdb redis.UniversalClient, prefix string) (*redisbucket.Store, *fakeclock.Clock) {
	t.Helper()
	clock := fakeclock.New(startMicros)
	rdb.AddHook(clock)
	return redisbucket.New(rdb, redisbucket.WithPrefix(prefix)), clock
}

// single is a store on the shared server, with a clock that the test moves.
func single(t *testing.T) (*redisbucket.Store, *fakeclock.Clock, *redis.Client) {
	t.Helper()
	rdb := redistest.Client(t)
	s, clock := faked(t, rdb, redistest.Prefix(t))
	return s, clock, rdb
}

// both runs a test on the scripts and on the model.
func both(t *testing.T, test func(t *testing.T, f storetest.Fixture)) {
	t.Helper()
	t.Run("redis", func(t *testing.T) {
		s, clock, _ := single(t)
		test(t, storetest.Fixture{Store: s, Advance: clock.Advance})
	})
	t.Run("memory", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			test(t, storetest.Fixture{Store: membucket.New(), Advance: time.Sleep})
		})
	})
}

// key is the bucket of most tests.
var key = lease.Key{Tenant: "acme", Class: "default"}

// limited are terms without leases.
func limited(l quota.Limit) lease.Terms {
	return lease.Terms{Limit: l, TTL: 10 * time.Second}
}

func draw(t *testing.T, s lease.Store, terms lease.Terms, cost int64) lease.Grant {
	t.Helper()
	g, err := s.Acquire(t.Context(), lease.AcquireRequest{Key: key, Terms: terms, Min: cost, Need: cost})
	require.NoError(t, err)
	return g
}

// admitted is how many of n draws of one token pass.
func admitted(t *testing.T, s lease.Store, terms lease.Terms, n int) int64 {
	t.Helper()
	var sum int64
	for range n {
		sum += draw(t, s, terms, 1).Waiters
	}
	return sum
}
