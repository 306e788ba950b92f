package demo

import (
	"fmt"
	"math"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/leaselimit/leaselimit/cmd/leaselimit/internal/tty"
)

// title says what is going to happen.
func (f *fleet) title(style tty.Style) string {
	where := "in Redis"
	if f.shared.kind() == "memory" {
		where = fmt.Sprintf("in memory, %s away", f.latency)
	}
	refill := "never refilled"
	if f.limit.Refill > 0 {
		refill = tty.Count(f.limit.Refill) + " more each second"
	}
	return style.Bold(fmt.Sprintf("%s, one limit: %s tokens, %s", plural(int64(f.settings.replicas), "replica"),
		tty.Count(f.limit.Capacity), refill)) +
		fmt.Sprintf("\nTraffic is %s for %s: %s.\nThe shared bucket is %s.\n",
			f.traffic, f.duration, traffics[f.traffic].words, where)
}

// report says in words what came out, for a screen of that width.
func (r result) report(style tty.Style, width int) string {
	var b strings.Builder
	if r.Interrupted {
		fmt.Fprintf(&b, "\nInterrupted after %s.\n", r.Elapsed.Round(100*time.Millisecond))
	}
	fmt.Fprintf(&b, "\n%s of %s offered were admitted, with %s.\n\n",
		tty.Count(r.Admitted), plural(r.Offered, "call"), plural(r.StoreCalls, "store call"))
	b.WriteString(r.designs(style, width))
	fmt.Fprintf(&b, "\nOvershoot   %s\n", r.verdict(style))
	fmt.Fprintf(&b, "Undershoot  %s%s fewer than one ideal central bucket admits.\n", plural(r.Undershoot, "call"), of(r.Undershoot, r.Ideal))
	fmt.Fprintf(&b, "Waiting     %s of the admitted calls waited for the store, the others were decided in process.\n", percent(r.WaitedShare))
	r.notes(&b, style)
	return tty.Wrap(b.String(), width)
}

// A design is a line of the comparison.
type design struct {
	name            string
	admitted, calls int64
	per             float64
	p50, p99        time.Duration // 0: not measured
}

// designs compares this run with other designs that get the same calls: as a table, or where it does not fit, line by line.
func (r result) designs(style tty.Style, width int) string {
	all := []design{
		{"leaselimit", r.Admitted, r.StoreCalls, r.CallsPerAdmitted, r.P50, r.P99},
		{
			"store on every call", r.Ideal, r.PerRequest.StoreCalls, r.PerRequest.CallsPerAdmitted,
			r.PerRequest.P50, r.PerRequest.P99,
		},
		{name: plural(int64(r.Replicas), "separate limiter"), admitted: r.Naive},
	}
	if table := table(all); utf8.RuneCountInString(table[0]) <= width {
		table[0], table[1] = style.Dim(table[0]), style.Bold(table[1])
		return strings.Join(table, "\n") + "\n"
	}
	var b strings.Builder
	for _, d := range all {
		fmt.Fprintf(&b, "%s: admitted %s, store calls %s (%s per admitted), p50 %s, p99 %s\n", d.name,
			tty.Count(d.admitted), tty.Count(d.calls), perCall(d.per), timing(d.p50), timing(d.p99))
	}
	return b.String()
}

// table returns a line of heads and one for each design, all of one width.
func table(all []design) []string {
	rows := [][]string{{"", "admitted", "store calls", "per admitted", "p50", "p99"}}
	for _, d := range all {
		rows = append(rows, []string{
			d.name, tty.Count(d.admitted), tty.Count(d.calls), perCall(d.per), timing(d.p50), timing(d.p99),
		})
	}
	lines := make([]string, len(rows))
	for col := range rows[0] {
		width := 0
		for _, row := range rows {
			width = max(width, utf8.RuneCountInString(row[col]))
		}
		for i, row := range rows {
			lines[i] += fmt.Sprintf("%*s", width+2, row[col])
		}
	}
	return lines
}

func timing(d time.Duration) string {
	if d == 0 {
		return "-"
	}
	return tty.Duration(d)
}

func (r result) verdict(style tty.Style) string {
	found := fmt.Sprintf("%s of at most %s", tty.Number(r.Overshoot), plural(r.Bound, "token"))
	if r.Bound > 0 {
		found += " (" + percent(r.maxOvershoot) + " of the capacity)"
	}
	if r.BoundHeld {
		return found + ": " + style.Good("the bound held") + "."
	}
	return found + ": " + style.Bad("the bound is broken") + "."
}

// notes are about what does not happen in a run that is in order.
func (r result) notes(b *strings.Builder, style tty.Style) {
	note := func(format string, args ...any) {
		fmt.Fprintf(b, "%s        %s\n", style.Bad("Note"), fmt.Sprintf(format, args...))
	}
	if r.Degraded > 0 {
		note("%s refused because the store did not answer in time.", was(r.Degraded, "call"))
	}
	if r.Undecided > 0 {
		note("%s not decided, because of an error.", was(r.Undecided, "call"))
	}
	if r.Late > 20*time.Millisecond {
		note("1%% of the calls came more than %s late: this machine is too busy for such traffic.", tty.Duration(r.Late))
	}
	if r.ClockAhead > promised {
		note("the clock of Redis ran up to %s faster than this machine's; the bound allows %s.", percent(r.ClockAhead), percent(promised))
	}
}

func plural(n int64, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return tty.Count(n) + " " + noun
}

func was(n int64, noun string) string {
	if n == 1 {
		return plural(n, noun) + " was"
	}
	return plural(n, noun) + " were"
}

// of is a part of a whole in brackets, if there is a whole.
func of(part, whole int64) string {
	if whole == 0 {
		return ""
	}
	return " (" + percent(ratio(part, whole)) + ")"
}

func percent(f float64) string { return fmt.Sprintf("%.3g%%", math.Round(f*1e4)/100) }

// perCall is a number of calls per call: with two digits, however small.
func perCall(v float64) string {
	if v >= 10 {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.2g", v)
}
