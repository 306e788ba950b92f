package chart_test

import (
	"encoding/xml"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leaselimit/leaselimit"
	"github.com/leaselimit/leaselimit/internal/chart"
	"github.com/leaselimit/leaselimit/internal/fleet"
	"github.com/leaselimit/leaselimit/membucket"
	"github.com/leaselimit/leaselimit/quota"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var (
	out   = flag.String("out", "", "measure the whole grid and write accuracy.svg into this folder")
	table = flag.String("table", "", "measure the whole table of waiting and put it between the marks in this Markdown file")
	seed  = flag.Uint64("seed", 1, "seed of the load")
)

const rtt = time.Millisecond

// The marks of the table of waiting in docs/accuracy.md.
const begin, end = "<!-- make chart -->", "<!-- end of make chart -->"

// setting is one place of the grid; load 0 is the attack.
type setting struct {
	limit         quota.Limit
	budget, share float64
	replicas      int
	load          float64
}

type value struct {
	overshoot, bound, waited float64 // in percent of the capacity, and of the admitted calls
}

type grid struct {
	limits          []quota.Limit
	budgets, shares []float64
	replicas        []int
	loads           []float64
	calls           float64       // of a run
	least           time.Duration // that a run lasts
}

func whole() grid {
	return grid{
		limits:  []quota.Limit{quota.PerSecond(1000, 1000), quota.PerSecond(10, 100)},
		budgets: []float64{0, 0.05, 0.1, 0.25, 0.5}, shares: []float64{0.1, 0.25, 0.5},
		replicas: []int{1, 4, 10, 50}, loads: []float64{0.5, 0.9, 1.5, 5},
		calls: 8000, least: 20 * time.Second,
	}
}

func tiny() grid {
	return grid{
		limits:  []quota.Limit{quota.PerSecond(1000, 1000), quota.PerSecond(10, 100)},
		budgets: []float64{0, 0.1, 0.5}, shares: []float64{0.25, 0.5},
		replicas: []int{1, 4}, loads: []float64{0.9, 5},
		calls: 300, least: 0,
	}
}

func limiter(budget, share float64) leaselimit.Config {
	return leaselimit.Config{MaxOvershoot: budget, Exact: budget == 0, LeaseShare: share}
}

// duration is how long a load lasts that makes so many calls.
func (s *setting) duration(calls float64, least time.Duration) time.Duration {
	return max(least, time.Duration(calls/(s.limit.PerMillisecond()*s.load)*1e6))
}

func (s *setting) run(t *testing.T, calls float64, least time.Duration) (v value) {
	t.Helper()
	percent := 100 / float64(s.limit.Capacity)
	synctest.Test(t, func(t *testing.T) {
		if s.load == 0 {
			over, budget, err := chart.Attack(membucket.New(), s.limit, limiter(s.budget, s.share), s.replicas)
			require.NoError(t, err)
			assert.LessOrEqual(t, over, float64(budget)+1e-6, "%+v", *s)
			v = value{overshoot: max(0, over) * percent, bound: float64(budget) * percent}
			return
		}
		r, err := fleet.Run(fleet.Config{
			Limit: s.limit, Replicas: s.replicas, Load: s.load, Duration: s.duration(calls, least), RTT: rtt,
			Limiter: limiter(s.budget, s.share), Seed: *seed, Store: membucket.New(),
		})
		require.NoError(t, err)
		// What is refilled during a round trip is what calls in flight can add.
		flight := s.limit.PerMillisecond() * rtt.Seconds() * 1000
		bound := s.budget * float64(s.limit.Capacity)
		assert.LessOrEqual(t, r.Overshoot, bound+flight+1e-6, "%+v", *s)
		v = value{overshoot: max(0, r.Overshoot) * percent, bound: bound * percent, waited: 100 * r.Waiting()}
	})
	return v
}

// measure runs the whole grid.
func (g *grid) measure(t *testing.T) map[setting]value {
	t.Helper()
	values := map[setting]*value{}
	t.Run("runs", func(t *testing.T) {
		for _, limit := range g.limits {
			for _, budget := range g.budgets {
				for _, share := range g.shares {
					for _, n := range g.replicas {
						for _, load := range append([]float64{0}, g.loads...) {
							s, v := setting{limit, budget, share, n, load}, new(value)
							values[s] = v
							t.Run("", func(t *testing.T) {
								t.Parallel()
								*v = s.run(t, g.calls, g.least)
							})
						}
					}
				}
			}
		}
	})
	done := map[setting]value{}
	for s, v := range values {
		done[s] = *v
	}
	return done
}

// worst is the largest of what pick chooses among the settings that match.
func worst(values map[setting]value, match func(setting) bool, pick func(value) float64) (most float64) {
	for s, v := range values {
		if match(s) {
			most = max(most, pick(v))
		}
	}
	return most
}

func overshoot(v value) float64 { return v.overshoot }
func waited(v value) float64    { return v.waited }

// axis is one of the three that everything is drawn against.
type axis struct {
	name, format string
	ticks        []float64
	of           func(setting) float64
	at           func(setting) bool // the others, where they are held
	held         string
}

func (g *grid) axes() []axis {
	in := func(x float64, all []float64) bool { return slices.Contains(all, x) }
	budget, share, n := 0.1, 0.25, g.replicas[len(g.replicas)-1]
	if !in(budget, g.budgets) || !in(share, g.shares) {
		panic("the grid lacks the defaults")
	}
	scale := func(f []float64) (p []float64) {
		for _, x := range f {
			p = append(p, 100*x)
		}
		return p
	}
	var counts []float64
	for _, n := range g.replicas {
		counts = append(counts, float64(n))
	}
	return []axis{
		{
			"budget (% of the capacity)", "%g %%", scale(g.budgets), func(s setting) float64 { return 100 * s.budget },
			func(s setting) bool { return s.share == share && s.replicas == n }, fmt.Sprintf("share 25 %%, %d replicas", n),
		},
		{
			"lease share (% of the capacity)", "%g %%", scale(g.shares), func(s setting) float64 { return 100 * s.share },
			func(s setting) bool { return s.budget == budget && s.replicas == n }, fmt.Sprintf("budget 10 %%, %d replicas", n),
		},
		{
			"replicas", "%g", counts, func(s setting) float64 { return float64(s.replicas) },
			func(s setting) bool { return s.budget == budget && s.share == share }, "budget 10 %, share 25 %",
		},
	}
}

// line is, for each tick of the axis, the largest value among the settings that match.
func line(values map[setting]value, a axis, match func(setting) bool, pick func(value) float64) (points []chart.Point) {
	for _, x := range a.ticks {
		points = append(points, chart.Point{
			X: x, Y: worst(values, func(s setting) bool { return a.of(s) == x && match(s) }, pick),
		})
	}
	return points
}

func (g *grid) overshootRow(values map[setting]value) chart.Row {
	row := chart.Row{
		Title: "Overshoot: the attack, ordinary loads, and the bound", YName: "overshoot (% of the capacity)",
		Note: "Dots: an attack fills the leases, waits until the bucket is full and spends everything at once. Pale: the bound. " +
			"Rings: Poisson loads.",
	}
	for i, a := range g.axes() {
		p := chart.Panel{XName: a.name, XTicks: a.ticks, XFormat: a.format, YMax: 54, YStep: 10}
		attack := func(s setting) bool { return s.load == 0 }
		if i == 0 {
			p.Title = "every number of replicas"
			p.Series = append(p.Series, chart.Series{
				Color: 4, Name: "bound", Kind: chart.Bound, Points: line(values, a, attack, func(v value) float64 { return v.bound }),
			})
			for k, share := range slices.Backward(g.shares) {
				p.Series = append(p.Series, chart.Series{
					Color: k, Name: named(len(p.Series) == 1, "share %g %%", 100*share),
					Points: line(values, a, func(s setting) bool { return attack(s) && s.share == share }, overshoot),
				})
			}
		} else {
			p.Title = []string{"", "every number of replicas", "share 25 %"}[i]
			for k, budget := range g.budgets {
				at := func(s setting) bool { return attack(s) && s.budget == budget && (i == 1 || s.share == 0.25) }
				p.Series = append(
					p.Series,
					chart.Series{Color: k, Kind: chart.Bound, Points: line(values, a, at, func(v value) float64 { return v.bound })},
					chart.Series{Color: k, Name: named(k == 0, "budget %g %%", 100*budget), Points: line(values, a, at, overshoot)},
				)
			}
		}
		at := func(s setting) bool { return s.load > 0 && (i < 2 || s.share == 0.25) }
		p.Series = append(p.Series, chart.Series{
			Color: 4, Name: "ordinary load", Kind: chart.Ordinary, Points: line(values, a, at, overshoot),
		})
		row.Panels = append(row.Panels, p)
	}
	return row
}

func (g *grid) waitingRow(values map[setting]value, limit quota.Limit) chart.Row {
	row := chart.Row{
		Title: "Waiting: a limit of " + name(limit), YName: "admitted calls that waited",
		Note: "Share of the admitted calls that waited for the store. Loads as multiples of the refill, evenly over the replicas.",
	}
	var panels []*chart.Panel
	for _, a := range g.axes() {
		p := chart.Panel{Title: a.held, XName: a.name, XTicks: a.ticks, XFormat: a.format}
		for k, load := range g.loads {
			p.Series = append(p.Series, chart.Series{
				Color: k, Name: named(k == 0, "load %g", load),
				Points: line(values, a, func(s setting) bool { return s.load == load && s.limit == limit && a.at(s) }, waited),
			})
		}
		row.Panels = append(row.Panels, p)
	}
	for i := range row.Panels {
		panels = append(panels, &row.Panels[i])
	}
	chart.Fit(panels...)
	return row
}

// named is the name of a series in the legend: only the first says of what.
func named(first bool, format string, x float64) string {
	if !first {
		_, format, _ = strings.Cut(format, " ")
	}
	return fmt.Sprintf(format, x)
}

// name is a limit in words. The refill of those here is per second.
func name(l quota.Limit) string {
	return fmt.Sprintf("%d at %g/s", l.Capacity, l.PerMillisecond()*1000)
}

func (g *grid) svg(values map[setting]value) string {
	rows := []chart.Row{g.overshootRow(values)}
	for _, limit := range g.limits {
		rows = append(rows, g.waitingRow(values, limit))
	}
	return chart.SVG("Accuracy of a fleet",
		"Overshoot beside its bound, and the share of admitted calls that waited, against budget, lease share and replicas.", rows)
}

// TestChart holds the measured overshoot below its bound on a grid, and draws it. With -out it is the whole grid.
func TestChart(t *testing.T) {
	g := tiny()
	if *out != "" {
		g = whole()
	}
	values := g.measure(t)
	for s, v := range values {
		if s.load == 0 {
			// The attack is as good as the leases allow: the budget, or what may be leased.
			each := max(1, int64(s.share*float64(s.limit.Capacity))/int64(s.replicas))
			held := min(each*int64(s.replicas), int64(s.share*float64(s.limit.Capacity)))
			reach := min(s.budget*100, 100*float64(held)/float64(s.limit.Capacity))
			assert.InDelta(t, reach, v.overshoot, 0.1*reach+1e-6, "%+v", s)
		}
	}
	picture := g.svg(values)
	for d := xml.NewDecoder(strings.NewReader(picture)); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if !assert.NoError(t, err, "not well-formed") {
			break
		}
	}
	if *out != "" {
		require.NoError(t, os.WriteFile(filepath.Join(*out, "accuracy.svg"), []byte(picture), 0o644))
	}
}

