package tune

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/leaselimit/leaselimit"
	"github.com/leaselimit/leaselimit/cmd/leaselimit/internal/cli"
	"github.com/leaselimit/leaselimit/cmd/leaselimit/internal/tty"
	"github.com/leaselimit/leaselimit/internal/redistest"
	"github.com/leaselimit/leaselimit/membucket"
	"github.com/leaselimit/leaselimit/quota"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) { redistest.Main(m) }

func tune(ctx context.Context, t *testing.T, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	bubble := func(f func()) { synctest.Test(t, func(*testing.T) { f() }) }
	p := cli.Program{Name: "leaselimit", Commands: []cli.Command{command(bubble)}}
	status = p.Run(ctx, append([]string{"tune"}, args...), cli.Streams{Out: &out, Err: &errs})
	return status, out.String(), errs.String()
}

type object struct {
	Store            string
	Recommended      row
	Fits             bool
	Config, Reason   string
	Rows, Elsewhere  []row
	Capacity, Refill int64
	Per              time.Duration `json:"per_ns"`
}

func measured(t *testing.T, args ...string) (o object) {
	t.Helper()
	status, stdout, stderr := tune(t.Context(), t, append(args, "-json", "-chart", "")...)
	require.Equal(t, cli.ExitOK, status, stderr)
	d := json.NewDecoder(strings.NewReader(stdout))
	require.NoError(t, d.Decode(&o))
	require.ErrorIs(t, d.Decode(&struct{}{}), io.EOF)
	return o
}

// TestKnobs holds what docs/tuning.md says of them.
func TestKnobs(t *testing.T) {
	t.Parallel()
	o := measured(t, "-capacity", "200", "-refill", "50", "-calls", "1000")
	require.Equal(t, "memory", o.Store)
	require.True(t, o.Fits)
	best := o.Recommended
	assert.LessOrEqual(t, best.Budget, 0.1)
	assert.LessOrEqual(t, best.BurstLoss, 0.15+1e-9)
	assert.LessOrEqual(t, best.Waiting, 0.05)
	byShare := map[float64]float64{}
	for _, w := range o.Rows {
		require.NotNil(t, w.Attack)
		assert.LessOrEqual(t, *w.Attack, float64(w.Bound)+1e-6, "%+v", w)
		assert.Equal(t, int64(w.Budget*200), w.Bound)
		assert.Greater(t, w.Admitted, 0.98)
		if w.Budget <= 0.1 && w.BurstLoss <= 0.15+1e-9 && w.Waiting <= 0.05 {
			assert.GreaterOrEqual(t, w.StoreCalls, best.StoreCalls*(1-noise)-0.0005, "%+v is cheaper", w)
		}
		if w.Budget == 0.1 && w.Size == 0 {
			byShare[w.Share] = w.StoreCalls
		}
	}
	assert.Less(t, byShare[0.25], byShare[0.1], "a larger share asks less")
	assert.Less(t, byShare[0.5], byShare[0.25], "a larger share asks less")

	at := func(p place) row {
		for _, w := range o.Elsewhere {
			if w.place == p {
				return w
			}
		}
		require.Fail(t, "not tried", "%+v", p)
		return row{}
	}
	here := place{4, 0.9, time.Millisecond}
	assert.Equal(t, best.choice, at(here).choice)
	assert.Less(t, at(here).StoreCalls, at(place{16, 0.9, time.Millisecond}).StoreCalls, "more replicas ask more")
	assert.Less(t, at(place{4, 5, time.Millisecond}).StoreCalls, at(here).StoreCalls, "overload asks less")
	at(place{4, 0.9, 16 * time.Millisecond})
}

// 0.29 of 100 is 29 tokens, and 28.999999999999996 by floating point.
func TestTheBoundIsThatOfALimiter(t *testing.T) {
	limit := quota.PerSecond(10, 100)
	for _, budget := range []float64{0, 0.07, 0.1, 0.145, 0.29, 0.57, 1} {
		c := choice{Budget: budget, Share: 1}
		cfg := c.config()
		cfg.Limits = quota.Fixed(limit)
		lim, err := leaselimit.New(membucket.New(), cfg)
		require.NoError(t, err)
		assert.Equal(t, lim.Bound("acme").Tokens, c.bound(limit), "%v", budget)
	}
}

