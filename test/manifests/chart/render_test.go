// Package chart tests the Helm chart in dist/chart.
package chart

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"

	"github.com/kkloud-io/echo-operator/test/manifests/internal/repo"
)

const (
	directory = repo.Root + "/dist/chart"
	release   = "echo-operator"
	namespace = "echo-operator-system"
)

// objects are manifests by kind, namespace and name.
type objects map[string]repo.Object

// parse reads manifests. It fails the test if an object has a field that its kind does not have.
func parse(t *testing.T, manifests []byte) objects {
	t.Helper()
	found := objects{}
	for document := range bytes.SplitSeq(manifests, []byte("\n---\n")) {
		object := unstructured.Unstructured{}
		if err := yaml.Unmarshal(document, &object.Object); err != nil {
			t.Fatalf("%v in\n%s", err, document)
		}
		if object.Object == nil {
			continue
		}
		name := strings.Trim(object.GetNamespace()+"/"+object.GetName(), "/")
		found[object.GetKind()+" "+name] = withoutEmptyFields(t, object, document)
	}
	return found
}

// withoutEmptyFields returns a built-in object without the fields whose value equals no value.
func withoutEmptyFields(t *testing.T, object unstructured.Unstructured, document []byte) repo.Object {
	t.Helper()
	if object.GroupVersionKind().Group == "monitoring.coreos.com" {
		return object.Object
	}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	typed, _, err := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer().Decode(document, nil, nil)
	if err != nil {
		t.Fatalf("%v in\n%s", err, document)
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(typed)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// helm runs helm with values in YAML or JSON.
func helm(values string, arguments ...string) (output []byte, messages string, err error) {
	command := exec.Command("helm", append(arguments, "--values", "-")...)
	command.Stdin = strings.NewReader(values)
	var errors bytes.Buffer
	command.Stderr = &errors
	output, err = command.Output()
	return output, errors.String(), err
}

// render returns the objects of a release.
func render(t *testing.T, release, namespace, values string, options ...string) objects {
	t.Helper()
	return renderChart(t, directory, release, namespace, values, options...)
}

// renderChart returns the objects of a release of the chart in a directory.
func renderChart(t *testing.T, directory, release, namespace, values string, options ...string) objects {
	t.Helper()
	output, messages, err := helm(values, append([]string{"template", release, directory, "--namespace", namespace}, options...)...)
	if err != nil {
		t.Fatalf("helm template with %s: %v\n%s\nRun `make package-check`, which builds helm", values, err, messages)
	}
	return parse(t, output)
}

// kustomize returns the objects of a folder in config/.
func kustomize(t *testing.T, folder string) objects {
	t.Helper()
	output, err := exec.Command("kustomize", "build", repo.Root+"/config/"+folder).Output()
	if err != nil {
		t.Fatalf("kustomize: %v. Run `make package-check`, which builds kustomize", err)
	}
	return parse(t, output)
}

// changes compares two renderings. Each change is "+<object>", "-<object>" or "<object> <field>: <before> → <after>".
func changes(t *testing.T, before, after objects) (found []string) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(union(before, after))) {
		switch {
		case before[name] == nil:
			found = append(found, "+"+name)
		case after[name] == nil:
			found = append(found, "-"+name)
		default:
			old, changed := fields(t, before[name]), fields(t, after[name])
			for _, field := range slices.Sorted(maps.Keys(union(old, changed))) {
				if old[field] != changed[field] {
					found = append(found, fmt.Sprintf("%s %s: %s → %s", name, field, old[field], changed[field]))
				}
			}
		}
	}
	return found
}

func union[V any](a, b map[string]V) map[string]V {
	both := maps.Clone(a)
	maps.Copy(both, b)
	return both
}

// fields returns the scalar values in an object by their path, each in JSON.
func fields(t *testing.T, object repo.Object) map[string]string {
	t.Helper()
	found := map[string]string{}
	var walk func(path string, value any)
	walk = func(path string, value any) {
		switch value := value.(type) {
		case map[string]any:
			for key, child := range value {
				walk(path+"."+key, child)
			}
		case []any:
			for i, child := range value {
				walk(fmt.Sprintf("%s[%d]", path, i), child)
			}
		default:
			text, err := json.Marshal(value)
			if err != nil {
				t.Fatal(err)
			}
			found[strings.TrimPrefix(path, ".")] = string(text)
		}
	}
	walk("", object)
	return found
}
