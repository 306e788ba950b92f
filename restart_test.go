package leaselimit_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	sim "github.com/leaselimit/leaselimit/internal/fleet"
	"github.com/leaselimit/leaselimit/internal/redistest"
	"github.com/leaselimit/leaselimit/membucket"
	"github.com/leaselimit/leaselimit/quota"
	"github.com/leaselimit/leaselimit/redisbucket"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Four replicas are replaced one after the other under steady load: nearly nothing is lost, and nothing is given twice.
func TestARollingRestartLosesNothing(t *testing.T) {
	const each = 4
	for _, load := range []float64{0.9, 1, 2} {
		t.Run(fmt.Sprint("load ", load), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				var shifts []sim.Shift
				weights := []float64{1, 1, 1, 1, 0, 0, 0, 0}
				first := append([]float64(nil), weights...)
				for i := range each {
					weights[i], weights[i+each] = 0, 1
					at := time.Duration(i+1) * 15 * time.Second
					shifts = append(shifts, sim.Shift{At: at, Weights: append([]float64(nil), weights...)})
				}
				r, err := sim.Run(sim.Config{
					Limit: quota.PerSecond(200, 200), Replicas: 2 * each, Load: load, Weights: first, Shifts: shifts,
					Duration: 75 * time.Second, RTT: time.Millisecond, Seed: 1, Store: membucket.New(),
				})
				require.NoError(t, err)
				t.Log(r)
				assert.GreaterOrEqual(t, r.Share(), 0.98)
				assert.LessOrEqual(t, r.Proved, 20.01)
			})
		})
	}
}

// rollingChild makes TestARollingRestartOfProcesses one of its replicas: the address of a Redis.
const rollingChild = "LEASELIMIT_TEST_ROLLING"

// The same with processes: each returns its leases when it is told to end, and together they keep the bound.
func TestARollingRestartOfProcesses(t *testing.T) {
	limit := quota.PerSecond(500, 500)
	if addr := os.Getenv(rollingChild); addr != "" {
		rdb := redis.NewClient(&redis.Options{Addr: addr})
		defer rdb.Close()
		cfg := limited(limit)
		cfg.StoreTimeout = 10 * time.Second
		lim := newLimiter(t, redisbucket.New(rdb), cfg)
		ended := make(chan struct{})
		go func() {
			_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
			close(ended)
		}()
		admitted := 0
		for tick := time.NewTicker(4 * ms); ; {
			select {
			case <-tick.C:
				if d, err := lim.Allow(context.Background(), "acme"); err == nil && d.Allowed {
					if admitted++; admitted == 1 {
						_, _ = fmt.Print("\nstarted\n")
					}
				}
				continue
			case <-ended:
			}
			err := lim.Close(context.Background())
			s := lim.Stats()
			_, _ = fmt.Printf("\nadmitted=%d held=%d lost=%d err=%v\n", admitted, s.TokensHeld, s.TokensLost, err)
			return
		}
	}
	t.Parallel()
	server := redistest.Start(t)
	self, err := os.Executable()
	require.NoError(t, err)
	begin, sum := time.Now(), 0
	run := func() (end func()) {
		cmd := exec.CommandContext(t.Context(), self, "-test.run=^TestARollingRestartOfProcesses$")
		cmd.Env = append(os.Environ(), rollingChild+"="+server.Addr())
		in, err := cmd.StdinPipe()
		require.NoError(t, err)
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		sc := bufio.NewScanner(out)
		for sc.Scan() && sc.Text() != "started" {
		}
		return func() {
			require.NoError(t, in.Close())
			for sc.Scan() {
				if rest, ok := strings.CutPrefix(sc.Text(), "admitted="); ok {
					n := 0
					_, err := fmt.Sscanf(rest, "%d held=0 lost=0 err=<nil>", &n)
					assert.NoError(t, err, rest)
					sum += n
				}
			}
			_ = cmd.Wait()
		}
	}
	var fleet []func()
	for range 4 {
		fleet = append(fleet, run())
	}
	for i, end := range fleet {
		fleet[i] = run()
		end()
		<-time.After(200 * ms)
	}
	for _, end := range fleet {
		end()
	}
	took := time.Since(begin).Seconds()
	t.Logf("admitted %d in %.1f s", sum, took)
	assert.LessOrEqual(t, float64(sum), 500+500*took+50)
	assert.Positive(t, sum)
	st, err := redisbucket.New(server.Client(t)).Peek(t.Context(), key("acme"), terms(limit))
	require.NoError(t, err)
	assert.LessOrEqual(t, st.Out, int64(sum), "only what was spent and not reported")
}
