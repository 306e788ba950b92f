package redisbucket_test

import (
	"testing"
	"time"

	"github.com/leaselimit/leaselimit/lease"
	"github.com/leaselimit/leaselimit/lease/storetest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Replicas are counted until they leave or their time is over, each class for itself.
func TestCensus(t *testing.T) {
	both(t, func(t *testing.T, f storetest.Fixture) {
		s := f.Store.(lease.Census)
		present := func(class, id string, ttl time.Duration, want int) {
			t.Helper()
			n, err := s.Present(t.Context(), class, id, ttl)
			require.NoError(t, err)
			assert.Equal(t, want, n)
		}
		present("c", "a", 10*time.Second, 1)
		present("c", "b", 10*time.Second, 2)
		present("c", "b", 10*time.Second, 2)
		present("other", "x", 10*time.Second, 1)
		f.Advance(5 * time.Second)
		present("c", "c", 10*time.Second, 3)
		present("c", "b", 10*time.Second, 3)
		f.Advance(5 * time.Second) // a is forgotten
		present("c", "c", 10*time.Second, 2)
		present("c", "b", 0, 1)
		present("c", "b", 0, 1)
		f.Advance(time.Minute)
		present("c", "a", time.Second, 1)
		present("c", "a", 0, 0)

		for _, bad := range []struct {
			class, id string
			ttl       time.Duration
		}{{"", "a", 1}, {"c", "", 1}, {"c", "a", -1}} {
			_, err := s.Present(t.Context(), bad.class, bad.id, bad.ttl)
			assert.Error(t, err)
		}
	})
}

// The key goes with the last replica, and no tenant can have it.
func TestCensusKey(t *testing.T) {
	s, clock, rdb := single(t)
	_, err := s.Present(t.Context(), "c", "a", 20*time.Second)
	require.NoError(t, err)
	_, err = s.Present(t.Context(), "c", "b", time.Second)
	require.NoError(t, err)
	assert.Greater(t, rdb.PTTL(t.Context(), s.CensusKey("c")).Val(), 10*time.Second)
	for _, tenant := range []string{"%replicas", "replicas", "%", "{%replicas}"} {
		assert.NotEqual(t, s.CensusKey("c"), s.RedisKey(lease.Key{Tenant: tenant, Class: "c"}))
	}
	clock.Advance(time.Minute)
	n, err := s.Present(t.Context(), "c", "a", 0)
	require.NoError(t, err)
	assert.Zero(t, n)
	assert.Zero(t, rdb.Exists(t.Context(), s.CensusKey("c")).Val())
}
