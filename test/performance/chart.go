package main

import (
	"image/color"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
)

// drawChart writes an SVG with a line for the operator and a line for the baseline client. The
// x axis is logarithmic, because the measured sizes double.
func drawChart(file, title, x, y string, points []point) error {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = title, x, y
	p.Y.Min, p.X.Max = 0, 1.2*points[len(points)-1].X // Leaves room for the last label.
	p.X.Scale = plot.LogScale{}
	ticks := make([]plot.Tick, len(points))
	for i, point := range points {
		ticks[i] = plot.Tick{Value: point.X, Label: strconv.Itoa(int(point.X))}
	}
	p.X.Tick.Marker = plot.ConstantTicks(ticks)
	p.Add(plotter.NewGrid())
	var operator, baseline plotter.XYs
	for _, point := range points {
		operator = append(operator, plotter.XY{X: point.X, Y: point.Operator})
		baseline = append(baseline, plotter.XY{X: point.X, Y: point.Baseline})
		p.Y.Max = max(p.Y.Max, 1.1*point.Operator, 1.1*point.Baseline)
	}
	for _, series := range []struct {
		name  string
		xys   plotter.XYs
		color color.RGBA
	}{
		{"operator", operator, color.RGBA{R: 0x21, G: 0x96, B: 0xf3, A: 0xff}},
		{"baseline client", baseline, color.RGBA{R: 0x9e, G: 0x9e, B: 0x9e, A: 0xff}},
	} {
		line, dots, err := plotter.NewLinePoints(series.xys)
		if err != nil {
			return err
		}
		line.Color, dots.Color = series.color, series.color
		p.Add(line, dots)
		p.Legend.Add(series.name, line, dots)
	}
	p.Legend.XOffs, p.Legend.YOffs = -vg.Centimeter/2, vg.Centimeter/2
	return p.Save(16*vg.Centimeter, 10*vg.Centimeter, file)
}
