package redistest

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/leaselimit/leaselimit/internal/childproc"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// thief takes a server's port just before the server can.
type thief struct {
	engine
	t     *testing.T
	times int
	took  []string
}

func (th *thief) serve(name, dir, conf string, args []string) *exec.Cmd {
	if len(th.took) < th.times {
		text, err := os.ReadFile(dir + "/" + conf)
		require.NoError(th.t, err)
		_, rest, _ := strings.Cut(string(text), "\nport ")
		port, _, _ := strings.Cut(rest, "\n")
		// The pool has just looked whether the port is free, and a child that a parallel test forks meanwhile holds the socket
		// for as long as it is not yet another program.
		var l net.Listener
		require.NoError(th.t, childproc.Poll(th.t.Context(), func() (bool, error) {
			var err error
			l, err = net.Listen("tcp", net.JoinHostPort(host, port))
			return err == nil, err
		}))
		th.t.Cleanup(func() { _ = l.Close() })
		th.took = append(th.took, l.Addr().String())
	}
	return th.engine.serve(name, dir, conf, args)
}

func TestPortInUseIsTriedElsewhere(t *testing.T) {
	t.Parallel()
	real, err := findEngine()
	require.NoError(t, err)

	th := &thief{engine: real, t: t, times: 2}
	s := Start(t, withEngine(th))
	assert.Len(t, th.took, 2)
	assert.NotContains(t, th.took, s.Addr())
	assert.Equal(t, "PONG", s.CLI(t, "PING"))

	th = &thief{engine: real, t: t, times: portAttempts}
	_, err = startFor(t, newSpec([]Option{withEngine(th)}))
	require.ErrorIs(t, err, errPortInUse, "it gives up in the end")
}

func TestFindOrder(t *testing.T) {
	t.Parallel()
	inDocker := &docker{path: "docker"}
	path := func(names ...string) func(string) (string, error) {
		return func(name string) (string, error) {
			for _, n := range names {
				if n == name {
					return "/bin/" + n, nil
				}
			}
			return "", &exec.Error{Name: name, Err: exec.ErrNotFound}
		}
	}
	both := native{"/bin/redis-server", "/bin/redis-cli"}
	noDocker := errors.New("docker info: no daemon")
	for _, tc := range []struct {
		name   string
		path   func(string) (string, error)
		docker error
		want   engine
	}{
		{"PATH wins", path("redis-server", "redis-cli"), nil, both},
		{"without Docker", path("redis-server", "redis-cli"), noDocker, both},
		{"no redis-cli", path("redis-server"), nil, inDocker},
		{"no redis-server", path("redis-cli"), nil, inDocker},
		{"nothing", path(), noDocker, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			got, err := find(tc.path, func() (engine, error) {
				if tc.docker != nil {
					return nil, tc.docker
				}
				return inDocker, nil
			})
			assert.Equal(t, tc.want, got)
			if tc.want != nil {
				require.NoError(t, err)
				return
			}
			for _, part := range []string{"apt-get install redis-server", "Docker", dockerImage(), "REDIS_ADDR", "no daemon"} {
				require.ErrorContains(t, err, part)
			}
		})
	}
}
