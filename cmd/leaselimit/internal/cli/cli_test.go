package cli

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"testing"

	"github.com/stretchr/testify/require"
)

// run runs a program whose command "do" has a flag and gives err. It tells what the command saw.
func run(t *testing.T, err error, args ...string) (status int, stdout, stderr string, flagged bool, rest []string) {
	t.Helper()
	p := Program{Name: "prog", Commands: []Command{{
		Name: "do", Args: "THING", Short: "does it", Long: "Does it well.",
		Setup: func(flags *flag.FlagSet) func(context.Context, []string, Streams) error {
			well := flags.Bool("well", false, "do it well")
			return func(_ context.Context, args []string, _ Streams) error {
				flagged, rest = *well, args
				require.Equal(t, *well, WasSet(flags, "well"))
				return err
			}
		},
	}}}
	var out, errs bytes.Buffer
	status = p.Run(t.Context(), args, Streams{Out: &out, Err: &errs})
	return status, out.String(), errs.String(), flagged, rest
}

func TestFlagsStandAnywhere(t *testing.T) {
	for _, tt := range []struct {
		args    []string
		flagged bool
		rest    []string
	}{
		{[]string{"do"}, false, nil},
		{[]string{"do", "a"}, false, []string{"a"}},
		{[]string{"do", "-well", "a"}, true, []string{"a"}},
		{[]string{"do", "a", "-well"}, true, []string{"a"}},
		{[]string{"do", "a", "-well", "b"}, true, []string{"a", "b"}},
		{[]string{"do", "--", "-well"}, false, []string{"-well"}},
		{[]string{"do", "a", "--", "-well", "b"}, false, []string{"a", "-well", "b"}},
	} {
		status, _, stderr, flagged, rest := run(t, nil, tt.args...)
		require.Equal(t, ExitOK, status, stderr)
		require.Equal(t, tt.flagged, flagged, tt.args)
		require.Equal(t, tt.rest, rest, tt.args)
	}
}

func TestStatuses(t *testing.T) {
	status, stdout, stderr, _, _ := run(t, errors.New("it broke"), "do")
	require.Equal(t, ExitFailed, status)
	require.Equal(t, "prog do: it broke\n", stderr)
	require.Empty(t, stdout)

	status, _, stderr, _, _ = run(t, Usagef("what %d?", 2), "do")
	require.Equal(t, ExitUsage, status)
	require.Equal(t, "prog do: what 2?\nRun 'prog do -h' for help.\n", stderr)

	status, stdout, stderr, _, _ = run(t, nil, "do", "-badly")
	require.Equal(t, ExitUsage, status)
	require.Contains(t, stderr, "-badly")
	require.Empty(t, stdout)

	status, _, stderr, _, _ = run(t, nil, "undo")
	require.Equal(t, ExitUsage, status)
	require.Contains(t, stderr, `no command "undo"`)

	status, stdout, stderr, _, _ = run(t, nil)
	require.Equal(t, ExitUsage, status)
	require.Contains(t, stderr, "does it")
	require.Empty(t, stdout)
}

func TestHelpIsAResult(t *testing.T) {
	for _, args := range [][]string{{"help"}, {"-h"}, {"--help"}} {
		status, stdout, stderr, _, _ := run(t, nil, args...)
		require.Equal(t, ExitOK, status)
		require.Contains(t, stdout, "does it")
		require.Empty(t, stderr)
	}
	for _, args := range [][]string{{"do", "-h"}, {"do", "x", "-help"}, {"help", "do"}} {
		status, stdout, stderr, _, _ := run(t, nil, args...)
		require.Equal(t, ExitOK, status)
		require.Contains(t, stdout, "Usage: prog do [flags] THING\n\nDoes it well.\n\nFlags:\n  -well\n")
		require.Empty(t, stderr)
	}
}
