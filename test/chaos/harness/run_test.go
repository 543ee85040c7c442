package harness

import (
	"slices"
	"testing"
)

func TestSampleSelectsOneOfFourScenariosOrAll(t *testing.T) {
	all := []Scenario{{Name: "0"}, {Name: "1"}, {Name: "2"}, {Name: "3"}, {Name: "4"}}
	for number, want := range map[uint64][]string{0: {"0", "1", "2", "3", "4"}, 7: {"1"}, 8: {"0", "4"}} {
		var got []string
		for _, scenario := range sample(all, number) {
			got = append(got, scenario.Name)
		}
		if !slices.Equal(got, want) {
			t.Errorf("sample %d = %q, want %q", number, got, want)
		}
	}
}
