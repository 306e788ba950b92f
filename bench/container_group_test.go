//go:build container

package bench

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/leaselimit/leaselimit"
	"github.com/leaselimit/leaselimit/bench/peer"
	"github.com/leaselimit/leaselimit/internal/childproc"
	"github.com/leaselimit/leaselimit/lease"
	"github.com/leaselimit/leaselimit/quota"
	"github.com/leaselimit/leaselimit/redisbucket"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/network"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/exec"
)

// groupTimeout bounds each wait for servers to agree. It ends what is stuck; seconds are enough.
const groupTimeout = time.Minute

// TestContainerCluster is a Cluster of 3 primaries and 3 replicas, each in a container.
func TestContainerCluster(t *testing.T) {
	t.Parallel()
	p := startPod(t, 6)
	for _, addr := range p.addrs {
		p.serve(t, addr, "--cluster-enabled", "yes", "--cluster-node-timeout", "2000", "--repl-diskless-sync-delay", "0")
	}
	create := append([]string{"redis-cli", "--cluster", "create"}, p.addrs...)
	p.exec(t, append(create, "--cluster-replicas", "1", "--cluster-yes"))
	for _, addr := range p.addrs {
		until(t, func(ctx context.Context) (bool, error) {
			info, err := p.server[addr].rdb.ClusterInfo(ctx).Result()
			return strings.Contains(info, "cluster_state:ok") && strings.Contains(info, "cluster_known_nodes:6"), err
		})
	}
	rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: p.addrs})
	t.Cleanup(func() { assert.NoError(t, rdb.Close()) })
	group{pod: p, rdb: rdb, data: p.addrs, primaries: 3, replicas: 1}.smoke(t)
}

// TestContainerSentinel is a primary with 2 replicas, watched by 3 sentinels, each in a container.
func TestContainerSentinel(t *testing.T) {
	t.Parallel()
	const name = "mymaster"
	p := startPod(t, 6)
	data, sentinels := p.addrs[:3], p.addrs[3:]
	host, port, err := net.SplitHostPort(data[0])
	require.NoError(t, err)
	p.serve(t, data[0], "--repl-diskless-sync-delay", "0")
	for _, addr := range data[1:] {
		p.serve(t, addr, "--replicaof", host+" "+port)
	}
	p.replicated(t, data[0], "k", 2) // a sentinel looks for replicas when it first sees the primary, and then every 10 s
	for _, addr := range sentinels {
		p.serveSentinel(t, addr, fmt.Sprintf("sentinel monitor %[1]s %s %s 2\n"+
			"sentinel down-after-milliseconds %[1]s 1000\nsentinel failover-timeout %[1]s 3000\n", name, host, port))
	}
	for _, addr := range sentinels {
		s := redis.NewSentinelClient(&redis.Options{Addr: addr})
		t.Cleanup(func() { assert.NoError(t, s.Close()) })
		until(t, func(ctx context.Context) (bool, error) {
			m, err := s.Master(ctx, name).Result()
			return m["num-slaves"] == "2" && m["num-other-sentinels"] == "2" && s.CkQuorum(ctx, name).Err() == nil, err
		})
	}
	rdb := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: name, SentinelAddrs: sentinels})
	t.Cleanup(func() { assert.NoError(t, rdb.Close()) })
	group{pod: p, rdb: rdb, data: data, primaries: 1, replicas: 2}.smoke(t)
}

// A group is several servers that answer for each other.
type group struct {
	*pod

	rdb                 redis.UniversalClient // of all of them
	data                []string              // addresses of the servers that may have buckets
	primaries, replicas int                   // as it was started; replicas of each primary
}

