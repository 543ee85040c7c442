// Package repo reads the files of this repository for the tests in test/manifests.
package repo

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// Files that several packages read. Root is relative to the packages in test/manifests.
const (
	Root    = "../../.."
	CSVFile = Root + "/bundle/manifests/echo-operator.clusterserviceversion.yaml"
	CRDFile = Root + "/bundle/manifests/kkloud.io_echoes.yaml"
)

// Object is a decoded YAML or JSON object.
type Object = map[string]any

// Read returns the content of a file.
func Read(t *testing.T, file string) []byte {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// Load returns the objects in a YAML file.
func Load(t *testing.T, file string) []Object {
	t.Helper()
	var objects []Object
	for document := range strings.SplitSeq(string(Read(t, file)), "\n---\n") {
		var object Object
		if err := yaml.Unmarshal([]byte(document), &object); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		objects = append(objects, object)
	}
	return objects
}

// MakeVariable returns the value that the Makefile, or a file in make/, gives a variable.
func MakeVariable(t *testing.T, name string) string {
	t.Helper()
	assignment := regexp.MustCompile(`(?m)^` + name + ` *[?:]?= *(.*)$`)
	included, err := filepath.Glob(Root + "/make/*.mk")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range append(included, Root+"/Makefile") {
		if match := assignment.FindSubmatch(Read(t, file)); match != nil {
			return string(match[1])
		}
	}
	t.Fatalf("neither the Makefile nor make/*.mk sets %s", name)
	return ""
}

// Glob returns the files that match a pattern. It fails the test if there are none.
func Glob(t *testing.T, pattern string) []string {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		t.Fatalf("no file matches %s: %v", pattern, err)
	}
	return files
}

// Walk calls visit for each file below a folder that has the extension.
func Walk(t *testing.T, folder, extension string, visit func(file, text string)) {
	t.Helper()
	err := filepath.WalkDir(folder, func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(file) != extension {
			return err
		}
		visit(file, string(Read(t, file)))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Matches reports whether a name matches a pattern for path.Match.
func Matches(t *testing.T, pattern, name string) bool {
	t.Helper()
	matched, err := path.Match(pattern, name)
	if err != nil {
		t.Fatal(err)
	}
	return matched
}

// At returns the value at a path. It fails the test if the path does not exist.
func At(t *testing.T, object Object, path ...string) any {
	t.Helper()
	value, found, err := unstructured.NestedFieldNoCopy(object, path...)
	if err != nil || !found {
		t.Fatalf("field %s not found: %v", strings.Join(path, "."), err)
	}
	return value
}

// ObjectsAt returns the list of objects at a path. It fails the test if the path does not exist.
func ObjectsAt(t *testing.T, object Object, path ...string) []Object {
	t.Helper()
	items, ok := At(t, object, path...).([]any)
	if !ok {
		t.Fatalf("field %s is not a list", strings.Join(path, "."))
	}
	return Objects(t, items)
}

// Objects converts a decoded list.
func Objects(t *testing.T, items []any) []Object {
	t.Helper()
	var objects []Object
	for _, item := range items {
		object, ok := item.(Object)
		if !ok {
			t.Fatalf("list item %v is not an object", item)
		}
		objects = append(objects, object)
	}
	return objects
}

// Same compares two lists and ignores the order of their items.
func Same(t *testing.T, what string, got, want []string) {
	t.Helper()
	got, want = slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(want))
	if !slices.Equal(got, want) {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

// Distinct returns the items of a list, sorted and without duplicates.
func Distinct(items []string) []string {
	return slices.Compact(slices.Sorted(slices.Values(items)))
}

var minKubeVersion = regexp.MustCompile(`(?m)^  minKubeVersion: (\d+\.\d+)`)

// OldestKubernetes returns the oldest minor version that the bundle supports, such as "1.30".
func OldestKubernetes(t *testing.T) string {
	t.Helper()
	version := minKubeVersion.FindSubmatch(Read(t, CSVFile))
	if version == nil {
		t.Fatalf("%s has no minKubeVersion", CSVFile)
	}
	return string(version[1])
}

// PinnedVersion returns the version of a module, or of the toolchain, in a go.mod file.
func PinnedVersion(t *testing.T, file, module string) string {
	t.Helper()
	requirement := regexp.MustCompile(`(?m)^(?:require )?\s*` + regexp.QuoteMeta(module) + ` (?:v|go)(\S+)`)
	match := requirement.FindSubmatch(Read(t, Root+"/"+file))
	if match == nil {
		t.Fatalf("%s does not pin %s", file, module)
	}
	return string(match[1])
}
