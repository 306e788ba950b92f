package redistest

import (
	"context"
	"errors"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/leaselimit/leaselimit/internal/childproc"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { Main(m) }

func TestSingle(t *testing.T) {
	t.Parallel()
	s := Start(t, WithConfig("maxmemory", "32mb"), WithConfig("maxmemory-policy", "allkeys-lru"))
	c := s.Client(t)
	require.NoError(t, c.Set(t.Context(), "k", "v", 0).Err())
	assert.Equal(t, "v", s.CLI(t, "GET", "k"))
	assert.Equal(t, "maxmemory-policy\nallkeys-lru", s.CLI(t, "CONFIG", "GET", "maxmemory-policy"))
	assert.Equal(t, "save\n", s.CLI(t, "CONFIG", "GET", "save"), "nothing is persisted")
	assert.Contains(t, s.CLI(t, "NOSUCH"), "ERR unknown command", "an error reply is output")
}

func TestRestartKeepsThePlace(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		opts []Option
		want string
	}{
		{"without persistence it comes back empty", nil, ""},
		{"with persistence it comes back full", []Option{
			WithConfig("appendonly", "yes"), WithConfig("appendfsync", "always"),
		}, "v"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s := Start(t, tc.opts...)
			addr := s.Addr()
			require.Equal(t, "OK", s.CLI(t, "SET", "k", "v"))

			s.Stop()
			s.Stop() // nothing to do
			_, err := net.DialTimeout("tcp", addr, time.Second)
			require.ErrorContains(t, err, "refused", "a stopped server is gone when Stop returns")

			s.Restart()
			assert.Equal(t, addr, s.Addr())
			assert.Equal(t, tc.want, s.CLI(t, "GET", "k"))

			before := s.CLI(t, "INFO", "server")
			s.Restart() // of a server that runs
			assert.NotEqual(t, runID(t, before), runID(t, s.CLI(t, "INFO", "server")))
		})
	}
}

func runID(t *testing.T, info string) string {
	t.Helper()
	for line := range strings.Lines(info) {
		if id, ok := strings.CutPrefix(line, "run_id:"); ok {
			return id
		}
	}
	t.Fatal("no run_id in", info)
	return ""
}

func TestPause(t *testing.T) {
	t.Parallel()
	s := Start(t)
	c := s.Client(t, func(o *redis.Options) {
		o.ReadTimeout, o.MaxRetries, o.ContextTimeoutEnabled = time.Minute, -1, true
	})
	require.NoError(t, c.Ping(t.Context()).Err())

	s.Pause()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second) // long enough for it to be sent on a busy machine
	defer cancel()
	var timeout net.Error
	require.ErrorAs(t, c.Incr(ctx, "k").Err(), &timeout)
	require.True(t, timeout.Timeout())
	conn, err := net.Dial("tcp", s.Addr())
	require.NoError(t, err, "the kernel accepts for a paused server")
	require.NoError(t, conn.Close())

	s.Resume()
	require.NoError(t, childproc.Poll(t.Context(), func() (bool, error) {
		n, err := c.Get(t.Context(), "k").Int()
		return n == 1, err
	}), "what arrived meanwhile is carried out")

	s.Pause()
	s.Stop() // a paused server can be killed
	s.Restart()
	assert.Equal(t, "PONG", s.CLI(t, "PING"))
	s.Pause() // and so it is at the end of the test
}

func TestPassword(t *testing.T) {
	t.Parallel()
	s := Start(t, WithConfig("requirepass", "secret"))
	require.NoError(t, s.Client(t).Ping(t.Context()).Err())
	assert.Equal(t, "PONG", s.CLI(t, "PING"))
	stranger := s.Client(t, func(o *redis.Options) { o.Password = "" })
	require.ErrorContains(t, stranger.Ping(t.Context()).Err(), "NOAUTH")
}

func TestStartReportsTheLog(t *testing.T) {
	t.Parallel()
	_, err := startFor(t, newSpec([]Option{WithConfig("no-such-setting", "1")}))
	require.ErrorContains(t, err, "no-such-setting", "the server's own words are in the message")
}

