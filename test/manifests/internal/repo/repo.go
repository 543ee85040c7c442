// Package repo reads the files of this repository for the tests in test/manifests.
package repo

import (
	"bytes"
	"os"
	"slices"
	"testing"

	"sigs.k8s.io/yaml"
)

// Root is relative to the packages in test/manifests.
const Root = "../../.."

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

// Objects returns the objects in a text of YAML documents.
func Objects(t *testing.T, text []byte) (objects []Object) {
	t.Helper()
	for document := range bytes.SplitSeq(text, []byte("\n---\n")) {
		var object Object
		if err := yaml.Unmarshal(document, &object); err != nil {
			t.Fatalf("%v in\n%s", err, document)
		}
		objects = append(objects, object)
	}
	return objects
}

// Same compares two sets.
func Same(t *testing.T, what string, got, want []string) {
	t.Helper()
	got, want = slices.Compact(slices.Sorted(slices.Values(got))), slices.Compact(slices.Sorted(slices.Values(want)))
	if !slices.Equal(got, want) {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}
