// Package chart measures how accurate a fleet is and draws it: the overshoot beside its bound, and how many calls wait, against
// budget, lease share and number of replicas. Its test makes docs/img/accuracy.svg and the table of docs/accuracy.md.
package chart

import (
	"cmp"
	"fmt"
	"html"
	"math"
	"strings"
)

// A Point is one measured value.
type Point struct{ X, Y float64 }

// A Series is a line of points in the color of the same number.
type Series struct {
	Color  int // 0 to 4
	Name   string
	Points []Point
	Kind   Kind
}

// Kind is how a series is drawn.
type Kind int

// The kinds of series.
const (
	Measured Kind = iota // a line with dots
	Bound                // a broad, pale line, to be seen behind another
	Ordinary             // rings without a line
)

// A Panel is one plot. X values are put at even distances, as categories.
type Panel struct {
	Title, XName string
	XTicks       []float64
	XFormat      string
	YMax         float64 // the axis begins at 0
	YStep        float64
	YFormat      string // default "%g %%"
	Series       []Series
}

// A Row is panels side by side under a heading, with one axis title for all.
type Row struct {
	Title, Note, YName string
	Panels             []Panel
}

// Fit gives panels the same axis, long enough for all that is in them, with 2 to 5 steps.
func Fit(panels ...*Panel) {
	most := 0.0
	for _, p := range panels {
		for _, s := range p.Series {
			for _, q := range s.Points {
				most = max(most, q.Y)
			}
		}
	}
	if most == 0 {
		most = 1
	}
	step := math.Pow(10, math.Floor(math.Log10(most)))
	for _, part := range []float64{0.2, 0.5, 1, 2} {
		if most <= 5*part*step {
			step *= part
			break
		}
	}
	for _, p := range panels {
		p.YStep, p.YMax = step, step*math.Ceil(most/step-1e-9)
	}
}

// Lengths are in pixels.
const (
	plotWidth, plotHeight = 246, 170
	left, gap             = 62, 52
	rowTop, rowHeight     = 68, 312
	width                 = left + 3*plotWidth + 2*gap + 24
	style                 = `
    text { font: 12px system-ui, "Segoe UI", Helvetica, Arial, sans-serif; fill: #1f2328 }
    .head { font-size: 15px; font-weight: 600 } .note, .small { fill: #59636e } .small { font-size: 11px }
    .bg { fill: #ffffff } .grid { stroke: #d1d9e0; stroke-width: 1 } .axis { stroke: #59636e; stroke-width: 1 }
    .line { fill: none; stroke-width: 2 } .bound { fill: none; stroke-width: 8; stroke-opacity: 0.3 }
    .ring { fill: none; stroke-width: 1.5 }
    .s0 { stroke: #0969da } .s1 { stroke: #c2410c } .s2 { stroke: #1a7f37 } .s3 { stroke: #8250df } .s4 { stroke: #59636e }
    .f0 { fill: #0969da } .f1 { fill: #c2410c } .f2 { fill: #1a7f37 } .f3 { fill: #8250df } .f4 { fill: #59636e }
    @media (prefers-color-scheme: dark) {
      text { fill: #e6edf3 } .note, .small { fill: #9198a1 }
      .bg { fill: #0d1117 } .grid { stroke: #30363d } .axis { stroke: #9198a1 }
      .s0 { stroke: #58a6ff } .s1 { stroke: #ff9e64 } .s2 { stroke: #56d364 } .s3 { stroke: #d2a8ff } .s4 { stroke: #9198a1 }
      .f0 { fill: #58a6ff } .f1 { fill: #ff9e64 } .f2 { fill: #56d364 } .f3 { fill: #d2a8ff } .f4 { fill: #9198a1 }
    }
  `
)

// SVG draws rows of panels, readable on light and on dark ground.
func SVG(title, description string, rows []Row) string {
	var b strings.Builder
	height := len(rows) * rowHeight
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img">`+"\n",
		width, height, width, height)
	fmt.Fprintf(&b, "  <title>%s</title>\n  <desc>%s</desc>\n  <style>%s</style>\n", html.EscapeString(title),
		html.EscapeString(description), style)
	fmt.Fprintf(&b, `  <rect class="bg" width="%d" height="%d"/>`+"\n", width, height)
	for i, r := range rows {
		r.draw(&b, float64(i*rowHeight))
	}
	b.WriteString("</svg>\n")
	return b.String()
}

