package serve

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	envoy "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/leaselimit/leaselimit/cmd/leaselimit/internal/cli"
	"github.com/leaselimit/leaselimit/internal/redistest"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

func TestMain(m *testing.M) { redistest.Main(m) }

const (
	ok   = rls.RateLimitResponse_OK
	over = rls.RateLimitResponse_OVER_LIMIT
)

func write(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "config.yaml")
	require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
	return name
}

func run(ctx context.Context, out cli.Streams, args ...string) int {
	p := cli.Program{Name: "leaselimit", Commands: []cli.Command{Command}}
	return p.Run(ctx, append([]string{"serve"}, args...), out)
}

// gateway is the command at work, and a client of it.
type gateway struct {
	t      *testing.T
	cc     *grpc.ClientConn
	client rls.RateLimitServiceClient
	http   string
	end    context.CancelFunc
	status chan int
	stderr *lockedBuffer
}

type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

func start(t *testing.T, config string, args ...string) *gateway {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	g := &gateway{t: t, end: cancel, status: make(chan int, 1), stderr: &lockedBuffer{}}
	r, w := io.Pipe()
	args = append([]string{"-config", write(t, config), "-listen", "127.0.0.1:0", "-http", "127.0.0.1:0"}, args...)
	go func() {
		status := run(ctx, cli.Streams{Out: w, Err: g.stderr}, args...)
		_ = w.Close()
		g.status <- status
	}()
	var grpcAddr string
	lines := bufio.NewScanner(r)
	for g.http == "" && lines.Scan() {
		if addr, found := strings.CutPrefix(lines.Text(), "rate limit service on "); found {
			grpcAddr = addr
		}
		if addr, found := strings.CutPrefix(lines.Text(), "metrics and health on "); found {
			g.http = "http://" + addr
		}
	}
	require.NotEmpty(t, g.http, "%s", g.stderr)
	var err error
	g.cc, err = grpc.NewClient(grpcAddr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	g.client = rls.NewRateLimitServiceClient(g.cc)
	t.Cleanup(func() {
		_ = g.cc.Close()
		cancel()
		if status, open := <-g.status; open {
			require.Equal(t, cli.ExitOK, status, "%s", g.stderr)
		}
	})
	return g
}

// stopped is the exit status once it has ended.
func (g *gateway) stopped() int {
	status := <-g.status
	close(g.status)
	return status
}

// descriptor is of key, value, key, value.
func descriptor(pairs ...string) *envoy.RateLimitDescriptor {
	d := &envoy.RateLimitDescriptor{}
	for i := 0; i < len(pairs); i += 2 {
		d.Entries = append(d.Entries, &envoy.RateLimitDescriptor_Entry{Key: pairs[i], Value: pairs[i+1]})
	}
	return d
}

func (g *gateway) try(hits uint32, descriptors ...*envoy.RateLimitDescriptor) (*rls.RateLimitResponse, error) {
	return g.client.ShouldRateLimit(g.t.Context(), &rls.RateLimitRequest{Domain: "edge", Descriptors: descriptors, HitsAddend: hits})
}

func (g *gateway) ask(hits uint32, descriptors ...*envoy.RateLimitDescriptor) *rls.RateLimitResponse {
	g.t.Helper()
	answer, err := g.try(hits, descriptors...)
	require.NoError(g.t, err)
	require.Len(g.t, answer.GetStatuses(), len(descriptors))
	return answer
}

// askSlowly asks for a tenant that is new while the store hangs, and returns once the call waits for it.
func (g *gateway) askSlowly(tenant string) (answered chan error) {
	g.t.Helper()
	waited := func() string {
		_, text := g.get("/metrics")
		_, after, _ := strings.Cut(text, "\nleaselimit_waited_total{")
		line, _, _ := strings.Cut(after, "\n")
		return line
	}
	before := waited()
	require.NotEmpty(g.t, before)
	answered = make(chan error, 1)
	go func() {
		_, err := g.try(0, descriptor("tenant", tenant))
		answered <- err
	}()
	require.Eventually(g.t, func() bool { return waited() != before }, time.Minute, 10*time.Millisecond)
	return answered
}

func (g *gateway) get(path string) (status int, body string) {
	g.t.Helper()
	req, err := http.NewRequestWithContext(g.t.Context(), http.MethodGet, g.http+path, nil)
	require.NoError(g.t, err)
	resp, err := http.DefaultClient.Do(req)
	require.NoError(g.t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(g.t, err)
	return resp.StatusCode, string(text)
}

// headersOf are those that Envoy is to add to the response, by name.
func headersOf(answer *rls.RateLimitResponse) map[string]string {
	h := map[string]string{}
	for _, v := range answer.GetResponseHeadersToAdd() {
		h[v.GetKey()] = v.GetValue()
	}
	return h
}

// oneClass is a config of one class, for tenants that descriptors name alone.
func oneClass(class string) string {
	return "classes:\n  default: " + class + "\nrules:\n  - {entries: [{key: tenant}], tenant: tenant, class: default}\n"
}
