package chaos_test

import (
	"strings"
	"testing"
	"time"

	"github.com/leaselimit/leaselimit/internal/redistest"
	"github.com/leaselimit/leaselimit/lease"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestClusterFaults stages what can happen to a Cluster of 3 primaries and 3 replicas under load.
func TestClusterFaults(t *testing.T) {
	c := redistest.StartCluster(t, 3, 1)
	connect := func() redis.UniversalClient {
		return c.Client(t, func(o *redis.ClusterOptions) { o.ContextTimeoutEnabled = true })
	}
	keyOf := func(w *world, i int) string {
		return w.store.RedisKey(lease.Key{Tenant: w.tenants[i], Class: "default"})
	}

	// Every slot with a bucket moves, in the steps in which a Cluster does it: MOVED, ASK, TRYAGAIN.
	t.Run("resharding", func(t *testing.T) {
		w := start(t, "reshard", hasty, connect(), connect)
		for i := range w.tenants {
			key := keyOf(w, i)
			from := c.Master(t, key)
			w.until(t, "the bucket is in use", func() bool { return from.CLI(t, "EXISTS", key) == "1" }) // or there is nothing to move
			to := from
			for j := i; to == from; j++ {
				to = c.Master(t, keyOf(w, j%len(w.tenants)))
			}
			slot := from.CLI(t, "CLUSTER", "KEYSLOT", key)
			fromID, toID := from.CLI(t, "CLUSTER", "MYID"), to.CLI(t, "CLUSTER", "MYID")
			require.Equal(t, "OK", to.CLI(t, "CLUSTER", "SETSLOT", slot, "IMPORTING", fromID))
			require.Equal(t, "OK", from.CLI(t, "CLUSTER", "SETSLOT", slot, "MIGRATING", toID))
			host, port, _ := strings.Cut(to.Addr(), ":")
			require.Equal(t, "OK", from.CLI(t, "MIGRATE", host, port, key, "0", "60000"))
			during(20 * time.Millisecond) // ASK
			for _, n := range c.Nodes() {
				if role := n.CLI(t, "ROLE"); strings.HasPrefix(role, "master") {
					require.Equal(t, "OK", n.CLI(t, "CLUSTER", "SETSLOT", slot, "NODE", toID))
				}
			}
		}
		during(200 * time.Millisecond) // MOVED
		w.recovered(t)
		w.check(t, 0, false)
	})

	// Replication is asynchronous: what was not replicated is lost, once.
	t.Run("failover", func(t *testing.T) {
		w := start(t, "failover", hasty, connect(), connect)
		old := c.Master(t, keyOf(w, 0))
		old.Stop()
		w.until(t, "failed over", func() bool { return c.Master(t, keyOf(w, 0)) != old })
		w.recovered(t)
		w.check(t, 1, false)
		assert.NotZero(t, w.sum().RefusedFallback+w.sum().AllowedFallback)
		old.Restart()
		c.WaitHealthy(t)
	})

	// A slot that nobody serves closes the Cluster.
	t.Run("CLUSTERDOWN", func(t *testing.T) {
		w := start(t, "down", hasty, connect(), connect)
		owner := c.Master(t, "nobody's")
		slot := owner.CLI(t, "CLUSTER", "KEYSLOT", "nobody's")
		// The owner first: while it goes on saying that the slot is its own, those that have forgotten it learn it again.
		require.Equal(t, "OK", owner.CLI(t, "CLUSTER", "DELSLOTS", slot))
		for _, n := range c.Nodes() {
			if n != owner {
				require.Equal(t, "OK", n.CLI(t, "CLUSTER", "DELSLOTS", slot))
			}
		}
		w.until(t, "down", func() bool { return w.sum().Failures[lease.ReasonCluster] > 0 })
		during(spell)
		require.Equal(t, "OK", owner.CLI(t, "CLUSTER", "ADDSLOTS", slot))
		w.recovered(t)
		w.check(t, 0, false)
	})
}

// TestSentinelFaults stages what can happen to a primary that three sentinels watch, under load.
func TestSentinelFaults(t *testing.T) {
	g := redistest.StartSentinel(t)
	connect := func() redis.UniversalClient {
		return g.Client(t, func(o *redis.FailoverOptions) { o.ContextTimeoutEnabled = true })
	}
	t.Run("the primary is killed", func(t *testing.T) {
		w := start(t, "killed", hasty, connect(), connect)
		old := g.Primary()
		old.Stop()
		next := g.WaitFailover(t, old)
		w.recovered(t)
		w.check(t, 1, false)
		old.Restart()
		// The sentinels would say so once they have seen it well for 8 s.
		host, port, _ := strings.Cut(next.Addr(), ":")
		require.Equal(t, "OK", old.CLI(t, "REPLICAOF", host, port))
	})
	t.Run("the primary is made a replica", func(t *testing.T) {
		w := start(t, "demoted", hasty, connect(), connect)
		old := g.Primary()
		for _, s := range g.Nodes() { // or there is nobody to fail over to
			w.until(t, "in step", func() bool { return s == old || strings.Contains(s.CLI(t, "ROLE"), "connected") })
		}
		w.until(t, "a failover begins", func() bool { // once the last one is over, and the sentinel has heard of a replica that will do
			return g.Sentinels()[0].CLI(t, "SENTINEL", "FAILOVER", g.MasterName) == "OK"
		})
		g.WaitFailover(t, old)
		w.recovered(t)
		w.check(t, 1, false)
	})
}
