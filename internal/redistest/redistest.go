package redistest

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// startTimeout bounds the start of one server until it answers, cliTimeout one
// run of redis-cli. Both are generous: they end what is stuck, and a slow
// machine must not meet them.
const (
	startTimeout = 30 * time.Second
	cliTimeout   = 60 * time.Second
)

// Start starts a server for this test alone and returns once it answers. It is
// killed when the test ends.
func Start(tb testing.TB, opts ...Option) *Server {
	tb.Helper()
	s, err := startFor(tb, newSpec(opts))
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

// startFor launches a server that reports to tb and ends with it. It may be
// called from any goroutine: errors are returned, not reported.
func startFor(tb testing.TB, sp spec) (*Server, error) {
	ctx, cancel := context.WithTimeout(tb.Context(), startTimeout)
	defer cancel()
	s, err := launch(ctx, sp)
	if err != nil {
		return nil, err
	}
	s.tb = tb
	tb.Cleanup(s.discard)
	return s, nil
}

// Addr returns the server's host:port. It is the same for the server's whole
// life, across Stop and Restart.
func (s *Server) Addr() string { return s.addr }

// Stop kills the server (SIGKILL) and returns when the process is gone: from
// then on connections are refused. On a stopped server it does nothing; on a
// paused one it works like on any other.
func (s *Server) Stop() {
	s.tb.Helper()
	if err := s.kill(); err != nil {
		s.tb.Fatalf("redistest: stop %s: %v", s.addr, err)
	}
}

// Restart starts the server again, on the same port, in the same folder and
// with the same config file, and returns once it answers. A server that still
// runs is stopped first. Without persistence it comes back empty.
func (s *Server) Restart() {
	s.tb.Helper()
	s.Stop()
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	if err := s.relaunch(ctx); err != nil {
		s.tb.Fatalf("redistest: restart %s: %v", s.addr, err)
	}
}

// Pause freezes the server (SIGSTOP): the kernel goes on accepting connections
// and bytes for it, nothing is answered. What arrives meanwhile is carried out
// after Resume.
func (s *Server) Pause() {
	s.tb.Helper()
	if err := s.send(sigStop); err != nil {
		s.tb.Fatalf("redistest: pause %s: %v", s.addr, err)
	}
}

// Resume lets a paused server go on (SIGCONT).
func (s *Server) Resume() {
	s.tb.Helper()
	if err := s.send(sigCont); err != nil {
		s.tb.Fatalf("redistest: resume %s: %v", s.addr, err)
	}
}

// CLI runs redis-cli against the server and returns what it prints, without the
// last line feed. An error reply is output like any other; the test fails if
// redis-cli itself does, for instance because the server is down.
func (s *Server) CLI(tb testing.TB, args ...string) string {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), cliTimeout)
	defer cancel()
	out, err := s.cli(ctx, args...)
	if err != nil {
		tb.Fatal(err)
	}
	return out
}

// Log returns the end of what the server has printed since it last started, for
// messages of failed tests.
func (s *Server) Log() string { return s.logTail() }

// Client returns a client of the server, closed when the test ends. Its options
// are go-redis' own, changed by the functions given.
func (s *Server) Client(tb testing.TB, opts ...func(*redis.Options)) *redis.Client {
	tb.Helper()
	return newClient(tb, &redis.Options{Addr: s.addr, Password: s.password}, opts)
}

func newClient(tb testing.TB, o *redis.Options, opts []func(*redis.Options)) *redis.Client {
	for _, f := range opts {
		f(o)
	}
	c := redis.NewClient(o)
	tb.Cleanup(func() { _ = c.Close() })
	return c
}