// What nobody can have is said, and what comes nearest is recommended.
func TestNothingFits(t *testing.T) {
	t.Parallel()
	o := measured(t, "-capacity", "20", "-refill", "2", "-replicas", "40", "-calls", "300", "-budget", "0", "-burst-loss", "0.1")
	assert.False(t, o.Fits)
	assert.Contains(t, o.Reason, "No setting keeps")
	assert.Contains(t, o.Config, "Exact:        true")
	assert.Contains(t, o.Config, "LeaseShare:   0.1")
	assert.Zero(t, o.Recommended.Size)
}

func TestRedis(t *testing.T) {
	t.Parallel()
	prefix := redistest.Prefix(t)
	s := settings{
		limit: quota.PerSecond(200, 100), place: place{Replicas: 2, Load: 0.9}, budget: 0.1, burstLoss: 0.15, waiting: 1,
		redis: redistest.Addr(t), prefix: prefix, duration: 100 * time.Millisecond,
	}
	l, err := newLab(t.Context(), &s)
	require.NoError(t, err)
	w, err := l.run(t.Context(), choice{Budget: 0.1, Share: 0.25}, s.place)
	require.NoError(t, err)
	require.NoError(t, l.close())
	assert.Positive(t, w.StoreCalls)
	assert.Positive(t, w.P99)
	assert.Nil(t, w.Attack)
	keys, err := redistest.Client(t).Keys(t.Context(), prefix+"*").Result()
	require.NoError(t, err)
	require.Empty(t, keys, "a run leaves nothing behind")
}

func TestErrors(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		args   string
		status int
		says   string
	}{
		{"-capacity 0", cli.ExitUsage, "-capacity is 0, must be 1 to 9007199254740991"},
		{"-refill 0", cli.ExitUsage, "-refill is 0, must be 1 to"},
		{"-per 0s", cli.ExitUsage, "-per is 0s, must be above 0"},
		{"-replicas 257", cli.ExitUsage, "-replicas is 257, must be 1 to 256"},
		{"-load 0", cli.ExitUsage, "-load is 0, must be 0.001 to 100"},
		{"-load NaN", cli.ExitUsage, "-load is NaN, must be 0.001 to 100"},
		{"-rtt 2s", cli.ExitUsage, "-rtt is 2s, must be 0 to 1s"},
		{"-budget 1.5", cli.ExitUsage, "-budget is 1.5, must be 0 to 1"},
		{"-burst-loss -1", cli.ExitUsage, "-burst-loss is -1, must be 0 to 1"},
		{"-budget 0 -burst-loss 0", cli.ExitUsage, "-burst-loss is 0, must be above 0 where -budget is 0"},
		{"-waiting 2", cli.ExitUsage, "-waiting is 2, must be 0 to 1"},
		{"-calls 5", cli.ExitUsage, "-calls is 5, must be 100 to 1000000"},
		{"-refill 10000000", cli.ExitUsage, "lower -refill or -load"},
		{"-duration 1s", cli.ExitUsage, "-duration is for runs with -redis"},
		{"-redis x:1 -rtt 1ms", cli.ExitUsage, "-rtt is for simulations"},
		{"-redis nowhere", cli.ExitUsage, "-redis: \"nowhere\" is no host:port"},
		{"-redis 127.0.0.1:1", cli.ExitFailed, "redis does not answer"},
		{"-calls 100 -refill 1 -chart no/such/folder.svg", cli.ExitFailed, "-chart: open no/such/folder.svg"},
		{"now", cli.ExitUsage, `"now" is no flag`},
	} {
		status, stdout, stderr := tune(t.Context(), t, strings.Fields(tt.args)...)
		assert.Equal(t, tt.status, status, tt.args)
		assert.Contains(t, stderr, tt.says, tt.args)
		assert.Empty(t, stdout, tt.args)
	}
}

func TestInterrupt(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	status, stdout, stderr := tune(ctx, t)
	assert.Equal(t, cli.ExitFailed, status)
	assert.Contains(t, stderr, "after 0 of")
	assert.Empty(t, stdout)
}

