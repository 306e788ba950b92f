package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/leaselimit/leaselimit/cmd/leaselimit/internal/cli"
	"github.com/leaselimit/leaselimit/internal/redistest"
	"github.com/leaselimit/leaselimit/lease"
	"github.com/stretchr/testify/require"
)

// demo runs the command with a shared bucket that replicas see through wrap.
func demo(t *testing.T, wrap func(lease.Store) lease.Store, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	p := cli.Program{Name: "leaselimit", Commands: []cli.Command{command(wrap)}}
	status = p.Run(t.Context(), append([]string{"demo"}, args...), cli.Streams{Out: &out, Err: &errs})
	return status, out.String(), errs.String()
}

// object decodes standard output, on which there must be one JSON object and nothing else.
func object(t *testing.T, stdout string) map[string]any {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(stdout))
	var o map[string]any
	require.NoError(t, d.Decode(&o))
	require.ErrorIs(t, d.Decode(&struct{}{}), io.EOF)
	return o
}

func TestEveryTrafficOnEveryStore(t *testing.T) {
	for _, store := range []string{"memory", "redis"} {
		for _, kind := range trafficOrder {
			t.Run(store+"/"+kind, func(t *testing.T) {
				t.Parallel()
				args := []string{
					"-json", "-traffic", kind, "-duration", "400ms", "-replicas", "3", "-capacity", "200", "-refill", "1000",
					"-store-timeout", "10s",
				}
				prefix := ""
				if store == "redis" {
					prefix = redistest.Prefix(t)
					args = append(args, "-redis", redistest.Addr(t), "-prefix", prefix)
				}
				status, stdout, stderr := demo(t, nil, args...)
				require.Equal(t, cli.ExitOK, status, stderr)

				o := object(t, stdout)
				require.Equal(t, store, o["store"])
				require.Equal(t, kind, o["traffic"])
				require.EqualValues(t, 3, o["replicas"])
				require.EqualValues(t, 20, o["bound"])
				require.Equal(t, true, o["bound_held"])
				number := func(key string) float64 {
					require.IsType(t, float64(0), o[key], key)
					return o[key].(float64)
				}
				require.Positive(t, number("offered"))
				require.InDelta(t, number("offered"), number("admitted")+number("refused"), 0)
				require.Positive(t, number("admitted"))
				require.LessOrEqual(t, number("admitted"), 200+1000*number("elapsed_ns")/1e9+20)
				require.Positive(t, number("ideal"))
				require.GreaterOrEqual(t, number("naive"), number("ideal"))
				require.LessOrEqual(t, number("overshoot"), number("bound")+0.01)
				require.Positive(t, number("store_calls"))
				require.InEpsilon(t, number("store_calls")/number("admitted"), number("calls_per_admitted"), 1e-6)
				require.GreaterOrEqual(t, number("p99_ns"), number("p50_ns"))
				require.Len(t, o["per_replica"], 3)

				if store == "redis" {
					keys, err := redistest.Client(t).Keys(t.Context(), prefix+"*").Result()
					require.NoError(t, err)
					require.Empty(t, keys, "a run leaves nothing behind")
				}
			})
		}
	}
}

func TestCluster(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 3, 0)
	status, stdout, stderr := demo(t, nil, "-json", "-redis", strings.Join(cluster.Addrs(), ","), "-duration", "300ms",
		"-store-timeout", "10s")
	require.Equal(t, cli.ExitOK, status, stderr)
	o := object(t, stdout)
	require.Positive(t, o["admitted"])
	require.EqualValues(t, 0, o["undecided"])
}

func TestExactOverloadReachesTheLimitAndNotMore(t *testing.T) {
	t.Parallel()
	status, stdout, stderr := demo(t, nil, "-json", "-exact", "-refill", "0", "-capacity", "100", "-duration", "400ms",
		"-store-timeout", "10s")
	require.Equal(t, cli.ExitOK, status, stderr)
	o := object(t, stdout)
	require.EqualValues(t, 0, o["bound"])
	require.EqualValues(t, 100, o["ideal"])
	require.LessOrEqual(t, o["admitted"], 100.0)
	require.EqualValues(t, 0, o["overshoot"])
	require.Greater(t, o["naive"], 200.0)
}

