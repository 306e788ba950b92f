package redisbucket

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/leaselimit/leaselimit/internal/faultproxy"
	"github.com/leaselimit/leaselimit/internal/redistest"
	"github.com/leaselimit/leaselimit/lease"
	"github.com/leaselimit/leaselimit/quota"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const (
	wait = 30 * time.Second // for what must come
	tick = 5 * time.Millisecond

	readTimeout = 100 * time.Millisecond // of the client; the network takes longer, or for ever
)

// distant is a server behind a network that misbehaves, and a client of it with the retries of the defaults and idle
// connections: a connection that had to be made first would fail in its own handshake, and nothing would be proved.
type distant struct {
	*faultproxy.Proxy

	near *redis.Client // past the proxy
	far  *redis.Client
}

func newDistant(t *testing.T) *distant {
	t.Helper()
	srv := redistest.Start(t)
	d := &distant{Proxy: faultproxy.New(t, srv.Addr()), near: srv.Client(t)}
	d.far = redis.NewClient(&redis.Options{Addr: d.Addr(), ReadTimeout: readTimeout, PoolSize: 16})
	t.Cleanup(func() { _ = d.far.Close() })
	warm(t, d.far.WithTimeout(wait), 16) // of the same pool
	return d
}

// warm fills the pool with n connections whose handshake is done. MinIdleConns does not do that: it leaves the handshake to
// the first command.
func warm(t *testing.T, rdb *redis.Client, n int) {
	t.Helper()
	conns := make([]*redis.Conn, n)
	for i := range conns {
		conns[i] = rdb.Conn()
		require.NoError(t, conns[i].Ping(t.Context()).Err())
	}
	for _, c := range conns {
		require.NoError(t, c.Close())
	}
	require.EqualValues(t, n, rdb.PoolStats().IdleConns)
}

// executed is how many scripts the server has executed, once it has executed all that it was sent and at least n.
func (d *distant) executed(t *testing.T, n int) int {
	t.Helper()
	d.DelayReplies(0)
	d.DropReplies(false)
	var done int
	require.Eventually(t, func() bool {
		sent := d.Commands("EVALSHA") + d.Commands("EVAL")
		done = calls(d.near.Info(t.Context(), "commandstats").Val(), "eval", "evalsha")
		return done >= sent && done >= n
	}, wait, tick)
	return done
}

// calls is how often commands of these names were executed, by what INFO commandstats says.
func calls(stats string, names ...string) (sum int) {
	for line := range strings.Lines(stats) {
		for _, name := range names {
			if rest, ok := strings.CutPrefix(line, "cmdstat_"+name+":calls="); ok {
				number, _, _ := strings.Cut(rest, ",")
				n, _ := strconv.Atoi(number)
				sum += n
			}
		}
	}
	return sum
}

func TestRF1_ADrawIsExecutedOnce(t *testing.T) {
	lim := lease.Terms{Limit: quota.Limit{Capacity: 100}, Share: 50, TTL: time.Minute}
	key := lease.Key{Tenant: "acme", Class: "default"}
	ctx := context.Background()
	for name, fault := range map[string]func(*distant){
		"late replies": func(d *distant) { d.DelayReplies(4 * readTimeout) },
		"lost replies": func(d *distant) { d.DropReplies(true) },
	} {
		t.Run(name, func(t *testing.T) {
			d := newDistant(t)
			s := New(d.far)
			for _, sc := range []script{acquireScript, takeScript, returnScript} {
				require.NoError(t, d.near.ScriptLoad(ctx, sc.text).Err())
			}
			level := func() string { return d.near.HGet(ctx, s.RedisKey(key), "tokens").Val() }

			fault(d)
			_, err := s.Acquire(ctx, lease.AcquireRequest{Key: key, Terms: lim, Min: 10, Need: 10})
			assert.Equal(t, lease.ReasonTimeout, lease.ReasonOf(err), "%v", err)
			assert.Equal(t, 1, d.executed(t, 1), "acquire")
			assert.Equal(t, "90", level())

			fault(d)
			_, err = s.Take(ctx, []lease.Charge{{Key: key, Terms: lim, Cost: 10}})
			assert.Equal(t, lease.ReasonTimeout, lease.ReasonOf(err), "%v", err)
			assert.Equal(t, 2, d.executed(t, 2), "take")
			assert.Equal(t, "80", level())

			fault(d)
			err = s.Return(ctx, []lease.Return{{Key: key, Terms: lim, Waiters: 5}})
			assert.Equal(t, lease.ReasonTimeout, lease.ReasonOf(err), "%v", err)
			assert.Equal(t, 3, d.executed(t, 3), "return")
			assert.Equal(t, "85", level())
			assert.Zero(t, d.Commands("EVAL"))
		})
		t.Run(name+", plain EvalSha", func(t *testing.T) {
			d := newDistant(t)
			sha := d.near.ScriptLoad(ctx, acquireScript.text).Val()
			fault(d)
			name := New(d.far).RedisKey(key)
			args := acquireArgs(lease.AcquireRequest{Key: key, Terms: lim, Min: 10, Need: 10})
			assert.Error(t, d.far.EvalSha(ctx, sha, []string{name}, args...).Err())
			assert.Equal(t, 4, d.executed(t, 4), "what a client does that is not told otherwise")
			assert.Equal(t, "60", d.near.HGet(ctx, name, "tokens").Val())
		})
	}
}
