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

// test/e2e/helm runs the commands of docs/helm.md.
func TestEveryShellBlockRunsOrIsAnExample(t *testing.T) {
	for _, name := range pages(t) {
		if name != quickStart && path.Dir(name) != "docs" {
			continue
		}
		for _, b := range readPage(t, name).commands() {
			runs := slices.Contains([]string{tutorial, quickStart, "docs/helm.md"}, name) ||
				slices.ContainsFunc(runPages, func(p runPage) bool { return p.name == name && p.runs(b.section) })
			if !runs && !b.example {
				t.Errorf("%s:%d: the commands run in no test: add the page to runPages, or precede the block with %s", name, b.line, exampleMark)
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

// leaves returns the paths of the fields of a schema that have no fields of their own.
func leaves(path string, schema apiextensionsv1.JSONSchemaProps) (all []string) {
	isResources := path == "resources" || strings.HasSuffix(path, ".resources") // Kubernetes describes their fields.
	if len(schema.Properties) == 0 || isResources {
		return []string{path}
	}
	for _, name := range slices.Sorted(maps.Keys(schema.Properties)) {
		all = append(all, leaves(strings.TrimPrefix(path+"."+name, "."), schema.Properties[name])...)
	}
	return all
}

// TestReferenceHasEveryName checks that a page has a heading or a row for each field of the spec, and that another one names
// each field of the status and each reason.
func TestReferenceHasEveryName(t *testing.T) {
	var crd apiextensionsv1.CustomResourceDefinition
	if err := yaml.UnmarshalStrict([]byte(readFile(t, "config/crd/bases/kkloud.io_echoes.yaml")), &crd); err != nil {
		t.Fatal(err)
	}
	echo := crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties
	described := strings.Split(strings.Join(readPage(t, "docs/echo.md").subjects, " and "), " and ")
	for _, field := range leaves("", echo["spec"]) {
		if !slices.Contains(described, field) {
			t.Errorf("docs/echo.md does not describe the field %s: add a row or a section", field)
		}
	}
	names := slices.Collect(maps.Keys(echo["status"].Properties))
	for _, match := range regexp.MustCompile(`(?m)^\s+Reason\w+\s*= "(\w+)"`).FindAllStringSubmatch(readFile(t, "api/v1/conditions.go"), -1) {
		names = append(names, match[1])
	}
	for _, name := range names {
		if !strings.Contains(readFile(t, statusPage), "`"+name+"`") {
			t.Errorf("%s does not describe %s", statusPage, name)
		}
	}
}