// generous is a store that grants all that is asked for.
type generous struct{ lease.Store }

func (g generous) Acquire(ctx context.Context, req lease.AcquireRequest) (lease.Grant, error) {
	grant, err := g.Store.Acquire(ctx, req)
	if err == nil && grant.Waiters < req.Need {
		grant.Waiters, grant.RetryAfter = req.Need, 0
	}
	return grant, err
}

func TestABrokenBoundIsTold(t *testing.T) {
	t.Parallel()
	faulty := func(s lease.Store) lease.Store { return generous{s} }
	args := []string{"-duration", "400ms", "-capacity", "100", "-refill", "500"}

	status, stdout, stderr := demo(t, faulty, append(args, "-json")...)
	require.Equal(t, cli.ExitFailed, status)
	require.Contains(t, stderr, "the bound is broken")
	o := object(t, stdout)
	require.Equal(t, false, o["bound_held"])
	require.Greater(t, o["overshoot"], 10.0)
	require.Greater(t, o["admitted"], o["ideal"])

	status, stdout, _ = demo(t, faulty, args...)
	require.Equal(t, cli.ExitFailed, status)
	require.Contains(t, stdout, "of at most 10 tokens (10% of the capacity): the bound is broken.")
}

// deaf is a store that answers nothing.
type deaf struct{ lease.Store }

func (deaf) Acquire(context.Context, lease.AcquireRequest) (lease.Grant, error) {
	return lease.Grant{}, &lease.StoreError{Op: "acquire", Reason: lease.ReasonRefused, Err: errors.New("nobody is there")}
}

func TestAStoreThatNeverAnswersFailsTheRun(t *testing.T) {
	t.Parallel()
	// The limiters' log has a line after three draws have failed, which are up to 150 ms apart from first to last.
	status, stdout, stderr := demo(t, func(s lease.Store) lease.Store { return deaf{s} }, "-duration", "1s")
	require.Equal(t, cli.ExitFailed, status)
	require.Contains(t, stderr, "the store did not answer a single call")
	require.Contains(t, stderr, "nobody is there") // the limiters' log
	require.Contains(t, stdout, "refused because the store did not answer in time")
}

func TestNoRedisFailsTheRun(t *testing.T) {
	t.Parallel()
	status, stdout, stderr := demo(t, nil, "-redis", "127.0.0.1:1", "-duration", "200ms")
	require.Equal(t, cli.ExitFailed, status)
	require.Empty(t, stdout)
	require.Contains(t, stderr, "redis does not answer")
	require.Equal(t, 1, strings.Count(stderr, "\n"), stderr)
}

func TestPlainLinesWhereThereIsNoTerminal(t *testing.T) {
	t.Parallel()
	status, stdout, stderr := demo(t, nil, "-duration", "1100ms", "-traffic", "steady")
	require.Equal(t, cli.ExitOK, status, stderr)
	require.NotContains(t, stdout, "\x1b")
	require.NotContains(t, stdout, "\r")
	for _, want := range []string{
		"4 replicas, one limit: 1,000 tokens, 1,000 more each second\n",
		"Traffic is steady for 1.1s: 0.9 times the limit, spread evenly over the replicas.\n",
		"The shared bucket is in memory, 500µs away.\n",
		"  1s  offered ",
		"4 separate limiters",
		"the bound held.\n",
		"waited for the store",
	} {
		require.Contains(t, stdout, want)
	}
}

func TestTheSeedFixesTheCalls(t *testing.T) {
	t.Parallel()
	offered := func(seed string) any {
		_, stdout, _ := demo(t, nil, "-seed", seed, "-json", "-duration", "200ms", "-refill", "3000")
		return object(t, stdout)["offered"]
	}
	first, again, other := offered("7"), offered("7"), offered("8")
	require.Equal(t, first, again)
	require.NotEqual(t, first, other)
}

