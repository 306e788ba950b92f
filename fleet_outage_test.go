package leaselimit_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/leaselimit/leaselimit"
	"github.com/leaselimit/leaselimit/internal/redistest"
	"github.com/leaselimit/leaselimit/lease"
	"github.com/leaselimit/leaselimit/membucket"
	"github.com/leaselimit/leaselimit/quota"
	"github.com/leaselimit/leaselimit/redisbucket"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A replica is counted while it draws, and until it is closed.
func TestReplicasAreCounted(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store, limit := membucket.New(), quota.PerSecond(100, 100)
		var lims []*leaselimit.Limiter
		for range 5 {
			lims = append(lims, newLimiter(t, store, limited(limit)))
		}
		busy := func(lims []*leaselimit.Limiter) {
			for begin := time.Now(); time.Since(begin) < 10*time.Second; time.Sleep(20 * ms) {
				for _, lim := range lims {
					call(t, lim, "acme", 1)
				}
			}
		}
		assert.Zero(t, lims[0].Stats().Replicas)
		busy(lims)
		for _, lim := range lims {
			assert.EqualValues(t, 5, lim.Stats().Replicas)
		}
		require.NoError(t, lims[0].Close(t.Context()))
		busy(lims[1:])
		assert.EqualValues(t, 4, lims[1].Stats().Replicas)
		for range 5 { // one is idle from now on
			busy(lims[2:])
		}
		assert.EqualValues(t, 3, lims[2].Stats().Replicas)
		assert.EqualValues(t, 4, lims[1].Stats().Replicas, "it has not asked since")
		for _, lim := range lims[1:] {
			require.NoError(t, lim.Close(t.Context()))
		}
		n, err := store.Present(t.Context(), "default", "test", time.Second)
		require.NoError(t, err)
		assert.Equal(t, 1, n)

		told := limited(limit)
		told.Replicas = 7
		lim := newLimiter(t, store, told)
		busy([]*leaselimit.Limiter{lim})
		assert.EqualValues(t, 7, lim.Stats().Replicas)
		n, err = store.Present(t.Context(), "default", "test", time.Second)
		require.NoError(t, err)
		assert.Equal(t, 1, n, "who is told does not ask")
	})
}

// The switch to the share gives no burst: what was just admitted is taken out of it, and what leases still give.
func TestAnOutageBeginsWithoutABurst(t *testing.T) {
	for _, tt := range []struct {
		name        string
		before      int // calls just before
		least, most int // admitted at once when the store goes away
	}{
		{"idle", 0, 25, 25},
		{"some", 10, 15, 15},
		{"all of it", 25, 0, 0},
		{"more than its share", 60, 0, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := newTap()
				cfg := limited(quota.Limit{Capacity: 100, Refill: 1, Per: time.Hour})
				cfg.Replicas = 4
				lim := newLimiter(t, s, cfg)
				require.Equal(t, tt.before, calls(t, lim, "acme", tt.before))
				held := int(lim.Stats().TokensHeld)
				s.onAcquire(down)
				admitted := calls(t, lim, "acme", 200)
				assert.GreaterOrEqual(t, admitted, tt.least)
				assert.LessOrEqual(t, admitted, max(tt.most, held))
				assert.Equal(t, 25, calls(t, lim, "new", 200), "a new tenant gets its share")
			})
		})
	}
}

// A fleet whose replicas believe to be alone, at ten times the limit, keeps to what each was granted.
func TestAShareIsWhatWasGranted(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const refill = 100
		store := membucket.New()
		cfg := limited(quota.PerSecond(refill, 100))
		cfg.Replicas = 1
		var taps []*tap
		var lims []*leaselimit.Limiter
		for range 4 {
			taps = append(taps, newTapOn(store))
			lims = append(lims, newLimiter(t, taps[len(taps)-1], cfg))
		}
		busy := func(d time.Duration) (admitted int) {
			for begin := time.Now(); time.Since(begin) < d; time.Sleep(4 * ms) {
				for _, lim := range lims {
					admitted += calls(t, lim, "acme", 1)
				}
			}
			return admitted
		}
		busy(time.Minute)
		for _, s := range taps {
			s.onAcquire(down)
		}
		n := busy(time.Minute)
		t.Logf("admitted %d in a minute", n)
		assert.LessOrEqual(t, n, 60*refill*12/10+110)
		assert.GreaterOrEqual(t, n, 60*refill*8/10)
	})
}

