package redisbucket_test

import (
	"context"
	"fmt"
	"math/rand/v2"
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

// randomTenants are n different ones of any bytes.
func randomTenants(n int) []string {
	r := rand.New(rand.NewPCG(7, 7))
	all := make([]string, n)
	for i := range all {
		b := make([]byte, r.IntN(40))
		for j := range b {
			b[j] = byte(r.IntN(256))
		}
		all[i] = fmt.Sprint(i) + "{" + string(b)
	}
	return all
}

func TestCK1_NoTenantIsSplitOverSlots(t *testing.T) {
	c := redistest.StartCluster(t, 3, 0)
	s := redisbucket.New(c.Client(t))
	lim := lending(10)
	var items []lease.Return
	for _, tenant := range randomTenants(1000) {
		var charges []lease.Charge
		for _, class := range []string{"default", "export", "bulk-import"} {
			charges = append(charges, lease.Charge{Key: lease.Key{Tenant: tenant, Class: class}, Terms: lim, Cost: 1})
			items = append(items, lease.Return{Key: lease.Key{Tenant: tenant, Class: class}, Terms: lim, Waiters: 1})
		}
		r, err := s.Take(t.Context(), charges)
		require.NoError(t, err, "%q", tenant)
		require.True(t, r.Allowed)
	}
	require.NoError(t, s.Return(t.Context(), items))

	for _, n := range c.Nodes() {
		require.Equal(t, "OK", n.CLI(t, "SCRIPT", "FLUSH"))
	}
	require.NoError(t, s.Return(t.Context(), items[:100]), "each master needs the script")
	moveSlot(t, c)
}

func TestCK5_TenantsAreSpreadOverTheMasters(t *testing.T) {
	rdb := redistest.Start(t, redistest.WithConfig("cluster-enabled", "yes")).Client(t)
	s := offline(t)
	const n = 10_000
	pipe := rdb.Pipeline()
	for i := range n {
		pipe.ClusterKeySlot(t.Context(), s.RedisKey(lease.Key{Tenant: fmt.Sprint("tenant-", i), Class: "default"}))
	}
	cmds, err := pipe.Exec(t.Context())
	require.NoError(t, err)
	var masters [3]int
	for _, cmd := range cmds {
		masters[cmd.(*redis.IntCmd).Val()*3/16384]++
	}
	for _, share := range masters {
		assert.InDelta(t, n/3, share, n*0.03)
	}
}

// moveSlot lets the slot of a bucket move to another master, in the two steps in which a Cluster does it, while the client
// knows nothing of it. Each draw is executed once.
func moveSlot(t *testing.T, c *redistest.Cluster) {
	rdb := c.Client(t, func(o *redis.ClusterOptions) { o.ClusterStateReloadInterval = time.Hour })
	s := redisbucket.New(rdb, redisbucket.WithPrefix("moved"))
	lim := lending(100)
	require.NoError(t, try(s, lim))

	name := s.RedisKey(key)
	from := c.Master(t, name)
	to := c.Nodes()[0]
	if to == from {
		to = c.Nodes()[1]
	}
	slot := strings.TrimSpace(from.CLI(t, "CLUSTER", "KEYSLOT", name))
	fromID, toID := strings.TrimSpace(from.CLI(t, "CLUSTER", "MYID")), strings.TrimSpace(to.CLI(t, "CLUSTER", "MYID"))
	require.Equal(t, "OK", to.CLI(t, "CLUSTER", "SETSLOT", slot, "IMPORTING", fromID))
	require.Equal(t, "OK", from.CLI(t, "CLUSTER", "SETSLOT", slot, "MIGRATING", toID))
	host, port, _ := strings.Cut(to.Addr(), ":")
	require.Equal(t, "OK", from.CLI(t, "MIGRATE", host, port, name, "0", "60000"))

	require.NoError(t, try(s, lim), "ASK")
	require.NoError(t, s.Return(t.Context(), []lease.Return{{Key: key, Terms: lim, Waiters: 1}}), "ASK, in a pipeline")
	require.NoError(t, try(s, lim))
	both := []lease.Charge{{Key: key, Terms: lim, Cost: 1}, {Key: lease.Key{Tenant: key.Tenant, Class: "new"}, Terms: lim, Cost: 1}}
	_, err := s.Take(t.Context(), both)
	require.Equal(t, lease.ReasonCluster, lease.ReasonOf(err), "TRYAGAIN: one of the two is not there, and could be elsewhere: %v", err)

	for _, n := range c.Nodes() {
		require.Equal(t, "OK", n.CLI(t, "CLUSTER", "SETSLOT", slot, "NODE", toID))
	}
	require.NoError(t, try(s, lim), "MOVED")
	require.NoError(t, s.Return(t.Context(), []lease.Return{{Key: key, Terms: lim, Waiters: 2}}), "MOVED, in a pipeline")
	require.NoError(t, try(s, lim))
	r, err := s.Take(t.Context(), both)
	require.NoError(t, err)
	assert.True(t, r.Allowed)
	st, err := s.Peek(t.Context(), key, lim)
	require.NoError(t, err)
	assert.InDelta(t, 100-5+3-1, st.Level, 0)
}

// A draw that failed is not sent again, and so the client would not learn of a failover by itself.
func TestClusterFailover(t *testing.T) {
	c := redistest.StartCluster(t, 3, 1)
	rdb := c.Client(t, func(o *redis.ClusterOptions) {
		o.ClusterStateReloadInterval = time.Hour // or the client would, in the end
		o.ReadTimeout, o.DialTimeout, o.DialerRetries = time.Second, time.Second, 1
	})
	s := redisbucket.New(rdb, redisbucket.WithPrefix("failover"))
	lim := lending(1_000_000)
	require.NoError(t, try(s, lim))

	c.Master(t, s.RedisKey(key)).Stop()
	require.Error(t, try(s, lim))
	require.Eventually(t, func() bool { return try(s, lim) == nil }, wait, 100*time.Millisecond)
	err := s.Return(context.Background(), []lease.Return{{Key: key, Terms: lim, Waiters: 1}})
	require.NoError(t, err)
}

func TestSentinelFailover(t *testing.T) {
	g := redistest.StartSentinel(t)
	s := redisbucket.New(g.Client(t, func(o *redis.FailoverOptions) {
		o.ReadTimeout, o.DialTimeout, o.DialerRetries = time.Second, time.Second, 1
	}))
	lim := lending(1_000_000)
	require.NoError(t, try(s, lim))
	old := g.Primary()
	old.Stop()
	require.Error(t, try(s, lim))
	g.WaitFailover(t, old)
	require.Eventually(t, func() bool { return try(s, lim) == nil }, wait, 100*time.Millisecond)
}
