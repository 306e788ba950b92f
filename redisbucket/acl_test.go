package redisbucket_test

import (
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/leaselimit/leaselimit/internal/redistest"
	"github.com/leaselimit/leaselimit/lease"
	"github.com/leaselimit/leaselimit/redisbucket"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The rule is the one of docs/operations.md: it lets the library do all that it does, and nothing else.
func TestTheDocumentedACLIsEnough(t *testing.T) {
	page, err := os.ReadFile("../docs/operations.md")
	require.NoError(t, err)
	rule := regexp.MustCompile(`(?s)ACL SETUSER limiter (.*?)\n\n`).FindStringSubmatch(string(page))
	require.NotNil(t, rule, "docs/operations.md has no rule")
	words := strings.Fields(strings.ReplaceAll(rule[1], `\`, ""))

	srv := redistest.Start(t)
	require.Equal(t, "OK", srv.CLI(t, append([]string{"ACL", "SETUSER", "limiter"}, words...)...))
	rdb := srv.Client(t, func(o *redis.Options) { o.Username, o.Password = "limiter", "secret" })
	s := redisbucket.New(rdb)
	lim := lending(100)
	acquire := func() {
		t.Helper()
		g, err := s.Acquire(t.Context(), lease.AcquireRequest{Key: key, Terms: lim, Min: 1, Need: 1, Want: 5, Replicas: 1})
		require.NoError(t, err)
		require.NoError(t, s.Return(t.Context(), []lease.Return{{Key: key, Terms: lim, Epoch: g.Epoch, Unspent: g.Surplus}}))
	}
	acquire()
	_, err = s.Acquire(t.Context(), lease.AcquireRequest{Key: key, Terms: lim}) // a probe
	require.NoError(t, err)
	_, err = s.Take(t.Context(), []lease.Charge{{Key: key, Terms: lim, Cost: 1}})
	require.NoError(t, err)
	_, err = s.Peek(t.Context(), key, lim)
	require.NoError(t, err)
	_, err = s.Present(t.Context(), "default", "a", time.Second)
	require.NoError(t, err)
	_, err = s.Present(t.Context(), "default", "a", 0)
	require.NoError(t, err)
	require.NoError(t, s.Reset(t.Context(), key))
	require.Equal(t, "OK", srv.CLI(t, "SCRIPT", "FLUSH"))
	acquire()
	require.NoError(t, s.Reset(t.Context(), key))
	require.NoError(t, srv.Client(t).Set(t.Context(), s.RedisKey(key), "something else", 0).Err())
	require.NoError(t, s.Reset(t.Context(), key), "also where it has to delete")

	// And nothing else.
	for _, cmd := range [][]any{
		{"get", "other"},
		{"set", "rl:x", "1"},
		{"flushall"},
		{"keys", "*"},
		{"config", "get", "*"},
		{"script", "flush"},
		{"eval", "return redis.call('HGET', KEYS[1], 'tokens')", 1, "other"},
		{"eval", "return redis.call('SET', KEYS[1], 1)", 1, "rl:x"},
	} {
		assert.Regexp(t, "NOPERM|can.t run this command", rdb.Do(t.Context(), cmd...).Err(), "%v", cmd)
	}

	// Of a Cluster the client asks for the slots.
	c := redistest.StartCluster(t, 3, 0)
	for _, n := range c.Nodes() {
		require.Equal(t, "OK", n.CLI(t, append([]string{"ACL", "SETUSER", "limiter"}, words...)...))
	}
	cs := redisbucket.New(c.Client(t, func(o *redis.ClusterOptions) { o.Username, o.Password = "limiter", "secret" }))
	for _, tenant := range []string{"a", "b", "c", "d"} {
		_, err := cs.Take(t.Context(), []lease.Charge{{Key: lease.Key{Tenant: tenant, Class: "c"}, Terms: lim, Cost: 1}})
		require.NoError(t, err)
	}
}
