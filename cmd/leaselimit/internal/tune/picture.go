package tune

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/leaselimit/leaselimit/internal/chart"
)

// A measure is what can be drawn of a row.
type measure struct {
	name, format string
	of           func(row) float64
}

var (
	storeCalls = measure{"store calls a call", "%g", func(w row) float64 { return w.StoreCalls }}
	p99ms      = measure{"p99 (ms)", "%g", func(w row) float64 { return float64(w.P99) / float64(time.Millisecond) }}
	waiting    = measure{"admitted calls that waited", "%g %%", func(w row) float64 { return 100 * w.Waiting }}
)

// An axis is what they are drawn against.
type axis struct {
	name, format string
	of           func(row) float64
}

var (
	budgets = axis{"budget (% of the capacity)", "%g %%", func(w row) float64 { return tidy(100 * w.Budget) }}
	shares  = axis{"lease share (% of the capacity)", "%g %%", func(w row) float64 { return tidy(100 * w.Share) }}
	others  = []axis{
		{"replicas", "%g", func(w row) float64 { return float64(w.Replicas) }},
		{"load (times the refill)", "%g", func(w row) float64 { return w.Load }},
		{"round trip (ms)", "%g", func(w row) float64 { return float64(w.RTT) / float64(time.Millisecond) }},
	}
)

// picture draws the result.
func (r *result) picture() string {
	attack := measure{"overshoot an attack reached", "%g %%", func(w row) float64 {
		if w.Attack == nil {
			return 0
		}
		return 100 * *w.Attack / float64(r.limit.Capacity)
	}}
	best := r.Best.choice
	rows := []chart.Row{
		r.row("Against the budget", "One line for each lease share.", budgets, []measure{storeCalls, p99ms, attack}, r.shown(),
			func(w row) string { return "share " + percent(w.Share) }),
		r.row("Against the lease share", fmt.Sprintf("Budget %s. One line for each lease size, in tokens.", percent(best.Budget)), shares,
			[]measure{storeCalls, p99ms, waiting}, filter(r.Rows, func(w row) bool { return w.Budget == best.Budget }),
			func(w row) string { return "size " + size(w.Size) }),
	}
	note := fmt.Sprintf("Budget %s, share %s, size %s. One thing differs from %d replicas, a load of %g", percent(best.Budget), percent(best.Share),
		size(best.Size), r.place.Replicas, r.place.Load)
	if r.redis == "" {
		note += fmt.Sprintf(" and a round trip of %s", r.place.RTT)
	}
	rows = append(rows, r.elsewhere(storeCalls, note), r.elsewhere(waiting, note))
	return chart.SVG("Settings of a limiter", "Store calls, waiting and overshoot against budget, lease share, replicas, load and round trip.", rows)
}

// row is a panel for each measure, with a line for each name that rows have.
func (r *result) row(title, note string, x axis, measures []measure, rows []row, name func(row) string) chart.Row {
	drawn := chart.Row{Title: title, Note: note}
	for _, m := range measures {
		p := panel(x, m, rows)
		var names []string
		for _, w := range rows {
			i := slices.Index(names, name(w))
			if i < 0 {
				i = len(names)
				names = append(names, name(w))
				p.Series = append(p.Series, chart.Series{Color: i % 5, Name: name(w)})
			}
			p.Series[i].Points = append(p.Series[i].Points, chart.Point{X: x.of(w), Y: m.of(w)})
		}
		chart.Fit(&p)
		drawn.Panels = append(drawn.Panels, p)
	}
	return drawn
}

// elsewhere is a panel for each thing that is not the limiter's to choose.
func (r *result) elsewhere(m measure, note string) chart.Row {
	drawn := chart.Row{Title: "The recommended setting elsewhere: " + m.name, Note: note}
	var panels []*chart.Panel
	for i, x := range others {
		if i == 2 && r.redis != "" {
			break
		}
		// What differs from here, if anything, is x.
		rows := filter(r.Elsewhere, func(w row) bool {
			for k, y := range others {
				if k != i && y.of(w) != y.of(row{place: r.place}) {
					return false
				}
			}
			return true
		})
		slices.SortFunc(rows, func(a, b row) int { return cmp.Compare(x.of(a), x.of(b)) })
		p := panel(x, m, rows)
		p.Title = ""
		s := chart.Series{}
		for _, w := range rows {
			s.Points = append(s.Points, chart.Point{X: x.of(w), Y: m.of(w)})
		}
		p.Series = []chart.Series{s}
		drawn.Panels = append(drawn.Panels, p)
	}
	for i := range drawn.Panels {
		panels = append(panels, &drawn.Panels[i])
	}
	chart.Fit(panels...)
	return drawn
}

func panel(x axis, m measure, rows []row) chart.Panel {
	p := chart.Panel{Title: m.name, XName: x.name, XFormat: x.format, YFormat: m.format}
	for _, w := range rows {
		p.XTicks = append(p.XTicks, x.of(w))
	}
	slices.Sort(p.XTicks)
	p.XTicks = slices.Compact(p.XTicks)
	return p
}