func (r *Row) draw(b *strings.Builder, y float64) {
	text(b, left, y+22, "head", "start", r.Title)
	text(b, left, y+39, "note", "start", r.Note)
	middle := y + rowTop + plotHeight/2
	fmt.Fprintf(b, `  <text x="16" y="%g" text-anchor="middle" transform="rotate(-90 16 %g)">%s</text>`+"\n", middle, middle,
		html.EscapeString(r.YName))
	for i := range r.Panels {
		r.Panels[i].draw(b, float64(left+i*(plotWidth+gap)), y+rowTop)
	}
}

func text(b *strings.Builder, x, y float64, class, anchor, s string) {
	fmt.Fprintf(b, `  <text x="%g" y="%g" class="%s" text-anchor="%s">%s</text>`+"\n", x, y, class, anchor, html.EscapeString(s))
}

func (p *Panel) draw(b *strings.Builder, x, y float64) {
	at := func(q Point) (float64, float64) {
		i := 0
		for i < len(p.XTicks)-1 && p.XTicks[i] != q.X {
			i++
		}
		px := x + plotWidth*(float64(i)+0.5)/float64(len(p.XTicks))
		return math.Round(px*10) / 10, math.Round((y+plotHeight*(1-q.Y/p.YMax))*10) / 10
	}
	for v := 0.0; v <= p.YMax+1e-9; v += p.YStep {
		_, py := at(Point{0, v})
		class := "grid"
		if v == 0 {
			class = "axis"
		}
		fmt.Fprintf(b, `  <path class="%s" d="M%g %gH%g"/>`+"\n", class, x, py, x+plotWidth)
		text(b, x-6, py+4, "small", "end", fmt.Sprintf(cmp.Or(p.YFormat, "%g %%"), math.Round(v*1e6)/1e6))
	}
	for _, v := range p.XTicks {
		px, _ := at(Point{v, 0})
		text(b, px, y+plotHeight+16, "small", "middle", fmt.Sprintf(p.XFormat, v))
	}
	text(b, x+plotWidth/2, y+plotHeight+33, "", "middle", p.XName)
	text(b, x+plotWidth, y-8, "small", "end", p.Title)
	for _, s := range p.Series {
		var path strings.Builder
		for i, q := range s.Points {
			px, py := at(q)
			if i == 0 {
				fmt.Fprintf(&path, "M%g %g", px, py)
			} else {
				fmt.Fprintf(&path, "L%g %g", px, py)
			}
			switch s.Kind {
			case Measured:
				fmt.Fprintf(b, `  <circle class="f%d" cx="%g" cy="%g" r="3"/>`+"\n", s.Color, px, py)
			case Ordinary:
				fmt.Fprintf(b, `  <circle class="ring s%d" cx="%g" cy="%g" r="4.5"/>`+"\n", s.Color, px, py)
			}
		}
		switch s.Kind {
		case Measured:
			fmt.Fprintf(b, `  <path class="line s%d" d="%s"/>`+"\n", s.Color, path.String())
		case Bound:
			fmt.Fprintf(b, `  <path class="bound s%d" d="%s"/>`+"\n", s.Color, path.String())
		}
	}
	p.legend(b, x, y+plotHeight+50)
}

// legend names the series that have a name, under the plot.
func (p *Panel) legend(b *strings.Builder, x, y float64) {
	from := x
	for _, s := range p.Series {
		if s.Name == "" {
			continue
		}
		space := 36 + 6*float64(len(s.Name))
		if x+space > from+plotWidth+20 {
			x, y = from, y+16
		}
		switch s.Kind {
		case Measured:
			fmt.Fprintf(b, `  <path class="line s%d" d="M%g %gh18"/><circle class="f%d" cx="%g" cy="%g" r="3"/>`+"\n", s.Color, x, y-4,
				s.Color, x+9, y-4)
		case Bound:
			fmt.Fprintf(b, `  <path class="bound s%d" d="M%g %gh18"/>`+"\n", s.Color, x, y-4)
		case Ordinary:
			fmt.Fprintf(b, `  <circle class="ring s%d" cx="%g" cy="%g" r="4.5"/>`+"\n", s.Color, x+9, y-4)
		}
		text(b, x+23, y, "small", "start", s.Name)
		x += space
	}
}
