package main

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/creack/pty"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/leaselimit/leaselimit/internal/redistest"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// asProgram lets the test binary be the program: a real process, with the coverage and the race detector of the tests.
const asProgram = "LEASELIMIT_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
	}
	redistest.Main(m)
}

func process(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), self, args...)
	cmd.Env = append(os.Environ(), asProgram+"=1", "TERM=xterm", "NO_COLOR=")
	return cmd
}

func status(t *testing.T, err error) int {
	t.Helper()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return exit.ExitCode()
	}
	require.NoError(t, err)
	return 0
}

func TestExitStatuses(t *testing.T) {
	for _, tt := range []struct {
		args []string
		want int
	}{
		{nil, 2},
		{[]string{"help"}, 0},
		{[]string{"demo", "-h"}, 0},
		{[]string{"demo", "-traffic", "jam"}, 2},
		{[]string{"demo", "-duration", "50ms"}, 0},
		{[]string{"inspect"}, 2},
		{[]string{"inspect", "-redis", "127.0.0.1:1", "t"}, 1},
		{[]string{"reset", "-redis", "127.0.0.1:1", "t"}, 1},
		{[]string{"serve"}, 2},
		{[]string{"serve", "-config", "no-such-file"}, 1},
		{[]string{"tune", "-capacity", "0"}, 2},
		{[]string{"tune", "-redis", "127.0.0.1:1"}, 1},
		{[]string{"tune", "-capacity", "10", "-refill", "10", "-calls", "100", "-chart", ""}, 0},
		{[]string{"tune-in"}, 2},
	} {
		t.Run(strings.Join(tt.args, " "), func(t *testing.T) {
			t.Parallel()
			require.Equal(t, tt.want, status(t, process(t, tt.args...).Run()))
		})
	}
}

func TestInspectAndReset(t *testing.T) {
	prefix := redistest.Prefix(t)
	for _, tt := range []struct{ name, want string }{
		{"inspect", "no record: the bucket is full"},
		{"reset", "no record, the bucket was full."},
	} {
		out, err := process(t, tt.name, "-redis", redistest.Addr(t), "-prefix", prefix, "acme").Output()
		require.NoError(t, err)
		require.Contains(t, string(out), tt.want)
	}
}

func TestInterrupt(t *testing.T) {
	t.Parallel()
	cmd := process(t, "demo", "-duration", "5m", "-refill", "20")
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	lines := bufio.NewScanner(stdout)
	var text strings.Builder
	for lines.Scan() {
		text.WriteString(lines.Text() + "\n")
		if strings.Contains(lines.Text(), "offered") && !strings.Contains(lines.Text(), "admitted, with") {
			break // a line of the run that is on
		}
	}
	require.NoError(t, cmd.Process.Signal(syscall.SIGINT))
	for lines.Scan() {
		text.WriteString(lines.Text() + "\n")
	}
	require.Equal(t, 0, status(t, cmd.Wait()))
	require.Contains(t, text.String(), "Interrupted after")
	require.Contains(t, text.String(), "the bound held")
}

// An orchestrator ends the process with SIGTERM.
func TestServe(t *testing.T) {
	t.Parallel()
	config := filepath.Join(t.TempDir(), "config.json")
	require.NoError(t, os.WriteFile(config, []byte(`{"classes": {"default": {"capacity": 1, "refill": 0, "store_timeout": "10s"}},
		"rules": [{"entries": [{"key": "tenant"}], "tenant": "tenant", "class": "default"}]}`), 0o600))
	cmd := process(t, "serve", "-config", config, "-listen", "127.0.0.1:0", "-http", "127.0.0.1:0")
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	lines := bufio.NewScanner(stdout)
	require.True(t, lines.Scan())
	addr, found := strings.CutPrefix(lines.Text(), "rate limit service on ")
	require.True(t, found, lines.Text())
	require.True(t, lines.Scan())
	require.Contains(t, lines.Text(), "metrics and health on 127.0.0.1:")

	cc, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	defer cc.Close()
	for _, want := range []rls.RateLimitResponse_Code{rls.RateLimitResponse_OK, rls.RateLimitResponse_OVER_LIMIT} {
		answer, err := rls.NewRateLimitServiceClient(cc).ShouldRateLimit(t.Context(), &rls.RateLimitRequest{
			Domain: "edge",
			Descriptors: []*ratelimit.RateLimitDescriptor{{
				Entries: []*ratelimit.RateLimitDescriptor_Entry{{Key: "tenant", Value: "acme"}},
			}},
		})
		require.NoError(t, err)
		require.Equal(t, want, answer.GetOverallCode())
	}
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	require.False(t, lines.Scan())
	require.Equal(t, 0, status(t, cmd.Wait()))
}

