package main

import (
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
)

func TestQuantileCountsOnlyObservationsBetweenScrapes(t *testing.T) {
	histogram := func(all uint64, buckets ...uint64) *dto.Histogram {
		h := &dto.Histogram{SampleCount: &all}
		for i, count := range buckets {
			h.Bucket = append(h.Bucket, &dto.Bucket{CumulativeCount: &count, UpperBound: new([]float64{0.1, 1, 10}[i])})
		}
		return h
	}
	before := histogram(50, 0, 0, 50)
	if got := quantile(before, histogram(150, 98, 99, 150), 0.99); got != time.Second {
		t.Errorf("quantile(0.99) = %s, want 1s", got)
	}
}
