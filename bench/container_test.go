//go:build container

package bench

import (
	"context"
	"errors"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leaselimit/leaselimit"
	"github.com/leaselimit/leaselimit/bench/peer"
	"github.com/leaselimit/leaselimit/internal/fakeclock"
	"github.com/leaselimit/leaselimit/lease/storetest"
	"github.com/leaselimit/leaselimit/quota"
	"github.com/leaselimit/leaselimit/redisbucket"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/wait"
)

// TestContainer runs against the image that people run, in place of the server of this machine that the other tests use:
// another build, another version, and a network between. It is behind a build tag because it needs Docker; with the tag it
// never skips. "make container" sets the tag where Docker is.
func TestContainer(t *testing.T) {
	addr := startContainer(t)
	t.Run("Conformance", func(t *testing.T) { conformance(t, addr) })
	t.Run("SeveralLimitersAdmitTheCapacity", func(t *testing.T) { severalLimiters(t, connect(t, addr)) })
}

// conformance is the suite of every store. Its clock is the test's; everything else is the container's.
func conformance(t *testing.T, addr string) {
	storetest.Run(t, func(t *testing.T, test func(*testing.T, storetest.Fixture)) {
		rdb := connect(t, addr)
		clock := fakeclock.New(time.Now().Unix() * 1e6)
		rdb.AddHook(clock)
		test(t, storetest.Fixture{
			Store:   redisbucket.New(rdb, redisbucket.WithPrefix(t.Name())),
			Advance: clock.Advance,
		})
	})
}

// severalLimiters is the library as it is used, on the clock of the server in the container.
func severalLimiters(t *testing.T, rdb redis.UniversalClient) {
	t.Helper()
	const replicas, callers, calls, capacity = 3, 8, 50, 100
	store := redisbucket.New(rdb, redisbucket.WithPrefix(t.Name()))
	var admitted atomic.Int64
	var wg sync.WaitGroup
	for range replicas {
		lim, err := leaselimit.New(store, leaselimit.Config{
			Limits: quota.Fixed(quota.Limit{Capacity: capacity}), StoreTimeout: peer.Patience, OnFailure: leaselimit.FailClosed,
		})
		require.NoError(t, err)
		defer func() { assert.NoError(t, lim.Close(context.Background())) }()
		for range callers {
			wg.Go(func() {
				for range calls {
					d, err := lim.Allow(t.Context(), "acme")
					assert.NoError(t, err)
					assert.False(t, d.Degraded())
					if d.Allowed {
						admitted.Add(1)
					}
				}
			})
		}
	}
	wg.Wait()
	assert.LessOrEqual(t, admitted.Load(), int64(capacity))
	assert.Positive(t, admitted.Load())
}

func startContainer(t *testing.T) (addr string) {
	t.Helper()
	c, err := testcontainers.Run(t.Context(), image(t),
		testcontainers.WithExposedPorts("6379/tcp"),
		testcontainers.WithCmd("redis-server", "--protected-mode", "no", "--save", ""),
		testcontainers.WithWaitStrategy(wait.ForListeningPort("6379/tcp").SkipInternalCheck()),
	)
	testcontainers.CleanupContainer(t, c)
	require.NoError(t, err)
	addr, err = c.PortEndpoint(t.Context(), "6379/tcp", "")
	require.NoError(t, err)
	rdb := connect(t, addr)
	require.Eventually(t, func() bool { return rdb.Ping(t.Context()).Err() == nil }, 30*time.Second, 50*time.Millisecond)
	t.Logf("%s: %s", addr, version(t, rdb))
	return addr
}

func version(t *testing.T, rdb *redis.Client) string {
	t.Helper()
	info, err := rdb.InfoMap(t.Context(), "server").Result()
	require.NoError(t, err)
	return "redis " + info["Server"]["redis_version"]
}

func connect(t *testing.T, addr string) *redis.Client {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	t.Cleanup(func() { assert.NoError(t, rdb.Close()) })
	return rdb
}

// image is the name of the image, which redis-image.sh sees to.
func image(t *testing.T) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "./redis-image.sh").Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		t.Fatalf("redis-image.sh: %v: %s", err, exit.Stderr)
	}
	require.NoError(t, err)
	return strings.TrimSpace(string(out))
}
