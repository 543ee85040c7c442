package harness

import (
	"slices"
	"testing"
)

func TestSampleSelectsOneOfEightScenariosOrAll(t *testing.T) {
	names := []string{"0", "1", "2", "3", "4", "5", "6", "7", "8"}
	var all []Scenario
	for _, name := range names {
		all = append(all, Scenario{Name: name})
	}
	for number, want := range map[uint64][]string{0: names, 15: {"1"}, 16: {"0", "8"}} {
		var got []string
		for _, scenario := range sample(all, number) {
			got = append(got, scenario.Name)
		}
		if !slices.Equal(got, want) {
			t.Errorf("sample %d = %q, want %q", number, got, want)
		}
	}
}
