package redistest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"testing"

	"github.com/leaselimit/leaselimit/internal/childproc"
	"github.com/redis/go-redis/v9"
)

const (
	masterName = "mymaster"
	replicas   = 2
	sentinels  = 3
)

// Sentinel is one primary with two replicas, watched by three sentinels. Two of
// them decide; they take a server that is silent for 1 s for dead.
type Sentinel struct {
	MasterName string // by which the sentinels know the primary

	data      []*Server
	sentinels []*Server
}

// StartSentinel starts a group and returns when every sentinel knows the
// replicas and the other sentinels, and would get its majority: from then on a
// failover can succeed.
func StartSentinel(tb testing.TB) *Sentinel {
	tb.Helper()
	primary := Start(tb)
	data := []*Server{primary}
	more, err := startAll(tb, replicas, func(int) spec {
		return newSpec([]Option{WithConfig("replicaof", fmt.Sprintf("%s %d", host, primary.port))})
	})
	if err != nil {
		tb.Fatal(err)
	}
	data = append(data, more...)

	// A sentinel asks the primary for its replicas when it first sees it, and
	// then only every 10 s: so the replicas come first.
	ctx, cancel := context.WithTimeout(tb.Context(), groupTimeout)
	defer cancel()
	err = childproc.Poll(ctx, func() (bool, error) {
		for _, s := range more {
			if err := inStep(ctx, s); err != nil {
				return false, err
			}
		}
		info, err := ask(ctx, primary.addr, "", "INFO", "replication")
		if err != nil {
			return false, err
		}
		if !hasLine(info[0], fmt.Sprintf("connected_slaves:%d", replicas)) {
			return false, errors.New("the primary misses replicas")
		}
		return true, nil
	})
	if err != nil {
		tb.Fatalf("redistest: replicas do not come up: %v", err)
	}

	watchers, err := startAll(tb, sentinels, func(int) spec { return sentinelSpec(primary.port) })
	if err != nil {
		tb.Fatal(err)
	}
	g := &Sentinel{MasterName: masterName, data: data, sentinels: watchers}
	err = childproc.Poll(ctx, func() (bool, error) {
		for _, s := range watchers {
			if err := g.knowsAll(ctx, s); err != nil {
				return false, fmt.Errorf("sentinel %s: %w", s.addr, err)
			}
		}
		return true, nil
	})
	if err != nil {
		tb.Fatalf("redistest: sentinels do not come up: %v", err)
	}
	return g
}

// sentinelSpec returns the spec of a sentinel. It rewrites its config file, with
// what it has learned, and takes nothing of a data server's settings.
func sentinelSpec(primaryPort int) spec {
	return spec{
		lines: []string{
			fmt.Sprintf("sentinel monitor %s %s %d 2", masterName, host, primaryPort),
			"sentinel down-after-milliseconds " + masterName + " 1000",
			// A failover whose vote was split is tried again after twice this.
			"sentinel failover-timeout " + masterName + " 3000",
			"sentinel parallel-syncs " + masterName + " 2",
		},
		args: []string{"--sentinel"},
	}
}

func (g *Sentinel) knowsAll(ctx context.Context, s *Server) error {
	reply, err := ask(ctx, s.addr, "", "SENTINEL", "MASTER", masterName)
	if err != nil {
		return err
	}
	m := pairs(reply)
	if m["flags"] != "master" || m["num-slaves"] != strconv.Itoa(replicas) ||
		m["num-other-sentinels"] != strconv.Itoa(sentinels-1) {
		return fmt.Errorf("sees a %s with %s replicas and %s other sentinels",
			m["flags"], m["num-slaves"], m["num-other-sentinels"])
	}
	_, err = ask(ctx, s.addr, "", "SENTINEL", "CKQUORUM", masterName)
	return err
}

// Addrs returns the host:port of every sentinel.
func (g *Sentinel) Addrs() []string { return addrsOf(g.sentinels) }

// Sentinels returns the sentinels themselves, in the order of Addrs.
func (g *Sentinel) Sentinels() []*Server { return g.sentinels }

// Nodes returns the primary and the replicas; the first was the primary once.
func (g *Sentinel) Nodes() []*Server { return g.data }

// Primary returns the server that the first sentinel to answer takes for the
// primary now, or nil if none answers. See WaitFailover for later.
func (g *Sentinel) Primary() *Server {
	ctx, cancel := context.WithTimeout(context.Background(), groupTimeout)
	defer cancel()
	for _, s := range g.sentinels {
		if p, err := g.primaryOf(ctx, s); err == nil {
			return p
		}
	}
	return nil
}

// WaitFailover returns the new primary once all sentinels that answer have one
// other than old, the same, and it takes itself for the primary too.
func (g *Sentinel) WaitFailover(tb testing.TB, old *Server) *Server {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), groupTimeout)
	defer cancel()
	var primary *Server
	err := childproc.Poll(ctx, func() (bool, error) {
		primary = nil
		for _, s := range g.sentinels {
			p, err := g.primaryOf(ctx, s)
			switch {
			case err != nil:
				continue // killed by the test, perhaps
			case p == old, primary != nil && p != primary:
				return false, fmt.Errorf("sentinel %s still has %s", s.addr, p.addr)
			}
			primary = p
		}
		if primary == nil {
			return false, errors.New("no sentinel answers")
		}
		err := hasRole(ctx, primary, "master")
		return err == nil, err
	})
	if err != nil {
		tb.Fatalf("redistest: no failover from %s: %v", old.addr, err)
	}
	return primary
}

func (g *Sentinel) primaryOf(ctx context.Context, s *Server) (*Server, error) {
	reply, err := ask(ctx, s.addr, "", "SENTINEL", "GET-MASTER-ADDR-BY-NAME", masterName)
	if err != nil {
		return nil, err
	}
	if len(reply) == 2 {
		if p := serverAt(g.data, net.JoinHostPort(reply[0], reply[1])); p != nil {
			return p, nil
		}
	}
	return nil, fmt.Errorf("sentinel %s has an unknown primary %q", s.addr, reply)
}

// Client returns a client that asks the sentinels for the primary and follows
// it, closed when the test ends.
func (g *Sentinel) Client(tb testing.TB, opts ...func(*redis.FailoverOptions)) redis.UniversalClient {
	tb.Helper()
	o := &redis.FailoverOptions{MasterName: g.MasterName, SentinelAddrs: g.Addrs()}
	for _, f := range opts {
		f(o)
	}
	c := redis.NewFailoverClient(o)
	tb.Cleanup(func() { _ = c.Close() })
	return c
}