// example is a result with figures that do not come from chance.
func example() *result {
	s := &settings{
		limit: quota.PerSecond(1000, 1000), place: place{4, 0.9, time.Millisecond}, budget: 0.1, burstLoss: 0.15, waiting: 0.05,
	}
	r := &result{settings: s}
	for i, c := range s.choices() {
		attack := min(1000*c.Budget, 1000*c.Share)
		w := row{
			choice: c, place: s.place, StoreCalls: 0.012 / c.Share, Waiting: float64(i%5) / 1000, P99: time.Duration(i%3) * time.Millisecond,
			Bound: int64(1000 * c.Budget), BurstLoss: c.burstLoss(), Attack: &attack, Admitted: 1,
		}
		if c.Size > 1 {
			w.StoreCalls *= 0.97 // not enough to matter
		}
		r.Rows = append(r.Rows, w)
	}
	r.choose()
	for _, p := range s.places() {
		w := r.Best
		w.place, w.StoreCalls = p, w.StoreCalls*float64(p.Replicas)/4/max(1, p.Load)
		r.Elsewhere = append(r.Elsewhere, w)
	}
	return r
}

func TestReport(t *testing.T) {
	got := example().report(tty.Style{}, 100)
	golden := filepath.Join("testdata", "report.txt")
	if os.Getenv("UPDATE_GOLDEN") != "" {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(golden, []byte(got), 0o644))
	}
	want, err := os.ReadFile(golden)
	require.NoError(t, err)
	require.Equal(t, string(want), got)
}

// Whatever the terminal, no table wraps, and what matters most stays: the first column and the recommendation.
func TestReportFitsEveryTerminal(t *testing.T) {
	r := example()
	for width := 25; width < 130; width += 3 {
		text, _, _ := strings.Cut(r.report(tty.Style{}, width), "Recommended")
		for line := range strings.Lines(text) {
			require.LessOrEqual(t, utf8.RuneCountInString(strings.TrimSuffix(line, "\n")), width, "%q", line)
		}
		require.Contains(t, text, "budget")
	}
}

func TestPicture(t *testing.T) {
	r := example()
	r.Rows[3].Attack = nil
	picture := r.picture()
	for d := xml.NewDecoder(strings.NewReader(picture)); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if !assert.NoError(t, err) {
			break
		}
	}
	for _, says := range []string{"budget (% of the capacity)", "share 25%", "size adapts", "round trip (ms)", "replicas", "p99 (ms)"} {
		assert.Contains(t, picture, says)
	}
}

func TestProgressIsForTerminals(t *testing.T) {
	var b bytes.Buffer
	progress(&b)(1, 2)
	require.Empty(t, b.String())
}

// The choice is the smallest budget, share and size among those that cost next to no more than the cheapest that is acceptable.
func TestChoose(t *testing.T) {
	at := func(budget, share float64, size int64, calls, waits float64) row {
		c := choice{budget, share, size}
		return row{choice: c, StoreCalls: calls, Waiting: waits, BurstLoss: c.burstLoss()}
	}
	s := &settings{budget: 0.1, burstLoss: 0.15, waiting: 0.05}
	r := &result{settings: s, Rows: []row{
		at(0, 0.1, 0, 0.5, 0),
		at(0.05, 0.2, 0, 0.205, 0.01),
		at(0.05, 0.2, 8, 0.2, 0.01),
		at(0.1, 0.25, 0, 0.19, 0.06), // waits too much
		at(0.1, 0.25, 8, 0.202, 0.01),
		at(0.1, 0.5, 0, 0.1, 0),  // loses too much of a burst
		at(0.2, 0.25, 0, 0.1, 0), // overshoots too much
		at(0.1, 0.1, 0, 0.6, 0),
	}}
	r.choose()
	assert.True(t, r.Fits)
	assert.Equal(t, 5, r.Fitting)
	assert.Equal(t, choice{0.05, 0.2, 0}, r.Best.choice)

	s.waiting = -1 // nobody can have that: the fewest that wait, and no fixed size
	r.Rows[0].Waiting, r.Rows[7].Waiting = 0.4, 0.3
	r.choose()
	assert.False(t, r.Fits)
	assert.Equal(t, choice{0.05, 0.2, 0}, r.Best.choice)
}
