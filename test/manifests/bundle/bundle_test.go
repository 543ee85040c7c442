// Package bundle tests the content of the generated bundle that no validator checks.
package bundle

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/test/manifests/internal/repo"
)

const (
	metadataFile  = repo.Root + "/bundle/metadata/annotations.yaml"
	scorecardFile = repo.Root + "/bundle/tests/scorecard/config.yaml"
)

// Scorecard checks only fields that an example sets, and no field of the status.
func TestEveryFieldHasADescriptionAndAnExample(t *testing.T) {
	csv, crd := repo.Load(t, repo.CSVFile)[0], repo.Load(t, repo.CRDFile)[0]
	examples := decode(t, annotation(t, csv, "alm-examples"))
	owned := repo.ObjectsAt(t, csv, "spec", "customresourcedefinitions", "owned")[0]
	version := repo.ObjectsAt(t, crd, "spec", "versions")[0]

	for _, section := range []string{"spec", "status"} {
		var described []string
		for _, descriptor := range repo.ObjectsAt(t, owned, section+"Descriptors") {
			described = append(described, repo.At(t, descriptor, "path").(string))
		}
		schema := repo.At(t, version, "schema", "openAPIV3Schema", "properties", section).(repo.Object)
		for _, path := range fields(schema) {
			name := strings.Join(path, ".")
			if !slices.Contains(described, name) {
				t.Errorf("%s.%s has no descriptor in the ClusterServiceVersion", section, name)
			}
			if !slices.ContainsFunc(examples, func(example repo.Object) bool {
				_, found, err := unstructured.NestedFieldNoCopy(example, append([]string{section}, path...)...)
				return found && err == nil
			}) {
				t.Errorf("%s.%s is not set in any example: set it in config/samples/showcase.yaml, or of route in config/manifests/gateway_example.yaml, and run make bundle", section, name)
			}
		}
	}
}

// fields returns the paths of all fields that the Echo API defines. Fields of Kubernetes types
// (resources, conditions) have one descriptor for the whole type.
func fields(schema repo.Object) [][]string {
	var paths [][]string
	properties, _ := schema["properties"].(repo.Object)
	for name, property := range properties {
		paths = append(paths, []string{name})
		if name == "resources" {
			continue
		}
		for _, path := range fields(property.(repo.Object)) {
			paths = append(paths, append([]string{name}, path...))
		}
	}
	return paths
}

// OLM does not install an operator while the cluster lacks a required or a native API. The Gateway API
// may be absent.
func TestThePackageRequiresNoAPI(t *testing.T) {
	csv := repo.Load(t, repo.CSVFile)[0]
	for _, path := range [][]string{{"customresourcedefinitions", "required"}, {"apiservicedefinitions", "required"}, {"nativeAPIs"}} {
		if required, found, _ := unstructured.NestedSlice(csv, append([]string{"spec"}, path...)...); found && len(required) > 0 {
			t.Errorf("spec.%s = %v, want none", strings.Join(path, "."), required)
		}
	}
}

func TestExamplesDecodeAsEcho(t *testing.T) {
	csv := repo.Load(t, repo.CSVFile)[0]
	for _, name := range []string{"alm-examples", "operatorframework.io/initialization-resource"} {
		for _, example := range decode(t, annotation(t, csv, name)) {
			text, err := json.Marshal(example)
			if err != nil {
				t.Fatal(err)
			}
			var echo echov1.Echo
			decoder := json.NewDecoder(bytes.NewReader(text))
			decoder.DisallowUnknownFields()
			if err := decoder.Decode(&echo); err != nil {
				t.Errorf("annotation %s: %v", name, err)
			}
			if echo.Kind != "Echo" || echo.APIVersion != echov1.GroupVersion.String() {
				t.Errorf("annotation %s: got %s %s, want an Echo", name, echo.APIVersion, echo.Kind)
			}
		}
	}
}

func TestPlatformsMatchMakefile(t *testing.T) {
	csv := repo.Load(t, repo.CSVFile)[0]
	var built []string
	for platform := range strings.SplitSeq(repo.MakeVariable(t, "PLATFORMS"), ",") {
		system, architecture, _ := strings.Cut(platform, "/")
		built = append(built, "os."+system, "arch."+architecture)
	}
	built = repo.Distinct(built)

	var labels []string
	for label := range repo.At(t, csv, "metadata", "labels").(repo.Object) {
		if platform, ok := strings.CutPrefix(label, "operatorframework.io/"); ok {
			labels = append(labels, platform)
		}
	}
	repo.Same(t, "platform labels of the ClusterServiceVersion", labels, built)

	var affinity []string
	term := repo.ObjectsAt(t, podSpec(t, csv), "affinity", "nodeAffinity",
		"requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms")[0]
	for _, expression := range repo.ObjectsAt(t, term, "matchExpressions") {
		for _, value := range repo.At(t, expression, "values").([]any) {
			affinity = append(affinity, filepath.Base(repo.At(t, expression, "key").(string))+"."+value.(string))
		}
	}
	repo.Same(t, "platforms in the node affinity of the operator", repo.Distinct(affinity), built)
}

// A disconnected cluster mirrors only the related images: not the image of the scorecard.
func TestRelatedImagesMatchUsedImages(t *testing.T) {
	csv := repo.Load(t, repo.CSVFile)[0]
	var used []string
	for _, container := range repo.ObjectsAt(t, podSpec(t, csv), "containers") {
		used = append(used, repo.At(t, container, "image").(string))
		for _, variable := range repo.ObjectsAt(t, container, "env") {
			if strings.HasPrefix(repo.At(t, variable, "name").(string), "RELATED_IMAGE_") {
				used = append(used, repo.At(t, variable, "value").(string))
			}
		}
	}
	repo.Same(t, "annotation containerImage", []string{annotation(t, csv, "containerImage")}, used[:1])
	for _, example := range decode(t, annotation(t, csv, "alm-examples")) {
		if image, found, _ := unstructured.NestedString(example, "spec", "image"); found {
			used = append(used, image)
		}
	}
	var related []string
	for _, image := range repo.ObjectsAt(t, csv, "spec", "relatedImages") {
		related = append(related, repo.At(t, image, "image").(string))
	}
	repo.Same(t, "relatedImages of the ClusterServiceVersion", repo.Distinct(related), repo.Distinct(used))
}

func podSpec(t *testing.T, csv repo.Object) repo.Object {
	t.Helper()
	deployment := repo.ObjectsAt(t, csv, "spec", "install", "spec", "deployments")[0]
	return repo.At(t, deployment, "spec", "template", "spec").(repo.Object)
}

func annotation(t *testing.T, object repo.Object, name string) string {
	t.Helper()
	return repo.At(t, object, "metadata", "annotations", name).(string)
}

// decode reads one JSON object, or a list of them.
func decode(t *testing.T, text string) []repo.Object {
	t.Helper()
	var value any
	if err := json.Unmarshal([]byte(text), &value); err != nil {
		t.Fatal(err)
	}
	if items, ok := value.([]any); ok {
		return repo.Objects(t, items)
	}
	return repo.Objects(t, []any{value})
}
