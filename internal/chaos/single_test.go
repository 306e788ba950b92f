package chaos_test

import (
	"context"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/leaselimit/leaselimit/internal/faultproxy"
	"github.com/leaselimit/leaselimit/internal/redistest"
	"github.com/leaselimit/leaselimit/lease"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// ground is a server with a proxy before it, on which faults are staged.
type ground struct {
	server *redistest.Server
	proxy  *faultproxy.Proxy
	w      *world
}

// fault is one way in which a server fails. do stages it, lets calls run into it, and ends it.
type fault struct {
	name   string
	do     func(t *testing.T, g *ground)
	reason lease.Reason // that has to be counted, "" if none must be
	losses int64        // how often the server forgets what it knew
	exact  bool         // it is answered, and no answer is lost
	once   bool         // not for a world that has seen others: what it asserts would not hold
}

const spell = storeTimeout + 500*time.Millisecond // of a fault

func during(d time.Duration) { <-time.After(d) }

// hold lets calls run into a fault for a spell, and until one has: on a busy machine none may be made for longer.
func (g *ground) hold(t *testing.T, reason lease.Reason) {
	t.Helper()
	during(spell)
	g.w.until(t, "a call fails as "+string(reason), func() bool { return g.w.sum().Failures[reason] > 0 })
}

var faults = []fault{
	{name: "SCRIPT FLUSH every 100 ms", exact: true, do: func(t *testing.T, g *ground) {
		for range 7 {
			require.Equal(t, "OK", g.server.CLI(t, "SCRIPT", "FLUSH"))
			during(100 * time.Millisecond)
		}
	}},
	{name: "REPLICAOF", reason: lease.ReasonReadOnly, exact: true, do: func(t *testing.T, g *ground) {
		require.Equal(t, "OK", g.server.CLI(t, "REPLICAOF", "127.0.0.1", "1"))
		g.hold(t, lease.ReasonReadOnly)
		require.Equal(t, "OK", g.server.CLI(t, "REPLICAOF", "NO", "ONE"))
	}},
	{name: "OOM", reason: lease.ReasonOOM, exact: true, do: func(t *testing.T, g *ground) {
		require.Equal(t, "OK", g.server.CLI(t, "CONFIG", "SET", "maxmemory", "1"))
		g.hold(t, lease.ReasonOOM)
		require.Equal(t, "OK", g.server.CLI(t, "CONFIG", "SET", "maxmemory", "0"))
	}},
	{name: "BUSY", reason: lease.ReasonBusy, do: func(t *testing.T, g *ground) {
		done := make(chan error, 1)
		go func() {
			slow := redis.NewClient(&redis.Options{Addr: g.server.Addr(), ReadTimeout: patience, MaxRetries: -1})
			defer slow.Close()
			done <- slow.Eval(context.Background(), "while true do end", nil).Err()
		}()
		g.w.until(t, "busy", func() bool { return strings.HasPrefix(g.server.CLI(t, "PING"), "BUSY") })
		g.hold(t, lease.ReasonBusy)
		require.Equal(t, "OK", g.server.CLI(t, "SCRIPT", "KILL"))
		require.Error(t, <-done)
	}},
	{name: "LOADING", reason: lease.ReasonLoading, do: func(t *testing.T, g *ground) {
		require.Equal(t, "OK", g.server.CLI(t, "DEBUG", "POPULATE", "1000", "filler", "100"))
		require.Equal(t, "OK", g.server.CLI(t, "CONFIG", "SET", "key-load-delay", "700"))
		slow := redis.NewClient(&redis.Options{Addr: g.server.Addr(), ReadTimeout: patience, MaxRetries: -1})
		defer slow.Close()
		for begin := time.Now(); time.Since(begin) < patience; { // until a call has run into it
			require.NoError(t, slow.Do(t.Context(), "DEBUG", "RELOAD").Err())
			if g.w.sum().Failures[lease.ReasonLoading] > 0 {
				break
			}
		}
		require.Equal(t, "OK", g.server.CLI(t, "CONFIG", "SET", "key-load-delay", "0"))
	}},
	{name: "WRONGTYPE", reason: lease.ReasonWrongType, exact: true, once: true, do: func(t *testing.T, g *ground) {
		rdb := g.server.Client(t)
		var keys []string
		for _, tenant := range g.w.tenants {
			keys = append(keys, g.w.store.RedisKey(lease.Key{Tenant: tenant, Class: "default"}))
		}
		g.w.until(t, "all buckets in use", func() bool {
			return rdb.Exists(t.Context(), keys...).Val() == int64(len(keys))
		})
		swap := func(ops func(pipe redis.Pipeliner, key string)) {
			_, err := rdb.TxPipelined(t.Context(), func(pipe redis.Pipeliner) error {
				for _, k := range keys {
					ops(pipe, k)
				}
				return nil
			})
			require.NoError(t, err)
		}
		swap(func(pipe redis.Pipeliner, k string) {
			pipe.Rename(t.Context(), k, k+"-aside")
			pipe.Set(t.Context(), k, "something else", 0)
		})
		g.hold(t, lease.ReasonWrongType)
		assert.Zero(t, g.w.sum().DegradedFor, "what is wrong with a bucket is no outage")
		swap(func(pipe redis.Pipeliner, k string) { pipe.Rename(t.Context(), k+"-aside", k) })
	}},
	{name: "NOAUTH", reason: lease.ReasonOther, do: func(t *testing.T, g *ground) {
		require.Equal(t, "OK", g.server.CLI(t, "CONFIG", "SET", "requirepass", "secret"))
		g.proxy.CloseAll()
		g.hold(t, lease.ReasonOther)
		require.Equal(t, "OK", g.server.CLI(t, "-a", "secret", "--no-auth-warning", "CONFIG", "SET", "requirepass", ""))
	}},
	{name: "SIGSTOP", reason: lease.ReasonTimeout, do: func(t *testing.T, g *ground) {
		g.server.Pause()
		g.hold(t, lease.ReasonTimeout)
		g.server.Resume()
	}},
	{name: "kill -9, data kept", reason: lease.ReasonRefused, do: func(t *testing.T, g *ground) {
		g.server.Stop()
		g.hold(t, lease.ReasonRefused)
		g.server.Restart()
	}},
	{name: "kill -9, data gone", reason: lease.ReasonRefused, losses: 1, do: func(t *testing.T, g *ground) {
		require.Equal(t, "OK", g.server.CLI(t, "FLUSHALL"))
		g.server.Stop()
		g.hold(t, lease.ReasonRefused)
		g.server.Restart()
	}},
	{name: "replies after the timeout", reason: lease.ReasonTimeout, do: func(t *testing.T, g *ground) {
		g.proxy.DelayReplies(3 * storeTimeout)
		g.hold(t, lease.ReasonTimeout)
		g.proxy.DelayReplies(0)
	}},
	{name: "replies that never come", reason: lease.ReasonTimeout, do: func(t *testing.T, g *ground) {
		g.proxy.DropReplies(true)
		g.hold(t, lease.ReasonTimeout)
		g.proxy.DropReplies(false)
		g.proxy.CloseAll() // what was cut in the middle is of no use
	}},
	{name: "drops at random bytes", do: func(_ *testing.T, g *ground) {
		for begin := time.Now(); time.Since(begin) < spell; during(10 * time.Millisecond) {
			g.proxy.CutAfter(rand.Int64N(2000))
		}
		g.proxy.CutAfter(faultproxy.Never)
	}},
	{name: "no connection", reason: lease.ReasonRefused, do: func(t *testing.T, g *ground) {
		g.proxy.Refuse(true)
		g.proxy.CloseAll()
		g.hold(t, lease.ReasonRefused)
		g.proxy.Refuse(false)
	}},
}

func newGround(t *testing.T) *ground {
	t.Helper()
	server := redistest.Start(t,
		redistest.WithConfig("busy-reply-threshold", "1"), redistest.WithConfig("enable-debug-command", "yes"),
		redistest.WithConfig("loading-process-events-interval-bytes", "1024"),
		redistest.WithConfig("appendonly", "yes"), redistest.WithConfig("appendfsync", "always"))
	return &ground{server: server, proxy: faultproxy.New(t, server.Addr())}
}

// begin puts a new world on g.
func (g *ground) begin(t *testing.T, prefix string, p pace) {
	t.Helper()
	g.w = start(t, prefix, p, g.server.Client(t), func() redis.UniversalClient {
		rdb := redis.NewClient(&redis.Options{Addr: g.proxy.Addr(), ContextTimeoutEnabled: true})
		t.Cleanup(func() { _ = rdb.Close() })
		return rdb
	})
}

// TestFaults stages each fault of a single server under load.
func TestFaults(t *testing.T) {
	g := newGround(t)
	for _, f := range faults {
		t.Run(f.name, func(t *testing.T) {
			p := hasty
			if f.exact {
				p = calm
			}
			g.begin(t, f.name, p)
			f.do(t, g)
			g.w.recovered(t)
			s := g.w.sum()
			if f.reason != "" {
				assert.NotZero(t, s.Failures[f.reason], "%v", nonzero(s.Failures))
			}
			if f.exact && f.reason == "" {
				assert.Zero(t, s.AllowedFallback+s.RefusedFallback, "%v", nonzero(s.Failures))
			}
			g.w.check(t, f.losses, f.exact)
		})
	}
}
