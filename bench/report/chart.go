package main

import (
	"errors"
	"image/color"
	"math"
	"os"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Colors of Okabe and Ito, which people who see fewer colors tell apart, and shapes for those who see none.
var (
	colors = []color.Color{
		color.RGBA{0x00, 0x72, 0xb2, 0xff},
		color.RGBA{0xd5, 0x5e, 0x00, 0xff},
		color.RGBA{0x00, 0x9e, 0x73, 0xff},
		color.RGBA{0xcc, 0x79, 0xa7, 0xff},
		color.RGBA{0xe6, 0x9f, 0x00, 0xff},
		color.RGBA{0x56, 0xb4, 0xe9, 0xff},
	}
	shapes = []draw.GlyphDrawer{
		draw.CircleGlyph{}, draw.SquareGlyph{}, draw.TriangleGlyph{}, draw.RingGlyph{}, draw.BoxGlyph{}, draw.PyramidGlyph{},
	}
)

// chart draws t as dots on a logarithmic axis of time: bars would have to begin somewhere, and on this axis nothing is zero.
func chart(t table, title, name string) error {
	plot.DefaultFont = font.Font{Typeface: "Liberation", Variant: "Sans"}
	p := plot.New()
	p.Title.Text = title
	p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, plot.TickerFunc(decades)
	p.X.Label.Text = "one call, median (logarithmic)"
	rows := slices.Clone(t.rows)
	slices.Reverse(rows) // the first is at the top
	p.NominalY(rows...)
	p.Add(plotter.NewGrid())
	p.Legend.Top = false
	least, most := math.Inf(1), math.Inf(-1)
	for i, col := range t.cols {
		var dots plotter.XYs
		for y, row := range rows {
			if v, ok := t.cells[[2]string{row, col}]; ok && v > 0 {
				dots = append(dots, plotter.XY{X: v, Y: float64(y)})
				least, most = min(least, v), max(most, v)
			}
		}
		s, err := plotter.NewScatter(dots)
		if err != nil {
			return err
		}
		s.Color, s.Shape, s.Radius = colors[i%len(colors)], shapes[i%len(shapes)], vg.Points(4)
		p.Add(s)
		p.Legend.Add(col, s)
	}
	// Room for the legend, which stands in the corner below on the right.
	p.X.Min, p.X.Max = math.Pow(10, math.Floor(math.Log10(least))), math.Pow(10, math.Ceil(math.Log10(most)))
	p.Y.Min, p.Y.Max = -0.5-0.6*float64(len(t.cols)), float64(len(rows))-0.5
	return save(p, 20*vg.Centimeter, vg.Length(2.5+0.8*float64(len(rows))+0.5*float64(len(t.cols)))*vg.Centimeter, name)
}

// save leaves a margin, because readers' fonts are wider than those that the plot was measured with.
func save(p *plot.Plot, width, height vg.Length, name string) error {
	const margin = 20
	c := vgsvg.New(width, height)
	c.SetColor(color.White)
	c.Fill(vg.Rectangle{Max: vg.Point{X: width, Y: height}}.Path())
	p.Draw(draw.Crop(draw.New(c), margin, -margin, margin/2, -margin/2))
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	_, err = c.WriteTo(f)
	return errors.Join(err, f.Close())
}

// decades marks the powers of ten as durations.
func decades(least, most float64) []plot.Tick {
	var ticks []plot.Tick
	for v := math.Pow(10, math.Floor(math.Log10(least))); v <= 1.001*most; v *= 10 {
		ticks = append(ticks, plot.Tick{Value: v, Label: duration(math.Round(v))})
	}
	return ticks
}