// outageChild makes TestAFleetInAnOutage one of its replicas: the address of a Redis and a prefix.
const outageChild = "LEASELIMIT_TEST_OUTAGE"

// Four processes that were told nothing of each other stay together within 1.2 times the limit, and the bound, while Redis is away.
func TestAFleetInAnOutage(t *testing.T) {
	const refill, capacity, processes = 200, 100, 4
	if addr, prefix, ok := strings.Cut(os.Getenv(outageChild), " "); ok {
		runInOutage(t, addr, prefix, quota.PerSecond(refill, capacity), processes)
		return
	}
	t.Parallel()
	server := redistest.Start(t)
	self, err := os.Executable()
	require.NoError(t, err)
	var in []io.Writer
	var out []*bufio.Scanner
	for range processes {
		cmd := exec.CommandContext(t.Context(), self, "-test.run=^TestAFleetInAnOutage$")
		cmd.Env = append(os.Environ(), outageChild+"="+server.Addr()+" outage")
		stdin, err := cmd.StdinPipe()
		require.NoError(t, err)
		stdout, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		t.Cleanup(func() { _ = stdin.Close(); _ = cmd.Wait() })
		in, out = append(in, stdin), append(out, bufio.NewScanner(stdout))
	}
	say := func(word string) {
		for _, w := range in {
			_, err := fmt.Fprintln(w, word)
			require.NoError(t, err)
		}
	}
	hear := func(format string, into ...any) { // from all, in turn: into are pointers for each
		for i, sc := range out {
			for sc.Scan() {
				if n, _ := fmt.Sscanf(sc.Text(), format, into[i]); n == 1 {
					break
				}
			}
		}
	}
	counts := make([]int, processes)
	into := make([]any, processes)
	for i := range counts {
		into[i] = &counts[i]
	}
	hear("replicas=%d", into...)
	require.Equal(t, []int{4, 4, 4, 4}, counts)
	begin := time.Now()
	say("count")
	server.Stop()
	<-time.After(5 * time.Second)
	say("stop")
	hear("admitted=%d", into...)
	took := time.Since(begin).Seconds()
	sum := 0
	for _, n := range counts {
		sum += n
	}
	t.Logf("admitted %d in %.1f s of an outage: %v", sum, took, counts)
	assert.LessOrEqual(t, float64(sum), 1.2*refill*took+capacity+capacity/10)
	assert.GreaterOrEqual(t, float64(sum), 0.4*refill*5, "nor are they shut")
}

// runInOutage is one process: it calls all the time, says when it knows the others, and counts what it admits from one line
// of its input to the next.
func runInOutage(t *testing.T, addr, prefix string, limit quota.Limit, processes int) {
	rdb := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true})
	defer rdb.Close()
	cfg := limited(limit)
	cfg.StoreTimeout = 200 * ms
	lim := newLimiter(t, redisbucket.New(rdb, redisbucket.WithPrefix(prefix)), cfg)
	heard := make(chan string)
	go func() {
		for sc := bufio.NewScanner(os.Stdin); sc.Scan(); {
			heard <- sc.Text()
		}
		close(heard)
	}()
	admitted, known := 0, false
	tick := time.NewTicker(2 * ms)
	defer tick.Stop()
	for {
		select {
		case word := <-heard:
			if word == "count" {
				admitted = 0
				continue
			}
			_, _ = fmt.Printf("\nadmitted=%d\n", admitted)
			return
		case <-tick.C:
			d, err := lim.Allow(context.Background(), "acme")
			if err == nil && d.Allowed {
				admitted++
			}
			if n := lim.Stats().Replicas; !known && n >= int64(processes) {
				known = true
				_, _ = fmt.Printf("\nreplicas=%d\n", n)
			}
		}
	}
}

// A Reset that fails gives nothing: in an outage it would be a way around the share.
func TestAResetThatFailsFillsNoShare(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newTap()
		cfg := limited(quota.PerMinute(1, 100))
		cfg.Replicas = 4
		lim := newLimiter(t, resetless{s}, cfg)
		s.onAcquire(down)
		admitted := 0
		for range 10 {
			admitted += calls(t, lim, "acme", 100)
			require.Error(t, lim.Reset(t.Context(), "acme"))
		}
		assert.LessOrEqual(t, admitted, 26)
	})
}

// resetless is a store on which nothing can be reset.
type resetless struct{ *tap }

func (resetless) Reset(context.Context, lease.Key) error {
	return &lease.StoreError{Op: "reset", Reason: lease.ReasonRefused, Err: errors.New("away")}
}
