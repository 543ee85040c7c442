// Package bundle checks in the generated bundle what no validator looks at.
package bundle

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
)

const (
	root          = "../../.."
	csvFile       = root + "/bundle/manifests/echo-operator.clusterserviceversion.yaml"
	crdFile       = root + "/bundle/manifests/kkloud.io_echoes.yaml"
	metadataFile  = root + "/bundle/metadata/annotations.yaml"
	scorecardFile = root + "/bundle/tests/scorecard/config.yaml"
	templateFile  = root + "/catalog/template.yaml"
)

// Scorecard looks only at the fields that an example sets, and of the status at none.
func TestEveryFieldHasADescriptionAndAnExample(t *testing.T) {
	csv, crd := load(t, csvFile)[0], load(t, crdFile)[0]
	examples := list(t, decode(t, []byte(annotation(t, csv, "alm-examples")))...)
	owned := list(t, at(t, csv, "spec", "customresourcedefinitions", "owned").([]any)...)[0]
	version := list(t, at(t, crd, "spec", "versions").([]any)...)[0]

	for _, part := range []string{"spec", "status"} {
		var described []string
		for _, descriptor := range list(t, at(t, owned, part+"Descriptors").([]any)...) {
			described = append(described, at(t, descriptor, "path").(string))
		}
		schema := at(t, version, "schema", "openAPIV3Schema", "properties", part).(map[string]any)
		for _, path := range fields(schema) {
			name := strings.Join(path, ".")
			if !slices.Contains(described, name) {
				t.Errorf("%s.%s has no description in the ClusterServiceVersion", part, name)
			}
			if !slices.ContainsFunc(examples, func(example map[string]any) bool {
				_, found, err := unstructured.NestedFieldNoCopy(example, append([]string{part}, path...)...)
				return found && err == nil
			}) {
				t.Errorf("%s.%s is in no example", part, name)
			}
		}
	}
}

// fields returns the paths of all fields of the Echo's own types. Those of Kubernetes'
// types (resources, conditions) are described as a whole.
func fields(schema map[string]any) [][]string {
	var paths [][]string
	properties, _ := schema["properties"].(map[string]any)
	for name, property := range properties {
		paths = append(paths, []string{name})
		if name == "resources" {
			continue
		}
		for _, path := range fields(property.(map[string]any)) {
			paths = append(paths, append([]string{name}, path...))
		}
	}
	return paths
}

func TestExamplesAreEchoes(t *testing.T) {
	csv := load(t, csvFile)[0]
	for _, name := range []string{"alm-examples", "operatorframework.io/initialization-resource"} {
		for _, example := range decode(t, []byte(annotation(t, csv, name))) {
			text, err := json.Marshal(example)
			if err != nil {
				t.Fatal(err)
			}
			var echo echov1.Echo
			decoder := json.NewDecoder(bytes.NewReader(text))
			decoder.DisallowUnknownFields()
			if err := decoder.Decode(&echo); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if echo.Kind != "Echo" || echo.APIVersion != echov1.GroupVersion.String() {
				t.Errorf("%s: %s %s is no Echo", name, echo.APIVersion, echo.Kind)
			}
		}
	}
}

func TestPlatformsAreThoseThatAreBuilt(t *testing.T) {
	csv := load(t, csvFile)[0]
	makefile, err := os.ReadFile(root + "/Makefile")
	if err != nil {
		t.Fatal(err)
	}
	match := regexp.MustCompile(`(?m)^PLATFORMS \?= (.*)$`).FindSubmatch(makefile)
	if match == nil {
		t.Fatal("the Makefile has no PLATFORMS")
	}
	var built []string
	for platform := range strings.SplitSeq(string(match[1]), ",") {
		system, architecture, _ := strings.Cut(platform, "/")
		built = append(built, "os."+system, "arch."+architecture)
	}

	var labelled []string
	for label := range at(t, csv, "metadata", "labels").(map[string]any) {
		if platform, ok := strings.CutPrefix(label, "operatorframework.io/"); ok {
			labelled = append(labelled, platform)
		}
	}
	same(t, "labels of the ClusterServiceVersion", labelled, built)

	var scheduled []string
	term := list(t, at(t, podSpec(t, csv), "affinity", "nodeAffinity",
		"requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms").([]any)...)[0]
	for _, expression := range list(t, at(t, term, "matchExpressions").([]any)...) {
		for _, value := range at(t, expression, "values").([]any) {
			scheduled = append(scheduled, filepath.Base(at(t, expression, "key").(string))+"."+value.(string))
		}
	}
	same(t, "node affinity of the operator", scheduled, built)
}

