package main

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
)

func TestReplacedChangeConvergesWithTheNextChange(t *testing.T) {
	start := time.Unix(0, 0)
	at := func(generation int64) *echov1.Echo {
		return &echov1.Echo{ObjectMeta: metav1.ObjectMeta{Name: "e", Generation: generation}}
	}
	log := newChangeLog()
	log.recordChange(at(2), start)
	log.recordChange(at(3), start.Add(time.Second))
	if _, missing := log.latencies(); missing != 2 {
		t.Errorf("before any status: %d changes are missing, want 2", missing)
	}
	log.observed[echoGeneration{"e", 3}] = start.Add(3 * time.Second)
	latencies, missing := log.latencies()
	if missing != 0 || len(latencies) != 2 || max(latencies[0], latencies[1]) != 3*time.Second || min(latencies[0], latencies[1]) != 2*time.Second {
		t.Errorf("after the status of generation 3: latencies are %v with %d missing, want 2s and 3s with 0 missing", latencies, missing)
	}
}
