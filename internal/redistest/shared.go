package redistest

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"
)

// shared is the server of the whole test process.
var shared struct {
	sync.Mutex
	asked  bool // addr or err is known
	addr   string
	err    error
	server *Server // nil if REDIS_ADDR names one
}

// Addr returns the host:port of a server that all tests of the process share:
// the one that REDIS_ADDR names, or else one that the first call starts. Tests
// work under a [Prefix] of their own, and never flush, stop or reconfigure it.
func Addr(tb testing.TB) string {
	tb.Helper()
	shared.Lock()
	defer shared.Unlock()
	if !shared.asked {
		shared.asked = true
		shared.addr, shared.server, shared.err = findShared()
	}
	if shared.err != nil {
		tb.Fatal(shared.err)
	}
	return shared.addr
}

func findShared() (string, *Server, error) {
	// Not the test's context: the server outlives the test that asked first.
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	if addr := os.Getenv("REDIS_ADDR"); addr != "" {
		if _, err := ask(ctx, addr, "", "PING"); err != nil {
			return "", nil, fmt.Errorf("redistest: REDIS_ADDR=%s does not answer PING: %w", addr, err)
		}
		return addr, nil, nil
	}
	s, err := launch(ctx, newSpec(nil))
	if err != nil {
		return "", nil, err
	}
	return s.addr, s, nil
}

// Client returns a client of the shared server, closed when the test ends.
func Client(tb testing.TB, opts ...func(*redis.Options)) *redis.Client {
	tb.Helper()
	return newClient(tb, &redis.Options{Addr: Addr(tb)}, opts)
}

// Prefix returns a prefix for keys on the shared server that no other test has,
// in this process or another: letters, digits, '-' and '_'. Every key that
// begins with it is deleted when the test ends.
func Prefix(tb testing.TB) string {
	tb.Helper()
	addr := Addr(tb)
	name := strings.Map(func(r rune) rune {
		switch {
		case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9', r == '_':
			return r
		}
		return '-'
	}, tb.Name())
	prefix := name[:min(len(name), 40)] + "-" + randomHex(6)
	tb.Cleanup(func() {
		if err := deletePrefix(addr, prefix); err != nil {
			tb.Errorf("redistest: delete keys %s*: %v", prefix, err)
		}
	})
	return prefix
}

func deletePrefix(addr, prefix string) error {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	c := redis.NewClient(&redis.Options{Addr: addr})
	defer c.Close()
	var cursor uint64
	for {
		keys, next, err := c.Scan(ctx, cursor, prefix+"*", 1000).Result()
		if err != nil {
			return err
		}
		if len(keys) > 0 {
			if err := c.Unlink(ctx, keys...).Err(); err != nil {
				return err
			}
		}
		if next == 0 {
			return nil
		}
		cursor = next
	}
}

// Main runs the tests of a package, ends the shared server, fails if goroutines
// are left (unless tests failed already) and exits. It is the body of TestMain:
//
//	func TestMain(m *testing.M) { redistest.Main(m) }
func Main(m *testing.M, opts ...goleak.Option) {
	os.Exit(runMain(m, opts))
}

func runMain(m interface{ Run() int }, opts []goleak.Option) int {
	code := m.Run()
	stopShared()
	if code != 0 {
		return code
	}
	if err := goleak.Find(opts...); err != nil {
		fmt.Fprintln(os.Stderr, "redistest: goroutines are left after the tests:", err)
		return 1
	}
	return 0
}

// stopShared ends the shared server; a later Addr starts another.
func stopShared() {
	shared.Lock()
	defer shared.Unlock()
	if shared.server != nil {
		shared.server.discard()
	}
	shared.asked, shared.server = false, nil
}
