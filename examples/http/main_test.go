package main

import (
	"bufio"
	"context"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The program says where it listens, the client is admitted five times and waits for the last two, and an interrupt ends it.
func TestRun(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	r, w := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		err := run(ctx, []string{"-addr", "127.0.0.1:0"}, w)
		_ = w.Close()
		ended <- err
	}()
	var calls []string
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		if strings.Contains(lines.Text(), "RateLimit:") {
			calls = append(calls, lines.Text())
		}
		if len(calls) == 5 {
			interrupt()
		}
	}
	require.NoError(t, <-ended)
	require.Len(t, calls, 5)
	for i, line := range calls {
		assert.Regexp(t, `^  200 OK after [0-9.]+ s, RateLimit: "default";r=[0-2];t=[0-9]+$`, line)
		if i >= 3 {
			assert.NotContains(t, line, "after 0.", "it waited")
		}
	}
}

func TestRunTellsOfWrongFlags(t *testing.T) {
	require.Error(t, run(t.Context(), []string{"-addr", "nowhere:http:1"}, io.Discard))
}
