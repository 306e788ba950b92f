package membucket

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leaselimit/leaselimit/internal/wire"
	"github.com/leaselimit/leaselimit/lease"
	"github.com/leaselimit/leaselimit/quota"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// manual is a store whose clock the test advances.
func manual() (s *Store, advance func(time.Duration)) {
	micros := int64(1_757_000_000_000_000)
	s = New()
	s.clock = func() float64 { return wire.Clock(micros/1e6, micros%1e6) }
	return s, func(d time.Duration) { micros += d.Microseconds() }
}

func draw(t *testing.T, s *Store, tenant string, terms lease.Terms) lease.Grant {
	t.Helper()
	g, err := s.Acquire(t.Context(), lease.AcquireRequest{
		Key: lease.Key{Tenant: tenant, Class: "default"}, Terms: terms, Min: 1, Need: 1, Want: 1,
	})
	require.NoError(t, err)
	return g
}

// A record goes when its bucket is full and nothing is out, and not a ms before.
func TestARecordExpires(t *testing.T) {
	s, advance := manual()
	terms := lease.Terms{Limit: quota.PerSecond(1, 5), Share: 5, TTL: 2 * time.Second}
	g := draw(t, s, "acme", terms)
	require.Equal(t, int64(2), g.Waiters+g.Surplus)
	life := 2*time.Second + 2*terms.TTL + time.Second

	st := func() lease.State {
		st, err := s.Peek(t.Context(), lease.Key{Tenant: "acme", Class: "default"}, terms)
		require.NoError(t, err)
		return st
	}
	advance(life)
	assert.Equal(t, lease.State{Exists: true, Level: 5}, st())
	advance(time.Millisecond)
	assert.Equal(t, lease.State{Level: 5}, st())
	assert.Empty(t, s.buckets)
}

// Whoever makes up tenants makes the map no larger than about twice the buckets that are not full again.
func TestMC1_TheMapFollowsTheLiveBuckets(t *testing.T) {
	s, advance := manual()
	terms := lease.Terms{Limit: quota.PerSecond(1000, 10), Share: 5, TTL: time.Millisecond}
	const live = 1000 // as many as are made within a record's life
	most := 0
	for i := range 50 * live {
		draw(t, s, fmt.Sprint(i), terms)
		advance(1004 * time.Millisecond / live)
		most = max(most, len(s.buckets))
	}
	assert.Less(t, most, 3*live)
}

// The clock of a store is its own: it begins with the wall clock and then goes with the monotonic one, by whole µs.
func TestTheClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := monotonic()
		begin := clock()
		assert.InDelta(t, float64(time.Now().UnixMilli()), begin, 0)
		time.Sleep(1234567 * time.Nanosecond)
		assert.InDelta(t, 1.234, clock()-begin, 1e-3)
	})
}