// expected is the figure of the simulation that the protocol was designed with, for loads below the limit.
func expected(s setting) string {
	perTenant := float64(s.limit.Capacity) / float64(s.replicas)
	each := s.limit.PerMillisecond() * 1000 * s.load / float64(s.replicas)
	switch {
	case s.load > 1:
		return "-"
	case perTenant < 4:
		return fmt.Sprintf("about %.0f", 100*(1-perTenant/4))
	case each < 0.2:
		return "-"
	}
	return "below 5"
}

// TestTable measures waiting and calls to the store with the default settings. With -table it is the table of
// docs/accuracy.md.
func TestTable(t *testing.T) {
	limits := []quota.Limit{quota.PerSecond(2, 20), quota.PerSecond(10, 100), quota.PerSecond(1000, 1000)}
	replicas, loads := []int{1, 4, 10, 50}, []float64{0.1, 0.5, 0.9, 1.5, 5}
	calls, least := 10_000.0, time.Minute
	if *table == "" {
		replicas, loads, calls, least = []int{4}, []float64{0.5, 5}, 500, 0
	}
	type cell struct {
		setting

		told, untold fleet.Result
	}
	var cells []*cell
	t.Run("runs", func(t *testing.T) {
		for _, limit := range limits {
			for _, n := range replicas {
				for _, load := range loads {
					c := &cell{setting: setting{limit, 0.1, 0.25, n, load}}
					cells = append(cells, c)
					for hint, into := range map[int]*fleet.Result{n: &c.told, 0: &c.untold} {
						t.Run("", func(t *testing.T) {
							t.Parallel()
							synctest.Test(t, func(t *testing.T) {
								r, err := fleet.Run(fleet.Config{
									Limit: limit, Replicas: n, Load: load, Duration: c.duration(calls, least), RTT: rtt,
									Limiter: leaselimit.Config{Replicas: hint}, Seed: *seed, Store: membucket.New(),
								})
								require.NoError(t, err)
								*into = r
							})
						})
					}
				}
			}
		}
	})
	var b strings.Builder
	b.WriteString("| limit | replicas | load | calls/s each | waited | n unknown | designed | store calls | admitted |\n")
	b.WriteString("|---|---:|---:|---:|---:|---:|---:|---:|---:|\n")
	for _, c := range cells {
		fmt.Fprintf(&b, "| %s | %d | %g | %.3g | %.1f | %.1f | %s | %.3f | %.3f |\n", name(c.limit), c.replicas, c.load,
			c.limit.PerMillisecond()*1000*c.load/float64(c.replicas), 100*c.told.Waiting(), 100*c.untold.Waiting(),
			expected(c.setting), c.told.StoreCalls(), c.told.Share())
		assert.Positive(t, c.told.Admitted, "%+v", c.setting)
	}
	if *table != "" {
		page, err := os.ReadFile(*table)
		require.NoError(t, err)
		before, rest, found := strings.Cut(string(page), begin)
		_, after, ended := strings.Cut(rest, end)
		require.True(t, found && ended, "no marks in %s", *table)
		page = []byte(before + begin + "\n" + b.String() + end + after)
		require.NoError(t, os.WriteFile(*table, page, 0o644))
	}
}
