package main

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/kkloud-io/echo-operator/internal/testing/controlplane"
)

// Targets are held against these figures: four writes for each Echo are four, for any number of
// Echoes.
func TestCountOf(t *testing.T) {
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
		c := countOf("", append(slices.Repeat([]controlplane.AuditEvent{write}, 4*n), read), n)
		if c.Writes != 4 || c.Each["update echoes/status"] != 4 || c.Reads != 1/float64(n) {
			t.Errorf("4 writes for each of %d Echoes and one read: got %+v", n, c)
		}
	}
}
