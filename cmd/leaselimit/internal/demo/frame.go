package demo

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/leaselimit/leaselimit/cmd/leaselimit/internal/tty"
)

// column is one of the table. The first ones matter most: on a narrow terminal the last ones are left off.
type column struct {
	head  string
	width int
	value func(row) int64
}

var columns = []column{
	{"offered", 11, func(r row) int64 { return r.offered }},
	{"admitted", 11, func(r row) int64 { return r.admitted }},
	{"refused", 11, func(r row) int64 { return r.refused }},
	{"store calls", 13, func(r row) int64 { return r.storeCalls }},
	{"held", 9, func(r row) int64 { return r.held }},
}

const (
	nameWidth = 8
	besides   = 7 // lines of a frame that are no replica's: head, total, three of text, bar, and the one that the cursor is on
)

// frame is a run as lines for a terminal of that size: none is wider, and there are fewer than height. The last column stays
// empty, because some terminals wrap there.
func frame(s snapshot, width, height int, style tty.Style) []string {
	width--
	cols := columns
	for len(cols) > 1 && nameWidth+sum(cols) > width {
		cols = cols[:len(cols)-1]
	}
	cut := func(format string, args ...any) string { return tty.Clip(fmt.Sprintf(format, args...), width) }

	lines := []string{style.Dim(tty.Clip(heads(cols), width))}
	shown := len(s.rows)
	if room := height - besides; shown > room {
		shown = max(0, room-1) // and a line that says so
	}
	for i, r := range s.rows[:shown] {
		lines = append(lines, tty.Clip(cells(strconv.Itoa(i+1), r, cols), width))
	}
	if more := len(s.rows) - shown; more > 0 {
		lines = append(lines, style.Dim(cut("%*s", nameWidth+len(" more"), fmt.Sprintf("%d more", more))))
	}
	total := s.total()
	lines = append(lines, style.Bold(tty.Clip(cells("all", total, cols), width)))

	if b := s.bucket; b != nil {
		lines = append(lines, cut("shared bucket: %s of %s tokens, %s leased out",
			tty.Count(int64(max(0, b.Level))), tty.Count(s.bound.Limit.Capacity), tty.Count(b.Out)))
	} else {
		lines = append(lines, cut("shared bucket: no answer"))
	}
	l := s.bound.Limit
	most := l.Capacity + s.bound.Tokens + int64(float64(l.Refill)*s.elapsed.Seconds())
	lines = append(lines, cut("admitted %s of at most %s by now", tty.Count(total.admitted), tty.Count(most)))
	lines = append(lines, cut("overshoot %s of at most %s, undershoot %s",
		tty.Count(s.overshoot), tty.Count(s.bound.Tokens), tty.Count(s.undershoot)))
	lines = append(lines, tty.Clip(bar(s.elapsed, s.duration, width), width))
	if len(lines) >= height {
		lines = lines[len(lines)-max(1, height-1):]
	}
	return lines
}

func sum(cols []column) (n int) {
	for _, c := range cols {
		n += c.width
	}
	return n
}

func heads(cols []column) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%*s", nameWidth, "replica")
	for _, c := range cols {
		fmt.Fprintf(&b, "%*s", c.width, c.head)
	}
	return b.String()
}

func cells(name string, r row, cols []column) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%*s", nameWidth, name)
	for _, c := range cols {
		fmt.Fprintf(&b, "%*s", c.width, tty.Count(c.value(r)))
	}
	return b.String()
}

// bar is a progress bar and the time, at most width wide.
func bar(elapsed, duration time.Duration, width int) string {
	return tty.Bar(int64(elapsed), int64(duration), fmt.Sprintf("%.1fs of %s", elapsed.Seconds(), duration), width)
}
