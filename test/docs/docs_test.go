package docs

import (
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/operator-framework/api/pkg/operators/v1alpha1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
)

// Links to other sites are not followed.
func TestEveryRelativeLinkHasATarget(t *testing.T) {
	for _, name := range pages(t) {
		for _, link := range readPage(t, name).links {
			if strings.HasPrefix(link, "https://") {
				continue
			}
			target, fragment, hasFragment := strings.Cut(link, "#")
			file := name
			if target != "" {
				file = path.Join(path.Dir(name), target)
			}
			if _, err := os.Stat(filepath.Join(root, file)); err != nil {
				t.Errorf("%s: %s: the repository has no such file", name, link)
			} else if hasFragment && path.Ext(file) == ".md" && !slices.Contains(readPage(t, file).anchors, fragment) {
				t.Errorf("%s: %s: the page has no such heading", name, link)
			}
		}
	}
}

func TestEveryManifestOfAnEchoHasOnlyKnownFields(t *testing.T) {
	for _, name := range pages(t) {
		for _, b := range readPage(t, name).blocks {
			isEcho := strings.Contains(b.text, "kind: Echo\n") || strings.HasPrefix(b.text, "spec:\n  message:")
			if b.language != "yaml" || !isEcho {
				continue
			}
			if err := yaml.UnmarshalStrict([]byte(b.text), &echov1.Echo{}); err != nil {
				t.Errorf("%s:%d: %v", name, b.line, err)
			}
		}
	}
}

// fields returns the paths of the fields of a schema, except those of the types that Kubernetes describes.
func fields(parent string, schema apiextensionsv1.JSONSchemaProps) (all []string) {
	for _, name := range slices.Sorted(maps.Keys(schema.Properties)) {
		path := strings.TrimPrefix(parent+"."+name, ".")
		all = append(all, path)
		if name != "resources" {
			all = append(all, fields(path, schema.Properties[name])...)
		}
	}
	return all
}

// TestEveryFieldAndReasonIsDescribed checks that a page has a heading or a row for each field of the spec, that another one names each
// field of the status and each reason, and that the console of OpenShift describes the fields: the scorecard checks only those that an
// example sets.
func TestEveryFieldAndReasonIsDescribed(t *testing.T) {
	var crd apiextensionsv1.CustomResourceDefinition
	readManifest(t, "config/crd/bases/kkloud.io_echoes.yaml", &crd)
	var csv v1alpha1.ClusterServiceVersion
	readManifest(t, "bundle/manifests/echo-operator.clusterserviceversion.yaml", &csv)
	echo, console := crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties, csv.Spec.CustomResourceDefinitions.Owned[0]
	var described []string
	for _, subject := range regexp.MustCompile(`(?m)^(?:#+|\|) ([^|\n]+)`).FindAllStringSubmatch(readFile(t, "docs/echo.md"), -1) {
		described = append(described, strings.Split(strings.Trim(subject[1], "` "), " and ")...)
	}
	for _, field := range fields("", echo["spec"]) {
		if !slices.Contains(described, field) {
			t.Errorf("docs/echo.md does not describe the field %s: add a row or a section", field)
		}
		if !slices.ContainsFunc(console.SpecDescriptors, func(d v1alpha1.SpecDescriptor) bool { return d.Path == field }) {
			t.Errorf("spec.%s has no descriptor in the ClusterServiceVersion", field)
		}
	}
	names := fields("", echo["status"])
	for _, field := range names {
		if !slices.ContainsFunc(console.StatusDescriptors, func(d v1alpha1.StatusDescriptor) bool { return d.Path == field }) {
			t.Errorf("status.%s has no descriptor in the ClusterServiceVersion", field)
		}
	}
	for _, match := range regexp.MustCompile(`(?m)^\s+Reason\w+\s*= "(\w+)"`).FindAllStringSubmatch(readFile(t, "api/v1/conditions.go"), -1) {
		names = append(names, match[1])
	}
	for _, name := range names {
		if !strings.Contains(readFile(t, statusPage), "`"+name+"`") {
			t.Errorf("%s does not describe %s", statusPage, name)
		}
	}
}

func readManifest(t *testing.T, name string, into any) {
	t.Helper()
	if err := yaml.UnmarshalStrict([]byte(readFile(t, name)), into); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}
