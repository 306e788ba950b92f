package redistest

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/leaselimit/leaselimit/internal/childproc"
	"github.com/redis/go-redis/v9"
)

// groupTimeout bounds the wait for a Cluster or a Sentinel group to agree.
const groupTimeout = 60 * time.Second

// Cluster is a Redis Cluster of a test.
type Cluster struct {
	nodes              []*Server
	masters, perMaster int
}

// StartCluster starts a Cluster of at least 3 masters and returns when every
// node sees all the others, all slots served and all replicas in step. Nodes
// take a silent one for dead after 2 s, or, where there is no replica that
// could take over, after 30 s: a busy machine that stops a node for longer would
// close the Cluster. Options are for every node.
func StartCluster(tb testing.TB, masters, replicasPerMaster int, opts ...Option) *Cluster {
	tb.Helper()
	c := &Cluster{masters: masters, perMaster: replicasPerMaster}
	nodeTimeout := "2000"
	if replicasPerMaster == 0 {
		nodeTimeout = "30000"
	}
	nodes, err := startAll(tb, masters*(1+replicasPerMaster), func(int) spec {
		return newSpec(append([]Option{
			WithConfig("cluster-enabled", "yes"),
			WithConfig("cluster-config-file", "nodes.conf"),
			WithConfig("cluster-node-timeout", nodeTimeout),
		}, opts...))
	})
	if err != nil {
		tb.Fatal(err)
	}
	c.nodes = nodes

	ctx, cancel := context.WithTimeout(tb.Context(), groupTimeout)
	defer cancel()
	create := append([]string{"--cluster", "create"}, c.Addrs()...)
	create = append(create, "--cluster-replicas", strconv.Itoa(replicasPerMaster), "--cluster-yes")
	if _, err := nodes[0].cli(ctx, create...); err != nil {
		tb.Fatal(err)
	}
	if err := c.healthy(ctx); err != nil {
		tb.Fatalf("redistest: cluster does not come up: %v", err)
	}
	return c
}

// Nodes returns all servers, masters and replicas, in the order of Addrs.
func (c *Cluster) Nodes() []*Server { return c.nodes }

// Addrs returns the host:port of every node.
func (c *Cluster) Addrs() []string { return addrsOf(c.nodes) }

// Client returns a client of the Cluster, closed when the test ends.
func (c *Cluster) Client(tb testing.TB, opts ...func(*redis.ClusterOptions)) *redis.ClusterClient {
	tb.Helper()
	o := &redis.ClusterOptions{Addrs: c.Addrs(), Password: c.nodes[0].password}
	for _, f := range opts {
		f(o)
	}
	cc := redis.NewClusterClient(o)
	tb.Cleanup(func() { _ = cc.Close() })
	return cc
}

// Master returns the node that serves the slot of key, as the nodes that answer
// see it. While a failover is under way it waits for its end.
func (c *Cluster) Master(tb testing.TB, key string) *Server {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), groupTimeout)
	defer cancel()
	var master *Server
	err := childproc.Poll(ctx, func() (bool, error) {
		var errs []error
		for _, n := range c.nodes {
			addr, err := masterFor(ctx, n, key)
			if err != nil {
				errs = append(errs, err)
				continue
			}
			if m := serverAt(c.nodes, addr); m != nil && hasRole(ctx, m, "master") == nil {
				master = m
				return true, nil
			}
		}
		return false, errors.Join(errs...)
	})
	if err != nil {
		tb.Fatalf("redistest: no master for key %q: %v", key, err)
	}
	return master
}

// WaitHealthy returns once every node runs and agrees that all is well, as after
// StartCluster: for instance when a killed node was restarted.
func (c *Cluster) WaitHealthy(tb testing.TB) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), groupTimeout)
	defer cancel()
	if err := c.healthy(ctx); err != nil {
		tb.Fatalf("redistest: cluster is not healthy: %v", err)
	}
}

func (c *Cluster) healthy(ctx context.Context) error {
	return childproc.Poll(ctx, func() (bool, error) {
		for _, n := range c.nodes {
			if err := c.nodeHealthy(ctx, n); err != nil {
				return false, fmt.Errorf("node %s: %w", n.addr, err)
			}
		}
		return true, nil
	})
}

// nodeHealthy says what is amiss in the Cluster as n sees it.
func (c *Cluster) nodeHealthy(ctx context.Context, n *Server) error {
	info, err := ask(ctx, n.addr, n.password, "CLUSTER", "INFO")
	if err != nil {
		return err
	}
	for _, want := range []string{
		"cluster_state:ok", "cluster_slots_ok:16384",
		"cluster_size:" + strconv.Itoa(c.masters), "cluster_known_nodes:" + strconv.Itoa(len(c.nodes)),
	} {
		if !hasLine(info[0], want) {
			return fmt.Errorf("no %s in CLUSTER INFO:\n%s", want, info[0])
		}
	}
	view, err := clusterNodes(ctx, n)
	if err != nil {
		return err
	}
	replicas := 0
	for _, v := range view {
		if strings.Contains(v.flags, "fail") || strings.Contains(v.flags, "handshake") || !v.connected {
			return fmt.Errorf("node %s is %s, connected: %t", v.addr, v.flags, v.connected)
		}
		if strings.Contains(v.flags, "slave") {
			replicas++
		}
	}
	if replicas != c.masters*c.perMaster {
		return fmt.Errorf("sees %d replicas", replicas)
	}
	return inStep(ctx, n)
}

// startAll starts n servers at the same time, the i-th by spec(i).
func startAll(tb testing.TB, n int, spec func(i int) spec) ([]*Server, error) {
	servers, errs := make([]*Server, n), make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { servers[i], errs[i] = startFor(tb, spec(i)) })
	}
	wg.Wait()
	return servers, errors.Join(errs...)
}
