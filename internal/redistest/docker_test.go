//go:build container

package redistest

import (
	"context"
	"os"
	"os/exec"
	"testing"

	"github.com/leaselimit/leaselimit/internal/childproc"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func dockerEngine(t *testing.T) *docker {
	t.Helper()
	if os.Getenv("LEASELIMIT_REDIS_IMAGE") == "" {
		t.Fatal("LEASELIMIT_REDIS_IMAGE names no image to test the Docker way with")
	}
	e, err := findDocker()
	require.NoError(t, err)
	return e.(*docker)
}

// TestDocker is built where Docker is (make container), with an image named by LEASELIMIT_REDIS_IMAGE: elsewhere the programs
// on PATH are what the suite runs on.
func TestDocker(t *testing.T) {
	t.Parallel()
	d := dockerEngine(t)

	s := Start(t, withEngine(d), WithTLS(), WithConfig("requirepass", "secret"), WithConfig("appendonly", "yes"),
		WithConfig("appendfsync", "always"))
	require.NoError(t, s.Client(t, s.OverTLS).Ping(t.Context()).Err())
	assert.Equal(t, "OK", s.CLI(t, "SET", "k", "v"))
	s.Pause()
	_, err := ask(t.Context(), s.Addr(), "secret", "PING")
	require.ErrorContains(t, err, "timeout")
	s.Resume()
	require.NoError(t, s.Client(t).Ping(t.Context()).Err())
	s.Pause()
	s.Restart()
	assert.Equal(t, "v", s.CLI(t, "GET", "k"), "the folder outlives the container")

	th := &thief{engine: d, t: t, times: 1}
	s = Start(t, withEngine(th))
	assert.Len(t, th.took, 1)
	assert.NotContains(t, th.took, s.Addr())

	c := StartCluster(t, 3, 0, withEngine(d))
	require.NoError(t, c.Client(t).Set(t.Context(), "k", "v", 0).Err())
	assert.Equal(t, "v", c.Master(t, "k").CLI(t, "GET", "k"))
}

// TestDockerReaper ends the reaper's input, as the death of this process would.
func TestDockerReaper(t *testing.T) {
	t.Parallel()
	d := dockerEngine(t)
	s := Start(t, withEngine(d))
	require.NoError(t, d.lifeline.Close())
	diesSoon(t, s.Addr())
	ctx, cancel := context.WithTimeout(t.Context(), killTimeout)
	defer cancel()
	require.NoError(t, childproc.Poll(ctx, func() (bool, error) {
		out, err := exec.CommandContext(ctx, d.path, "ps", "--all", "--quiet", "--filter", "label="+d.label).Output()
		return len(out) == 0, err
	}))
}