func TestSharedServer(t *testing.T) {
	t.Parallel()
	addr := Addr(t)
	assert.Equal(t, addr, Addr(t))
	c := Client(t)
	var mine, other string
	t.Run("prefix", func(t *testing.T) {
		mine, other = Prefix(t), "other-"+Prefix(t)
		assert.NotEqual(t, mine, Prefix(t))
		for _, k := range []string{mine, mine + ":{a}:default", other} {
			require.NoError(t, c.Set(t.Context(), k, 1, time.Minute).Err())
		}
	})
	n, err := c.Exists(t.Context(), mine, mine+":{a}:default").Result()
	require.NoError(t, err)
	assert.Zero(t, n, "the keys go with the test")
	n, err = c.Exists(t.Context(), other).Result()
	require.NoError(t, err)
	assert.EqualValues(t, 1, n, "other keys stay")
}

func TestCluster(t *testing.T) {
	t.Parallel()
	c := StartCluster(t, 3, 1)
	require.Len(t, c.Addrs(), 6)
	cc := c.Client(t)
	for _, k := range []string{"a", "b", "c", "d", "e"} {
		require.NoError(t, cc.Set(t.Context(), k, k, 0).Err())
	}
	masters := map[*Server]bool{}
	for _, k := range []string{"a", "b", "c", "d", "e"} {
		m := c.Master(t, k)
		assert.Equal(t, k, m.CLI(t, "GET", k), "the master has the key")
		masters[m] = true
	}
	assert.Greater(t, len(masters), 1)

	old := c.Master(t, "a")
	require.Equal(t, "1", old.CLI(t, "WAIT", "1", "5000"), "the replica has it too")
	old.Stop()
	promoted := c.Master(t, "a")
	require.NotEqual(t, old.Addr(), promoted.Addr())
	assert.Equal(t, "a", promoted.CLI(t, "GET", "a"))
	old.Restart()
	c.WaitHealthy(t)
	assert.Equal(t, promoted, c.Master(t, "a"))
}

func TestSentinelFailover(t *testing.T) {
	t.Parallel()
	g := StartSentinel(t)
	require.Len(t, g.Addrs(), 3)
	c := g.Client(t)
	require.NoError(t, c.Set(t.Context(), "k", "v", 0).Err())

	old := g.Primary()
	require.Equal(t, "1", old.CLI(t, "EXISTS", "k"))
	old.Stop()
	next := g.WaitFailover(t, old)
	require.NotEqual(t, old, next)
	assert.Equal(t, next, g.Primary())
	require.NoError(t, childproc.Poll(t.Context(), func() (bool, error) {
		err := c.Set(t.Context(), "k", "w", 0).Err()
		return err == nil, err
	}), "the client follows")
	assert.Equal(t, "w", next.CLI(t, "GET", "k"))
}

func TestMainReportsLeaks(t *testing.T) {
	// Not parallel: goleak sees the goroutines of all tests.
	current := goleak.IgnoreCurrent()
	assert.Equal(t, 0, runMain(run(func() int { return 0 }), []goleak.Option{current}))
	assert.Equal(t, 3, runMain(run(func() int { return 3 }), []goleak.Option{current}))

	stderr := os.Stderr
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	require.NoError(t, err)
	defer null.Close()
	os.Stderr = null
	defer func() { os.Stderr = stderr }()
	stop := make(chan struct{})
	defer close(stop)
	assert.Equal(t, 1, runMain(run(func() int { go func() { <-stop }(); return 0 }), []goleak.Option{current}))
}

func TestIgnoreServers(t *testing.T) {
	current := goleak.IgnoreCurrent()
	Start(t)
	Addr(t)
	require.Error(t, goleak.Find(current, goleak.Cleanup(func(int) {})))
	require.NoError(t, goleak.Find(current, IgnoreServers()))
}

// diesSoon waits until nobody listens on addr.
func diesSoon(t *testing.T, addr string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), killTimeout)
	defer cancel()
	require.NoError(t, childproc.Poll(ctx, func() (bool, error) {
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			return true, nil //nolint:nilerr // that nobody answers is what is waited for
		}
		return false, errors.Join(errors.New("still listens"), conn.Close())
	}))
}

type run func() int

func (r run) Run() int { return r() }