// A disconnected cluster mirrors the related images, and no others.
func TestRelatedImagesAreThoseThatAreUsed(t *testing.T) {
	csv := load(t, csvFile)[0]
	var used []string
	for _, container := range list(t, at(t, podSpec(t, csv), "containers").([]any)...) {
		used = append(used, at(t, container, "image").(string))
		for _, variable := range list(t, at(t, container, "env").([]any)...) {
			if strings.HasPrefix(at(t, variable, "name").(string), "RELATED_IMAGE_") {
				used = append(used, at(t, variable, "value").(string))
			}
		}
	}
	same(t, "containerImage", []string{annotation(t, csv, "containerImage")}, used[:1])
	for _, stage := range list(t, at(t, load(t, scorecardFile)[0], "stages").([]any)...) {
		for _, test := range list(t, at(t, stage, "tests").([]any)...) {
			used = append(used, at(t, test, "image").(string))
		}
	}
	for _, example := range list(t, decode(t, []byte(annotation(t, csv, "alm-examples")))...) {
		if image, found, _ := unstructured.NestedString(example, "spec", "image"); found {
			used = append(used, image)
		}
	}
	var related []string
	for _, image := range list(t, at(t, csv, "spec", "relatedImages").([]any)...) {
		related = append(related, at(t, image, "image").(string))
	}
	same(t, "related images", related, used)
}

func TestCatalogAndBundleAgree(t *testing.T) {
	csv, metadata := load(t, csvFile)[0], load(t, metadataFile)[0]
	pkg := list(t, at(t, load(t, templateFile)[0], "entries").([]any)...)[0]
	icon := list(t, at(t, csv, "spec", "icon").([]any)...)[0]
	if at(t, pkg, "icon", "base64data") != at(t, icon, "base64data") {
		t.Error("the icon in the catalog is not that of the bundle")
	}
	if at(t, pkg, "defaultChannel") != at(t, metadata, "annotations", "operators.operatorframework.io.bundle.channel.default.v1") {
		t.Error("the default channel in the catalog is not that of the bundle")
	}
}

func podSpec(t *testing.T, csv map[string]any) map[string]any {
	t.Helper()
	deployment := list(t, at(t, csv, "spec", "install", "spec", "deployments").([]any)...)[0]
	return at(t, deployment, "spec", "template", "spec").(map[string]any)
}

func annotation(t *testing.T, object map[string]any, name string) string {
	t.Helper()
	return at(t, object, "metadata", "annotations", name).(string)
}

// same compares two lists as sets.
func same(t *testing.T, what string, got, want []string) {
	t.Helper()
	got = slices.Compact(slices.Sorted(slices.Values(got)))
	want = slices.Compact(slices.Sorted(slices.Values(want)))
	if !slices.Equal(got, want) {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// at returns the value at a path, and ends the test where there is none.
func at(t *testing.T, object map[string]any, path ...string) any {
	t.Helper()
	value, found, err := unstructured.NestedFieldNoCopy(object, path...)
	if err != nil || !found {
		t.Fatalf("nothing at %s: %v", strings.Join(path, "."), err)
	}
	return value
}

func list(t *testing.T, items ...any) []map[string]any {
	t.Helper()
	var objects []map[string]any
	for _, item := range items {
		object, ok := item.(map[string]any)
		if !ok {
			t.Fatalf("%v is no object", item)
		}
		objects = append(objects, object)
	}
	return objects
}

// decode reads one JSON object, or a list of them.
func decode(t *testing.T, text []byte) []any {
	t.Helper()
	var value any
	if err := json.Unmarshal(text, &value); err != nil {
		t.Fatal(err)
	}
	if items, ok := value.([]any); ok {
		return items
	}
	return []any{value}
}

// load reads the objects of a YAML file.
func load(t *testing.T, file string) []map[string]any {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var objects []map[string]any
	for document := range strings.SplitSeq(string(text), "\n---\n") {
		var object map[string]any
		if err := yaml.Unmarshal([]byte(document), &object); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		objects = append(objects, object)
	}
	return objects
}
