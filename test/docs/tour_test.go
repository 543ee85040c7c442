package docs

import (
	"path"
	"strings"
	"testing"
)

const tour = "docs/tour.md"

// TestCodeInTheTourIsInTheRepository compares the blocks of Go code in the tour with the code, apart from indentation.
func TestCodeInTheTourIsInTheRepository(t *testing.T) {
	var code strings.Builder
	for name := range paths(t) {
		if path.Ext(name) == ".go" {
			code.WriteString(unindented(readFile(t, name)))
		}
	}
	for i, part := range strings.Split(readFile(t, tour), "\n```go\n")[1:] {
		block, _, _ := strings.Cut(part, "```")
		if !strings.Contains(code.String(), unindented(block)) {
			t.Errorf("%s: block %d of Go code differs from the code of the repository:\n%s", tour, i+1, block)
		}
	}
}

func unindented(code string) string {
	var text strings.Builder
	for line := range strings.Lines(code) {
		text.WriteString(strings.TrimLeft(line, "\t"))
	}
	return text.String()
}

// TestPackagesToCopyImportNothingOfTheRepository checks the packages that the tour invites readers to copy.
func TestPackagesToCopyImportNothingOfTheRepository(t *testing.T) {
	for name := range paths(t) {
		switch path.Dir(name) {
		case "internal/backoff", "internal/expectations", "internal/queue":
			if path.Ext(name) == ".go" && strings.Contains(readFile(t, name), `"github.com/kkloud-io/`) {
				t.Errorf("%s imports a package of this repository, so other operators cannot copy it: see %s", name, tour)
			}
		}
	}
}
