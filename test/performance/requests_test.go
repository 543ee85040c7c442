package main

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/kkloud-io/echo-operator/internal/testing/controlplane"
)

// The targets are exact numbers, so four writes per Echo must be exactly 4 for any number of Echoes.
func TestRequestCountIsExactForAnyNumberOfEchoes(t *testing.T) {
	for _, n := range []int{1, 50, 100, 1000} {
		var write, read controlplane.AuditEvent
		for line, event := range map[string]*controlplane.AuditEvent{
			`{"verb": "update", "objectRef": {"resource": "echoes", "subresource": "status"}}`: &write,
			`{"verb": "get", "objectRef": {"resource": "services"}}`:                           &read,
		} {
			if err := json.Unmarshal([]byte(line), event); err != nil {
				t.Fatal(err)
			}
		}
		c := newRequestCount("", append(slices.Repeat([]controlplane.AuditEvent{write}, 4*n), read), n)
		if c.Writes != 4 || c.Requests["update echoes/status"] != 4 || c.Reads != 1/float64(n) {
			t.Errorf("%d Echoes with 4 writes each and one read in total: newRequestCount() = %+v, want 4 writes and %g reads", n, c, 1/float64(n))
		}
	}
}