// onTerminal is all that a run writes on a terminal, and what of it goes to a standard output that is none if there is one.
func onTerminal(t *testing.T, stdout io.Writer, env []string, args ...string) string {
	t.Helper()
	cmd := process(t, args...)
	cmd.Env = append(cmd.Env, env...)
	screen, tty, err := pty.Open()
	require.NoError(t, err)
	defer screen.Close()
	require.NoError(t, pty.Setsize(screen, &pty.Winsize{Rows: 30, Cols: 100}))
	cmd.Stdout, cmd.Stderr = tty, tty
	if stdout != nil {
		cmd.Stdout = stdout
	}
	require.NoError(t, cmd.Start())
	require.NoError(t, tty.Close())
	var text bytes.Buffer
	_, _ = text.ReadFrom(screen) // it ends with an error when the last process has let go of the terminal
	require.NoError(t, cmd.Wait())
	return text.String()
}

func TestTerminal(t *testing.T) {
	t.Parallel()
	text := onTerminal(t, nil, nil, "demo", "-duration", "600ms", "-replicas", "2")
	require.Contains(t, text, "replica    offered   admitted    refused  store calls     held")
	require.Contains(t, text, "\x1b[8A\x1b[J", "the table is drawn in place")
	require.Contains(t, text, "100% ████████████████████████████████████████ 0.6s of 600ms")
	require.Contains(t, text, "\x1b[32mthe bound held\x1b[0m")
	require.NotContains(t, text, "held \x1b", "no lines besides")
}

// In a process that is no test, virtual time has to be had, too.
func TestTune(t *testing.T) {
	t.Parallel()
	chart := filepath.Join(t.TempDir(), "tune.svg")
	text := onTerminal(t, nil, nil, "tune", "-capacity", "100", "-refill", "100", "-calls", "200", "-chart", chart)
	require.Regexp(t, `\d+% █*░* \d+ of \d+ runs`, text)
	require.Contains(t, text, "\x1b[1A\x1b[J", "the bar is drawn in place")
	require.Contains(t, text, "*     10%    25%")
	require.Contains(t, text, "leaselimit.Config{")
	require.NotContains(t, text, "PASS", "the test that bubbles belong to is nobody's business")
	picture, err := os.ReadFile(chart)
	require.NoError(t, err)
	require.Contains(t, string(picture), "lease share")
}

func TestNoColor(t *testing.T) {
	t.Parallel()
	text := onTerminal(t, nil, []string{"NO_COLOR=1"}, "demo", "-duration", "300ms")
	require.NotContains(t, text, "m\x1b[", "no colours")
	require.NotContains(t, text, "\x1b[1m")
	require.NotContains(t, text, "\x1b[32m")
	require.Contains(t, text, "\x1b[J")
	require.Contains(t, text, "the bound held")
}

func TestDumbTerminal(t *testing.T) {
	t.Parallel()
	text := onTerminal(t, nil, []string{"TERM=dumb"}, "demo", "-duration", "300ms")
	require.NotContains(t, text, "\x1b")
	require.Contains(t, text, "the bound held")
}

// With -json the table is beside the object, not in it.
func TestTerminalBesideJSON(t *testing.T) {
	t.Parallel()
	var stdout bytes.Buffer
	text := onTerminal(t, &stdout, nil, "demo", "-duration", "300ms", "-json")
	require.Contains(t, text, "store calls")
	require.True(t, strings.HasPrefix(stdout.String(), "{\n"))
	require.True(t, strings.HasSuffix(stdout.String(), "}\n"))
}

func TestDemoServesAPage(t *testing.T) {
	t.Parallel()
	cmd := process(t, "demo", "-duration", "5m", "-refill", "20", "-replicas", "9", "-http", "127.0.0.1:0")
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	lines := bufio.NewScanner(stdout)
	address := ""
	for lines.Scan() {
		if after, found := strings.CutPrefix(lines.Text(), "chart on "); found {
			address = after
		}
		if strings.Contains(lines.Text(), "offered") && address != "" {
			break // a line of the run that is on
		}
	}
	get := func(path string) (string, http.Header) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, strings.TrimSuffix(address, "/")+path, nil)
		require.NoError(t, err)
		res, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		defer res.Body.Close()
		require.Equal(t, http.StatusOK, res.StatusCode)
		text, err := io.ReadAll(res.Body)
		require.NoError(t, err)
		return string(text), res.Header
	}
	page, header := get("/")
	require.Contains(t, page, `<polygon class="s0" points="`)
	require.Contains(t, page, "replicas 8 to 9", "there are eight colours")
	require.Contains(t, header.Get("Content-Security-Policy"), "default-src 'none'")
	for _, outside := range []string{"http:", "https:", "src=", "<link", "<script"} {
		require.NotContains(t, page, outside)
	}
	debug, _ := get("/debug/leaselimit")
	require.Equal(t, 9, strings.Count(debug, "<section>"))
	metrics, _ := get("/metrics")
	require.Contains(t, metrics, `leaselimit_decisions_total{class="default",outcome="allowed",replica="9",source="lease"}`)

	require.NoError(t, cmd.Process.Signal(syscall.SIGINT))
	var text strings.Builder
	for lines.Scan() {
		text.WriteString(lines.Text() + "\n")
	}
	require.Equal(t, 0, status(t, cmd.Wait()))
	require.Contains(t, text.String(), "the bound held")
}

func TestDemoCannotListen(t *testing.T) {
	t.Parallel()
	require.Equal(t, 1, status(t, process(t, "demo", "-http", "256.0.0.1:http").Run()))
}