func TestAnInterruptEndsTheRunWithAReport(t *testing.T) {
	t.Parallel()
	for _, format := range []string{"-json=false", "-json"} {
		ctx, interrupt := context.WithCancel(t.Context())
		var out, errs bytes.Buffer
		// The first draw is the sign that the run is on.
		p := cli.Program{Name: "leaselimit", Commands: []cli.Command{command(func(s lease.Store) lease.Store {
			return &onDraw{Store: s, do: interrupt}
		})}}
		status := p.Run(ctx, []string{"demo", "-duration", "5m", "-refill", "20", format}, cli.Streams{Out: &out, Err: &errs})
		require.Equal(t, cli.ExitOK, status, errs.String())
		if format == "-json" {
			require.Equal(t, true, object(t, out.String())["interrupted"])
		} else {
			require.Contains(t, out.String(), "Interrupted after")
		}
	}
}

type onDraw struct {
	lease.Store

	do func()
}

func (s *onDraw) Acquire(ctx context.Context, req lease.AcquireRequest) (lease.Grant, error) {
	s.do()
	return s.Store.Acquire(ctx, req)
}

func TestWrongUsage(t *testing.T) {
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"-replicas", "0"}, "-replicas is 0, must be 1 to 256"},
		{[]string{"-replicas", "many"}, "-replicas"},
		{[]string{"-traffic", "jam"}, `-traffic is "jam", must be one of steady, burst, overload, skewed`},
		{[]string{"-capacity", "0"}, "-capacity is 0, must be 1 to 9007199254740991"},
		{[]string{"-capacity", "9007199254740992"}, "-capacity"},
		{[]string{"-refill", "-1"}, "-refill is -1, must be 0 to"},
		{[]string{"-refill", "100000000"}, "at most 5000000 can be kept"},
		{[]string{"-traffic", "burst", "-capacity", "100000000"}, "at most 5000000 can be kept"},
		{[]string{"-duration", "0s"}, "-duration is 0s, must be above 0"},
		{[]string{"-store-timeout", "-1s"}, "-store-timeout is -1s"},
		{[]string{"-store-timeout", "31s"}, "Config.StoreTimeout is 31s, must be above 0 and below LeaseTTL"},
		{[]string{"-latency", "-1s"}, "-latency is -1s, must be 0 or more"},
		{[]string{"-lease-share", "0"}, "-lease-share is 0, must be above 0 and at most 1"},
		{[]string{"-lease-share", "1.5"}, "Config.LeaseShare is 1.5, must be above 0 and at most 1"},
		{[]string{"-lease-ttl", "0"}, "-lease-ttl is 0s, must be 10ms to 1h"},
		{[]string{"-lease-ttl", "1ms"}, "Config.LeaseTTL is 1ms, must be 10ms to 1h"},
		{[]string{"-max-overshoot", "2"}, "Config.MaxOvershoot is 2, must be 0 to 1"},
		{[]string{"-max-overshoot", "0.2", "-exact"}, "-exact is a budget of 0, and -max-overshoot is 0.2"},
		{[]string{"-redis", "localhost"}, `-redis: "localhost" is no host:port`},
		{[]string{"-redis", "localhost:1", "-latency", "1ms"}, "-latency is for the bucket in memory"},
		{[]string{"-nonsense"}, "-nonsense"},
		{[]string{"tenant"}, `"tenant" is no flag`},
	} {
		t.Run(fmt.Sprint(tt.args), func(t *testing.T) {
			status, stdout, stderr := demo(t, nil, tt.args...)
			require.Equal(t, cli.ExitUsage, status)
			require.Empty(t, stdout)
			require.Contains(t, stderr, tt.want)
			require.Contains(t, stderr, "Run 'leaselimit demo -h' for help.")
		})
	}
}

func TestABudgetOf0IsExact(t *testing.T) {
	t.Parallel()
	_, stdout, _ := demo(t, nil, "-json", "-max-overshoot", "0", "-duration", "50ms")
	require.EqualValues(t, 0, object(t, stdout)["bound"])
}
