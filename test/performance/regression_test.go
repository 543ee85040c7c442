package main

import (
	"strings"
	"testing"
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
