package main

import (
	"image/color"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
)

// curve draws both sides as an SVG. Its x axis is logarithmic, as the numbers double.
func curve(file, title, x, y string, points []point) error {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = title, x, y
	p.Y.Min, p.X.Max = 0, 1.2*points[len(points)-1].X // Room for the last label.
	p.X.Scale = plot.LogScale{}
	ticks := make([]plot.Tick, len(points))
	for i, point := range points {
		ticks[i] = plot.Tick{Value: point.X, Label: strconv.Itoa(int(point.X))}
	}
	p.X.Tick.Marker = plot.ConstantTicks(ticks)
	p.Add(plotter.NewGrid())
	var ours, ceiling plotter.XYs
	for _, point := range points {
		ours = append(ours, plotter.XY{X: point.X, Y: point.Ours})
		ceiling = append(ceiling, plotter.XY{X: point.X, Y: point.Ceiling})
		p.Y.Max = max(p.Y.Max, 1.1*point.Ours, 1.1*point.Ceiling)
	}
	for _, side := range []struct {
		name  string
		xys   plotter.XYs
		color color.RGBA
	}{
		{"operator", ours, color.RGBA{R: 0x21, G: 0x96, B: 0xf3, A: 0xff}},
		{"plain client", ceiling, color.RGBA{R: 0x9e, G: 0x9e, B: 0x9e, A: 0xff}},
	} {
		line, dots, err := plotter.NewLinePoints(side.xys)
		if err != nil {
			return err
		}
		line.Color, dots.Color = side.color, side.color
		p.Add(line, dots)
		p.Legend.Add(side.name, line, dots)
	}
	p.Legend.XOffs, p.Legend.YOffs = -vg.Centimeter/2, vg.Centimeter/2
	return p.Save(16*vg.Centimeter, 10*vg.Centimeter, file)
}