// smoke is what the library promises of every Redis: the limit is held, buckets lie where they belong, and a failover is got
// over.
func (g group) smoke(t *testing.T) {
	severalLimiters(t, g.rdb)
	store := redisbucket.New(g.rdb, redisbucket.WithPrefix(t.Name()))
	const capacity, cost = 100, 2
	lim, err := leaselimit.New(store, leaselimit.Config{
		Limits: quota.Fixed(quota.Limit{Capacity: capacity}), StoreTimeout: peer.Patience, OnFailure: leaselimit.FailClosed,
		MaxHold: 1, // less than a call costs, so that each is a draw, and none is under way when a server is killed
	})
	require.NoError(t, err)
	defer func() { assert.NoError(t, lim.Close(context.Background())) }()
	var spent int64
	allow := func(tenant string) leaselimit.Decision {
		d, err := lim.AllowN(t.Context(), tenant, cost)
		require.NoError(t, err)
		if d.Allowed {
			spent += cost
		}
		return d
	}
	keyOf := func(tenant string) string { return store.RedisKey(lease.Key{Tenant: tenant, Class: "default"}) }

	const tenants = 20
	for i := range tenants {
		require.Equal(t, leaselimit.SourceStore, allow(fmt.Sprint("tenant-", i)).Source)
	}
	for _, addr := range g.data {
		info, err := g.server[addr].rdb.Info(t.Context(), "errorstats").Result()
		require.NoError(t, err)
		assert.NotRegexp(t, "MOVED|READONLY", info, "no draw was sent to a server that had to send it on")
	}
	holders := map[string]bool{}
	for i := range tenants {
		holders[g.holder(t, keyOf(fmt.Sprint("tenant-", i)))] = true
	}
	assert.Len(t, holders, g.primaries)

	spent = 0
	for range 10 {
		require.True(t, allow("mover").Allowed)
	}
	old := g.holder(t, keyOf("mover"))
	g.replicated(t, old, keyOf("mover")+"mark", g.replicas)
	g.kill(t, old)
	until(t, func(context.Context) (bool, error) { return allow("mover").Allowed, nil })
	g.holder(t, keyOf("mover")) // another one now
	until(t, func(context.Context) (bool, error) {
		d := allow("mover")
		return !d.Allowed && !d.Degraded(), nil
	})
	assert.LessOrEqual(t, spent, int64(capacity))
}

// holder is the address of the primary that has key. Each server is asked by a client that follows nobody; those of a Cluster
// that do not have the key answer with an error.
func (g group) holder(t *testing.T, key string) (addr string) {
	t.Helper()
	for _, a := range g.data {
		s, ok := g.server[a]
		if !ok {
			continue // killed
		}
		role, err := s.rdb.Do(t.Context(), "role").Slice()
		require.NoError(t, err)
		if n, err := s.rdb.Exists(t.Context(), key).Result(); err == nil && n == 1 && role[0] == "master" {
			require.Empty(t, addr, "%s is on two servers", key)
			addr = a
		}
	}
	require.NotEmpty(t, addr, "no server has %s", key)
	return addr
}

// A pod is a number of servers in containers that share one network, as in Kubernetes. Ports are published as they are, on
// 127.0.0.1: so an address that one server learns of another, and tells its clients, is right for both, wherever Docker runs
// what it runs. With the network of the host it would be on Linux alone.
type pod struct {
	image  string
	addrs  []string // where servers may be
	owner  testcontainers.Container
	server map[string]server // those that run, by address
}

type server struct {
	testcontainers.Container

	rdb *redis.Client
}

// startPod starts a container that has the network for n servers, and outlives them all. It is a Redis that nobody asks,
// because that is what is in the image.
func startPod(t *testing.T, n int) *pod {
	t.Helper()
	p := &pod{image: image(t), server: map[string]server{}}
	loopback := netip.AddrFrom4([4]byte{127, 0, 0, 1})
	exposed, published := make([]string, n), network.PortMap{}
	for i := range n {
		number, err := childproc.Ports.Take()
		require.NoError(t, err)
		t.Cleanup(func() { childproc.Ports.Put(number) })
		port := strconv.Itoa(number)
		p.addrs = append(p.addrs, net.JoinHostPort(loopback.String(), port))
		exposed[i] = port + "/tcp"
		published[network.MustParsePort(exposed[i])] = []network.PortBinding{{HostIP: loopback, HostPort: port}}
	}
	p.owner = p.run(t, nil, testcontainers.WithExposedPorts(exposed...), testcontainers.WithHostConfigModifier(
		func(c *container.HostConfig) { c.PortBindings = published },
	))
	return p
}

