package main

import (
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
)

func TestCompareGated(t *testing.T) {
	recorded := []gated{{Name: "writes", Value: 4, Slack: 0.05}, {Name: "watches", Value: 5}}
	for name, c := range map[string]struct {
		now  []gated
		want string
	}{
		"the same":     {[]gated{{Name: "writes", Value: 4}, {Name: "watches", Value: 5}}, ""},
		"better":       {[]gated{{Name: "writes", Value: 3}, {Name: "watches", Value: 4}}, ""},
		"within slack": {[]gated{{Name: "writes", Value: 4.05}, {Name: "watches", Value: 5}}, ""},
		"worse":        {[]gated{{Name: "writes", Value: 4.06}, {Name: "watches", Value: 5}}, "writes is 4.06, at most 4.05 is allowed"},
		"missing":      {[]gated{{Name: "writes", Value: 4}}, "watches was recorded, and is not measured any more"},
		"new":          {[]gated{{Name: "writes", Value: 4}, {Name: "watches", Value: 5}, {Name: "reads"}}, "reads is not recorded"},
	} {
		t.Run(name, func(t *testing.T) {
			err := compareGated(recorded, c.now)
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

// TestTook: a change that was overtaken by the next took as long as that one.
func TestTook(t *testing.T) {
	start := time.Unix(0, 0)
	at := func(generation int64) *echov1.Echo {
		return &echov1.Echo{ObjectMeta: metav1.ObjectMeta{Name: "e", Generation: generation}}
	}
	log := newChangeLog()
	log.changed(at(2), start)
	log.changed(at(3), start.Add(time.Second))
	if _, missing := log.took(); missing != 2 {
		t.Errorf("%d changes are missing, want 2", missing)
	}
	log.observed[version{"e", 3}] = start.Add(3 * time.Second)
	took, missing := log.took()
	if missing != 0 || len(took) != 2 || max(took[0], took[1]) != 3*time.Second || min(took[0], took[1]) != 2*time.Second {
		t.Errorf("changes took %v, %d are missing", took, missing)
	}
}

func TestQuantile(t *testing.T) {
	histogram := func(all uint64, buckets ...uint64) *dto.Histogram {
		h := &dto.Histogram{SampleCount: &all}
		for i, count := range buckets {
			h.Bucket = append(h.Bucket, &dto.Bucket{CumulativeCount: &count, UpperBound: new([]float64{0.1, 1, 10}[i])})
		}
		return h
	}
	before := histogram(50, 0, 0, 50) // What came before does not count.
	if got := quantile(before, histogram(150, 98, 99, 150), 0.99); got != time.Second {
		t.Errorf("got %s, want 1s", got)
	}
}
