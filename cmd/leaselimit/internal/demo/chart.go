package demo

import (
	"fmt"
	"html/template"
	"math"
	"strings"
	"time"

	"github.com/leaselimit/leaselimit"
	"github.com/leaselimit/leaselimit/cmd/leaselimit/internal/tty"
)

// A chart shows what the replicas admitted so far, one above the other, below the line of the limit.
type chart struct {
	Style               template.CSS
	Width, Height       int // of the plot, in the units of the drawing
	Areas               []area
	Limit, Bound        string // polylines
	Xs, Ys              []tick
	Admitted, Most      string // now
	Elapsed, Duration   time.Duration
	LimitText, Overhead string
}

// An area is one replica, or the last ones together.
type area struct {
	Class    string
	Name     string
	Points   string
	Admitted string
	Share    string
}

type tick struct {
	At   float64
	Text string
}

const (
	chartWidth, chartHeight = 900, 380
	maxAreas                = 8 // colours
)

// newChart draws samples of a run of that duration under the bound.
func newChart(samples []sample, b leaselimit.Bound, duration time.Duration) chart {
	c := chart{
		Style: template.CSS(webStyle), Width: chartWidth, Height: chartHeight, Duration: duration,
		LimitText: b.Limit.String(), Overhead: tty.Count(b.Tokens),
	}
	limit := func(at time.Duration) float64 {
		return float64(b.Limit.Capacity) + b.Limit.PerMillisecond()*at.Seconds()*1000
	}
	top := limit(duration) + float64(b.Tokens)
	x := func(at time.Duration) float64 { return chartWidth * min(1, at.Seconds()/duration.Seconds()) }
	y := func(n float64) float64 { return chartHeight * (1 - min(1, n/top)) }
	c.Limit = line(x(0), y(limit(0)), x(duration), y(limit(duration)))
	c.Bound = line(x(0), y(limit(0)+float64(b.Tokens)), x(duration), y(top))
	for i := range 5 {
		n, at := top*float64(i)/4, duration*time.Duration(i)/4
		c.Ys = append(c.Ys, tick{y(n), tty.Count(int64(n))})
		c.Xs = append(c.Xs, tick{x(at), at.Round(10 * time.Millisecond).String()})
	}
	if len(samples) == 0 {
		return c
	}
	last := samples[len(samples)-1]
	total := sumOf(last.admitted)
	c.Elapsed = min(duration, last.at).Round(100 * time.Millisecond)
	c.Admitted, c.Most = tty.Count(total), tty.Count(int64(limit(min(duration, last.at)))+b.Tokens)
	for i := range min(maxAreas, len(last.admitted)) {
		from, to := i, i+1
		if i == maxAreas-1 {
			to = len(last.admitted)
		}
		a := area{Class: fmt.Sprint("s", i), Name: fmt.Sprint("replica ", i+1)}
		if to-from > 1 {
			a.Name = fmt.Sprintf("replicas %d to %d", from+1, to)
		}
		n := sumOf(last.admitted[from:to])
		a.Admitted, a.Share = tty.Count(n), fmt.Sprintf("%.0f %%", 100*float64(n)/math.Max(1, float64(total)))
		var above, below []string
		for _, s := range samples {
			above = append(above, point(x(s.at), y(float64(sumOf(s.admitted[:to])))))
			below = append([]string{point(x(s.at), y(float64(sumOf(s.admitted[:from]))))}, below...)
		}
		a.Points = strings.Join(append(above, below...), " ")
		c.Areas = append(c.Areas, a)
	}
	return c
}

func sumOf(all []int64) (n int64) {
	for _, v := range all {
		n += v
	}
	return n
}

func point(x, y float64) string { return fmt.Sprintf("%.1f,%.1f", x, y) }

func line(x1, y1, x2, y2 float64) string { return point(x1, y1) + " " + point(x2, y2) }
