// Package repo reads the files of this repository for the tests in test/manifests.
package repo

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"golang.org/x/mod/modfile"
	"sigs.k8s.io/yaml"
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

// Documents returns the documents in a YAML file.
func Documents(t *testing.T, file string) [][]byte {
	t.Helper()
	return bytes.Split(Read(t, file), []byte("\n---\n"))
}

// Load returns the objects in a YAML file.
func Load(t *testing.T, file string) []Object {
	t.Helper()
	var objects []Object
	for _, document := range Documents(t, file) {
		var object Object
		if err := yaml.Unmarshal(document, &object); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		objects = append(objects, object)
	}
	return objects
}

// MakeVariable returns the value that the Makefile gives a variable.
func MakeVariable(t *testing.T, name string) string {
	t.Helper()
	match := regexp.MustCompile(`(?m)^` + name + ` *[?:]?= *(.*)$`).FindSubmatch(Read(t, Root+"/Makefile"))
	if match == nil {
		t.Fatalf("the Makefile does not set %s", name)
	}
	return string(match[1])
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

// Same compares two sets.
func Same(t *testing.T, what string, got, want []string) {
	t.Helper()
	got, want = slices.Compact(slices.Sorted(slices.Values(got))), slices.Compact(slices.Sorted(slices.Values(want)))
	if !slices.Equal(got, want) {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

// Requirements returns the versions that a module file requires, by module, after its replacements.
func Requirements(t *testing.T, file string) map[string]string {
	t.Helper()
	parsed, err := modfile.Parse(file, Read(t, Root+"/"+file), nil)
	if err != nil {
		t.Fatal(err)
	}
	versions := map[string]string{}
	for _, require := range parsed.Require {
		versions[require.Mod.Path] = require.Mod.Version
	}
	for _, replace := range parsed.Replace {
		if versions[replace.Old.Path] != "" {
			versions[replace.Old.Path] = replace.New.Version
		}
		if replace.New.Version == "" {
			delete(versions, replace.Old.Path) // A folder.
		}
	}
	return versions
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
