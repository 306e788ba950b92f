package tune

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/leaselimit/leaselimit/cmd/leaselimit/internal/tty"
)

// column is one of a table. The first ones matter most: on a narrow terminal the last ones are left off.
type column struct {
	head  string
	width int
	value func(row) string
}

var (
	budgetColumn = column{"budget", 7, func(w row) string { return percent(w.Budget) }}
	shareColumn  = column{"share", 7, func(w row) string { return percent(w.Share) }}
	sizeColumn   = column{"size", 7, func(w row) string { return size(w.Size) }}
	costColumns  = []column{
		{"store calls", 13, func(w row) string { return ratio(w.StoreCalls) }},
		{"waiting", 9, func(w row) string { return percent(w.Waiting) }},
		{"p99", 9, func(w row) string { return tty.Duration(w.P99) }},
	}
	promiseColumns = []column{
		{"bound", 8, func(w row) string { return tty.Count(w.Bound) }},
		{"attack", 8, func(w row) string {
			if w.Attack == nil {
				return "-"
			}
			return fmt.Sprintf("%.0f", *w.Attack)
		}},
		{"burst loss", 12, func(w row) string { return percent(w.BurstLoss) }},
	}
	placeColumns = []column{
		{"replicas", 9, func(w row) string { return fmt.Sprint(w.Replicas) }},
		{"load", 6, func(w row) string { return fmt.Sprintf("%g", w.Load) }},
		{"rtt", 8, func(w row) string { return tty.Duration(w.RTT) }},
	}
)

func size(n int64) string {
	if n == 0 {
		return "adapts"
	}
	return tty.Count(n)
}

// table writes rows for a screen of that width. The one that is marked has a star.
func table(rows []row, cols []column, marked func(row) bool, width int) string {
	for used := 2; ; used = 2 {
		for _, c := range cols {
			used += c.width
		}
		if used <= width || len(cols) == 1 {
			break
		}
		cols = cols[:len(cols)-1]
	}
	var b strings.Builder
	line := func(mark string, text func(column) string) {
		b.WriteString(mark)
		for _, c := range cols {
			fmt.Fprintf(&b, "%*s", c.width, text(c))
		}
		b.WriteByte('\n')
	}
	line("  ", func(c column) string { return c.head })
	for _, w := range rows {
		mark := "  "
		if marked(w) {
			mark = "* "
		}
		line(mark, func(c column) string { return c.value(w) })
	}
	return b.String()
}

// shown are the rows of the table: for each budget and share the best size, by the rules of choose.
func (r *result) shown() (rows []row) {
	for _, w := range r.Rows {
		last := len(rows) - 1
		if last < 0 || rows[last].Budget != w.Budget || rows[last].Share != w.Share {
			rows = append(rows, w)
		} else if w.choice == r.Best.choice ||
			rows[last].choice != r.Best.choice && w.StoreCalls < rows[last].StoreCalls*(1-noise)-0.0005 {
			rows[last] = w
		}
	}
	return rows
}

// report is the result in words, for a screen of that width.
func (r *result) report(style tty.Style, width int) string {
	var b strings.Builder
	where := fmt.Sprintf("simulated, %s from the store", r.place.RTT)
	if r.redis != "" {
		where = "on Redis, " + r.duration.String() + " for each run"
	}
	per := "each " + r.limit.Per.String()
	if r.limit.Per == time.Second {
		per = "each second"
	}
	b.WriteString(tty.Wrap(style.Bold(fmt.Sprintf("%s tokens, %s more %s; %d replicas, %g times the refill; %s", tty.Count(r.limit.Capacity),
		tty.Count(r.limit.Refill), per, r.place.Replicas, r.place.Load, where)), width) + "\n\n")
	cols := append([]column{budgetColumn, shareColumn, sizeColumn}, costColumns...)
	b.WriteString(table(r.shown(), append(cols, promiseColumns...), func(w row) bool { return w.choice == r.Best.choice }, width))
	legend := "\nStore calls are for each call, waiting is the part of the admitted calls that did, p99 is of all calls. Bound and attack are " +
		"tokens: what may be admitted too much, and what a load that was after it reached. Burst loss is what of a burst on one replica may " +
		"be refused while others hold leases."
	if r.redis != "" {
		legend += " The attack is simulated. A run begins with nothing, so that each replica waits at first: where it makes less than some " +
			"thousand calls, that counts for too much, and -duration should be longer."
	} else {
		legend += " Computing takes no time here: a call decided from memory takes 0s."
	}
	b.WriteString(tty.Wrap(legend+"\n", width))

	b.WriteString("\n" + style.Bold("The starred one elsewhere") + "\n\n")
	cols = placeColumns
	if r.redis != "" {
		cols = cols[:2]
	}
	b.WriteString(table(r.Elsewhere, append(append([]column{}, cols...), costColumns...), func(w row) bool { return w.place == r.place }, width))

	b.WriteString("\n" + style.Bold("Recommended") + "\n\n" + r.config() + "\n" + tty.Wrap(r.reason(), width) + "\n")
	return b.String()
}

func (r *result) writeJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(struct {
		Store       string        `json:"store"`
		Capacity    int64         `json:"capacity"`
		Refill      int64         `json:"refill"`
		Per         time.Duration `json:"per_ns"`
		Recommended row           `json:"recommended"`
		Fits        bool          `json:"fits"`
		Config      string        `json:"config"`
		Reason      string        `json:"reason"`
		Rows        []row         `json:"rows"`
		Elsewhere   []row         `json:"elsewhere"`
	}{
		map[bool]string{true: "memory", false: "redis"}[r.redis == ""],
		r.limit.Capacity, r.limit.Refill, r.limit.Per, r.Best, r.Fits, r.config(), r.reason(), r.Rows, r.Elsewhere,
	})
}
