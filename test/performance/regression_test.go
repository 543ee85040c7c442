package main

import (
	"math"
	"strings"
	"testing"
	"time"
)

func TestCompareFigures(t *testing.T) {
	recorded := []figure{{Name: "writes", Value: 4, Tolerance: 0.05}, {Name: "watches", Value: 5}}
	for name, c := range map[string]struct {
		measured []figure
		want     string
	}{
		"equal figures pass":                   {[]figure{{Name: "writes", Value: 4}, {Name: "watches", Value: 5}}, ""},
		"smaller figures pass":                 {[]figure{{Name: "writes", Value: 3}, {Name: "watches", Value: 4}}, ""},
		"a figure within the tolerance passes": {[]figure{{Name: "writes", Value: 4.05}, {Name: "watches", Value: 5}}, ""},
		"a figure above the tolerance fails":   {[]figure{{Name: "writes", Value: 4.06}, {Name: "watches", Value: 5}}, "writes = 4.06, want at most 4.05"},
		"a missing figure fails":               {[]figure{{Name: "writes", Value: 4}}, "watches: recorded, but not measured"},
		"an unrecorded figure fails":           {[]figure{{Name: "writes", Value: 4}, {Name: "watches", Value: 5}, {Name: "reads"}}, "reads: measured, but not recorded"},
	} {
		t.Run(name, func(t *testing.T) {
			err := compareFigures(recorded, c.measured)
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("compareFigures() = %v, want %q", err, c.want)
			}
		})
	}
}

func TestMeasureCPUFigures(t *testing.T) {
	recorded := []figure{{Name: "CPU time relative to the baseline client: edit of the message", Value: 2, Tolerance: 0.3}}
	for name, c := range map[string]struct {
		recorded  []figure
		ratios    [recheckedTurns]float64
		wantTurns int
		want      float64
	}{
		"a few turns suffice within the tolerance":        {recorded, [recheckedTurns]float64{2, 3, 2.2}, cpuTurns, 2.2},
		"more turns forgive a few slow ones":              {recorded, [recheckedTurns]float64{3, 3, 3, 2, 2, 2, 2, 2, 2, 2, 2, 2}, recheckedTurns, 2},
		"more turns confirm a regression":                 {recorded, [recheckedTurns]float64{3, 3, 3, 3, 3, 3, 3, 2, 2, 2, 2, 2}, recheckedTurns, 3},
		"what is to be recorded is measured in all turns": {nil, [recheckedTurns]float64{2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3, 3}, recheckedTurns, 3},
	} {
		t.Run(name, func(t *testing.T) {
			turns := 0
			figures, err := measureCPUFigures(c.recorded, func(n int) (operator, baseline []timings, err error) {
				for range n {
					used := func(ratio float64) measurement {
						return measurement{cpu: cpuTimes{writer: time.Duration(ratio * float64(time.Second))}}
					}
					operator = append(operator, timings{create: used(1), edit: used(c.ratios[turns])})
					baseline = append(baseline, timings{create: used(1), edit: used(1)})
					turns++
				}
				return operator, baseline, nil
			})
			if err != nil {
				t.Fatal(err)
			}
			if got := figures[1].Value; turns != c.wantTurns || math.Abs(got-c.want) > 0.001 {
				t.Errorf("measureCPUFigures() = %v after %d turns, want %v after %d", got, turns, c.want, c.wantTurns)
			}
		})
	}
}