// serve starts a server without persistence at addr.
func (p *pod) serve(t *testing.T, addr string, args ...string) {
	t.Helper()
	_, port, err := net.SplitHostPort(addr)
	require.NoError(t, err)
	p.join(t, addr, append([]string{"--port", port, "--protected-mode", "no", "--save", ""}, args...))
}

// serveSentinel starts a sentinel at addr, whose config file it will rewrite.
func (p *pod) serveSentinel(t *testing.T, addr, config string) {
	t.Helper()
	const file = "/sentinel.conf"
	_, port, err := net.SplitHostPort(addr)
	require.NoError(t, err)
	p.join(t, addr, []string{file, "--sentinel"}, testcontainers.WithFiles(testcontainers.ContainerFile{
		Reader: strings.NewReader("port " + port + "\nprotected-mode no\n" + config), ContainerFilePath: file, FileMode: 0o644,
	}))
}

func (p *pod) join(t *testing.T, addr string, args []string, opts ...testcontainers.ContainerCustomizer) {
	t.Helper()
	c := p.run(t, args, append(opts, testcontainers.WithHostConfigModifier(func(c *container.HostConfig) {
		c.NetworkMode = container.NetworkMode("container:" + p.owner.GetContainerID())
	}))...)
	p.server[addr] = server{c, connect(t, addr)}
	until(t, func(ctx context.Context) (bool, error) {
		err := p.server[addr].rdb.Ping(ctx).Err()
		return err == nil, err
	})
}

// run starts redis-server, not by the image's own entry point, which changes user and owner. It ends by being killed, as in a
// crash.
func (p *pod) run(t *testing.T, args []string, opts ...testcontainers.ContainerCustomizer) testcontainers.Container {
	t.Helper()
	c, err := testcontainers.Run(t.Context(), p.image, append(opts,
		testcontainers.WithEntrypoint("redis-server"), testcontainers.WithCmd(args...),
		testcontainers.WithConfigModifier(func(c *container.Config) { c.StopSignal = "SIGKILL" }),
	)...)
	testcontainers.CleanupContainer(t, c)
	require.NoError(t, err)
	return c
}

// exec runs a command beside the owner, which must succeed.
func (p *pod) exec(t *testing.T, cmd []string) {
	t.Helper()
	code, out, err := p.owner.Exec(t.Context(), cmd, exec.Multiplexed())
	require.NoError(t, err)
	text, err := io.ReadAll(out)
	require.NoError(t, err)
	require.Zero(t, code, "%v: %s", cmd, text)
}

func (p *pod) kill(t *testing.T, addr string) {
	t.Helper()
	require.NoError(t, p.server[addr].Terminate(t.Context()))
	delete(p.server, addr)
}

// replicated waits until n replicas have all that was written to the primary at addr before. key is written for that.
func (p *pod) replicated(t *testing.T, addr, key string, n int) {
	t.Helper()
	until(t, func(ctx context.Context) (bool, error) {
		cmds, err := p.server[addr].rdb.Pipelined(ctx, func(pipe redis.Pipeliner) error { // on one connection, whose writes are waited for
			pipe.Set(ctx, key, "", time.Minute)
			pipe.Do(ctx, "wait", n, time.Second.Milliseconds())
			return nil
		})
		if err != nil {
			return false, err
		}
		acks, err := cmds[1].(*redis.Cmd).Int()
		return acks == n, err
	})
}

func until(t *testing.T, done func(ctx context.Context) (bool, error)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), groupTimeout)
	defer cancel()
	require.NoError(t, childproc.Poll(ctx, func() (bool, error) { return done(ctx) }))
}
