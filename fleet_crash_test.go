package leaselimit_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leaselimit/leaselimit"
	"github.com/leaselimit/leaselimit/internal/redistest"
	"github.com/leaselimit/leaselimit/membucket"
	"github.com/leaselimit/leaselimit/quota"
	"github.com/leaselimit/leaselimit/redisbucket"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// One of four replicas crashes with all the leases that there may be. The others go on at the full rate at once, for what was
// not leased; the bucket holds its whole capacity again within two trust windows and the time to refill it.
func TestFH2_ACrashLosesALeaseOnce(t *testing.T) {
	t.Parallel()
	for _, exact := range []bool{false, true} {
		t.Run(fmt.Sprintf("exact %v", exact), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				const refill, ttl = 100, 5 * time.Second
				store, limit := membucket.New(), quota.PerSecond(refill, 100)
				cfg := limited(limit)
				cfg.Exact, cfg.LeaseTTL = exact, ttl
				greedy := cfg
				greedy.LeaseSize, greedy.Replicas = 25, 1
				victim := newTapOn(store)
				require.True(t, call(t, newLimiter(t, victim, greedy), "acme", 1).Allowed)
				victim.onReturn(func(context.Context, func() error) error { return errDown }) // it is dead
				_, lost := level(t, store, "acme", limit)
				require.Equal(t, int64(25), lost)

				// For a window the others want twice what there is.
				var survivors []*leaselimit.Limiter
				for range 3 {
					survivors = append(survivors, newLimiter(t, store, cfg))
				}
				admitted, begin := 0, time.Now()
				for i := 0; time.Since(begin) < ttl; i++ {
					admitted += calls(t, survivors[i%3], "acme", 1)
					time.Sleep(time.Second / refill / 2)
				}
				t.Logf("%d tokens lost, %d admitted in the first window", lost, admitted)
				assert.GreaterOrEqual(t, admitted, refill*5*95/100)

				// Then they are idle, and their own leases go back before two windows are over.
				time.Sleep(2*ttl + 2*time.Second)
				synctest.Wait()
				tokens, out := level(t, store, "acme", limit)
				assert.Zero(t, out)
				assert.InDelta(t, 100, tokens, 1e-6)
			})
		})
	}
}

// crashChild makes TestFH2_KilledProcess the replica that is killed: the address of a Redis and a prefix.
const crashChild = "LEASELIMIT_TEST_CRASH"

// The same with a process of its own, kill -9 and a real Redis.
func TestFH2_KilledProcess(t *testing.T) {
	const ttl = 5 * time.Second
	limit := quota.PerSecond(100, 100)
	cfg := limited(limit)
	cfg.Exact, cfg.LeaseTTL, cfg.StoreTimeout, cfg.OnFailure = true, ttl, ttl-100*ms, leaselimit.FailClosed

	if addr, prefix, ok := strings.Cut(os.Getenv(crashChild), " "); ok {
		rdb := redis.NewClient(&redis.Options{Addr: addr})
		cfg.LeaseSize, cfg.Replicas = 25, 1
		lim, err := leaselimit.New(redisbucket.New(rdb, redisbucket.WithPrefix(prefix)), cfg)
		require.NoError(t, err)
		d, err := lim.Allow(t.Context(), "acme")
		require.NoError(t, err)
		_, _ = fmt.Printf("\nallowed=%v held=%d\n", d.Allowed, lim.Stats().TokensHeld)
		select {} // until killed
	}

	t.Parallel()
	prefix := redistest.Prefix(t)
	store := redisbucket.New(redistest.Client(t), redisbucket.WithPrefix(prefix))
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), self, "-test.run=^TestFH2_KilledProcess$")
	cmd.Env = append(os.Environ(), crashChild+"="+redistest.Addr(t)+" "+prefix)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	said := ""
	for sc := bufio.NewScanner(out); said == "" && sc.Scan(); {
		if strings.HasPrefix(sc.Text(), "allowed=") {
			said = sc.Text()
		}
	}
	require.NoError(t, cmd.Process.Kill())
	_ = cmd.Wait()
	killed := time.Now()
	require.Equal(t, "allowed=true held=25", said)

	// At once what was not leased: 100 less the caller's token and the lease, and more if the test was slow.
	var survivors []*leaselimit.Limiter
	for range 3 {
		survivors = append(survivors, newLimiter(t, store, cfg))
	}
	admitted := 0
	for _, lim := range survivors {
		for range 100 {
			d, err := lim.Allow(t.Context(), "acme")
			require.NoError(t, err)
			if !d.Allowed {
				break
			}
			admitted++
		}
	}
	took := time.Since(killed)
	t.Logf("%d admitted in %v after the kill", admitted, took)
	assert.GreaterOrEqual(t, admitted, 74)
	// Whatever the clock says: without the lease, which nobody has.
	assert.LessOrEqual(t, float64(admitted), 100+limit.PerMillisecond()*took.Seconds()*1000+1)

	// After two windows and the time to fill up everything is there again.
	<-time.After(2*ttl + 1100*ms)
	d, err := survivors[0].Peek(t.Context(), "acme")
	require.NoError(t, err)
	assert.Equal(t, int64(100), d.Remaining)
}
