package docs

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// testName matches a test that a document names as `file: name`.
var testName = regexp.MustCompile("`([^` ]+_test\\.go): ([^`]+)`")

func TestEveryTestThatADocumentNamesExists(t *testing.T) {
	names := 0
	for _, page := range listFiles(t) {
		if path.Ext(page) != ".md" {
			continue
		}
		for _, match := range testName.FindAllStringSubmatch(readFile(t, page), -1) {
			names++
			file, name := match[1], match[2]
			if source := readFile(t, file); !strings.Contains(source, "func "+name+"(") && !strings.Contains(source, `"`+name) {
				t.Errorf("%s: %s has no test %q", page, file, name)
			}
		}
	}
	if names < 20 {
		t.Errorf("documents name %d tests, want at least 20", names)
	}
}

func TestEveryThreatNamesATestOrStatesThatItHasNone(t *testing.T) {
	threats := 0
	for _, row := range regexp.MustCompile(`(?m)^\| .* \|$`).FindAllString(readFile(t, "docs/threat-model.md"), -1) {
		if strings.HasSuffix(row, "| shown by |") {
			continue
		}
		threats++
		tests := len(testName.FindAllString(row, -1))
		if tests != strings.Count(row, "_test.go") || (tests == 0 && !strings.Contains(row, "**No test**")) {
			t.Errorf("threat names no test as `file: name` and does not contain **No test**: %s", row)
		}
	}
	if threats < 20 {
		t.Errorf("found %d threats in docs/threat-model.md, want at least 20", threats)
	}
}

func readFile(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Error(err)
	}
	return string(text)
}
