// Command dashboard draws the dashboard of config/prometheus from what a Prometheus in the
// cluster of the KUBECONFIG knows: the picture of the documentation.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"

	"github.com/kkloud-io/echo-operator/test/manifests/monitoring"
)

// What a unit of the dashboard's grid is on the picture.
const (
	unitWidth  = vg.Length(36)
	unitHeight = vg.Length(24)
	margin     = vg.Length(6)
)

func main() {
	if err := run(os.Args[1:]); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "dashboard:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	flags := flag.NewFlagSet("dashboard", flag.ContinueOnError)
	root := flags.String("root", "../..", "the project's `directory`")
	out := flags.String("out", "", "the `file` that takes the picture, as PNG")
	var p prometheus
	flags.StringVar(&p.path, "prometheus", "", "the `path` of Prometheus' API on the API server, as in /api/v1/namespaces/monitoring/services/prometheus:9090/proxy/api/v1")
	flags.DurationVar(&p.since, "since", 10*time.Minute, "how `long` ago the picture begins")
	flags.DurationVar(&p.rate, "rate", 20*time.Second, "the `interval` that rates are taken over")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *out == "" || p.path == "" {
		return errors.New("-out and -prometheus are needed")
	}
	panels, err := monitoring.Dashboard(*root)
	if err != nil {
		return err
	}
	picture, err := p.draw(panels)
	if err != nil {
		return err
	}
	file, err := os.Create(*out)
	if err != nil {
		return err
	}
	_, err = vgimg.PngCanvas{Canvas: picture}.WriteTo(file)
	return errors.Join(err, file.Close())
}

// draw draws every panel at its place on the grid.
func (p prometheus) draw(panels []monitoring.Panel) (*vgimg.Canvas, error) {
	var width, height vg.Length
	for _, panel := range panels {
		at := panel.GridPos
		width, height = max(width, unitWidth*vg.Length(at.X+at.W)), max(height, unitHeight*vg.Length(at.Y+at.H))
	}
	picture := vgimg.New(width, height)
	whole := draw.New(picture)
	for _, panel := range panels {
		drawn, err := p.plot(panel)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", panel.Title, err)
		}
		at := panel.GridPos
		left, top := unitWidth*vg.Length(at.X), height-unitHeight*vg.Length(at.Y)
		drawn.Draw(draw.Canvas{Canvas: whole.Canvas, Rectangle: vg.Rectangle{
			Min: vg.Point{X: left + margin, Y: top - unitHeight*vg.Length(at.H) + margin},
			Max: vg.Point{X: left + unitWidth*vg.Length(at.W) - margin, Y: top - margin},
		}})
	}
	return picture, nil
}

// plot makes a plot of a panel; of a row it is only the title.
func (p prometheus) plot(panel monitoring.Panel) (*plot.Plot, error) {
	drawn := plot.New()
	drawn.Title.Text = panel.Title
	drawn.Title.TextStyle.Font = font.From(drawn.Title.TextStyle.Font, 11)
	if panel.Type == "row" {
		drawn.Title.TextStyle.Font.Weight = 700
		drawn.HideAxes()
		return drawn, nil
	}
	drawn.X.Tick.Marker = plot.TimeTicks{Format: "15:04:05"}
	drawn.X.Tick.Label.Font.Size, drawn.Y.Tick.Label.Font.Size = 8, 8
	drawn.Y.Min = 0
	drawn.Legend.Top, drawn.Legend.Left = true, true
	drawn.Legend.TextStyle.Font = font.From(drawn.Legend.TextStyle.Font, 8)
	drawn.Add(plotter.NewGrid())
	color := 0
	for _, target := range panel.Targets {
		all, err := p.series(target)
		if err != nil {
			return nil, err
		}
		for _, s := range all {
			line, err := plotter.NewLine(s.points)
			if err != nil {
				return nil, err
			}
			line.Color = plotutil.Color(color)
			color++
			drawn.Add(line)
			drawn.Legend.Add(s.name, line)
		}
	}
	drawn.Y.Max = max(drawn.Y.Max, 1e-3)
	return drawn, nil
}

// prometheus is where the figures come from.
type prometheus struct {
	path        string
	since, rate time.Duration
}

type series struct {
	name   string
	points plotter.XYs
}

// series asks for the values of a query, as Grafana does.
func (p prometheus) series(target monitoring.Target) ([]series, error) {
	expression := strings.NewReplacer("$namespace", ".*", "$__rate_interval", strconv.Itoa(int(p.rate.Seconds()))+"s").Replace(target.Expr)
	now := time.Now()
	parameters := url.Values{"query": {expression}, "start": {now.Add(-p.since).Format(time.RFC3339)}, "end": {now.Format(time.RFC3339)}, "step": {"2s"}}
	output, err := exec.Command("kubectl", "get", "--raw", p.path+"/query_range?"+parameters.Encode()).Output() //nolint:gosec // The caller chose the path.
	if err != nil {
		return nil, fmt.Errorf("ask Prometheus: %w", err)
	}
	var answer struct {
		Data struct {
			Result []struct {
				Metric map[string]string
				Values [][2]any
			}
		}
	}
	if err := json.Unmarshal(output, &answer); err != nil {
		return nil, err
	}
	var all []series
	for _, result := range answer.Data.Result {
		s := series{name: legend(target.LegendFormat, result.Metric)}
		for _, value := range result.Values {
			y, err := strconv.ParseFloat(value[1].(string), 64)
			if err != nil {
				return nil, err
			}
			if y == y { // A quantile of nothing is not a number.
				s.points = append(s.points, plotter.XY{X: value[0].(float64), Y: y})
			}
		}
		if len(s.points) > 0 {
			all = append(all, s)
		}
	}
	return all, nil
}

var placeholder = regexp.MustCompile(`{{(\w+)}}`)

// legend fills labels into the format of a legend.
func legend(format string, labels map[string]string) string {
	return placeholder.ReplaceAllStringFunc(format, func(match string) string { return labels[strings.Trim(match, "{}")] })
}
