package crdcompat

import (
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"github.com/kkloud-io/echo-operator/config/crd"
	"github.com/kkloud-io/echo-operator/hack/catalog/releases"
)

// Without a published release, the current CRD accepts its own Echoes and reads them back unchanged.
func TestEchoesOfEveryReleaseStayValidAndUnchanged(t *testing.T) {
	published, err := releases.Published()
	if err != nil {
		t.Fatal(err)
	}
	predecessors := map[string][]byte{"current": crd.Echoes}
	for _, release := range published {
		if predecessors[release.Version], err = release.File("bundle/manifests/kkloud.io_echoes.yaml"); err != nil {
			t.Fatal(err)
		}
	}
	for version, manifest := range predecessors {
		t.Run(version, func(t *testing.T) {
			problems, err := Check(decode(t, manifest), decode(t, crd.Echoes), 100)
			if err != nil {
				t.Fatal(err)
			}
			for _, problem := range problems {
				t.Error(problem)
			}
		})
	}
}

func TestCheckReportsIncompatibleChanges(t *testing.T) {
	const (
		preflight = "OLM v1 preflight rejects"
		rejected  = "valid Echo is rejected"
		changed   = "stored Echo changes"
		another   = "same manifest creates another Echo"
	)
	property := func(spec *apiextensionsv1.JSONSchemaProps, name string, edit func(*apiextensionsv1.JSONSchemaProps)) {
		changed := spec.Properties[name]
		edit(&changed)
		spec.Properties[name] = changed
	}
	type props = apiextensionsv1.JSONSchemaProps
	for name, c := range map[string]struct {
		change func(spec *props)
		want   []string
	}{
		"a lower maximum": {func(s *props) { property(s, "replicas", func(p *props) { *p.Maximum = 4 }) },
			[]string{preflight + " v1 ^.spec.replicas", "spec.replicas: " + rejected}},
		"a new rule": {func(s *props) {
			s.XValidations = append(s.XValidations, apiextensionsv1.ValidationRule{Rule: "!has(self.page) || self.replicas < 5", Message: "m"})
		}, []string{preflight + " v1 ^.spec", "spec: " + rejected}},
		"a removed field": {func(s *props) { delete(s.Properties, "targetPort") },
			[]string{preflight + " v1 ^.spec.targetPort", "spec.targetPort: " + changed, "spec.targetPort: " + another}},
		"another default": {func(s *props) { property(s, "port", func(p *props) { p.Default.Raw = []byte("8080") }) },
			[]string{preflight + " v1 ^.spec.port", "spec.port: " + another}},
		"a description": {func(s *props) { s.Description = "Another." }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			replacement := decode(t, crd.Echoes)
			root := replacement.Spec.Versions[0].Schema.OpenAPIV3Schema
			property(root, "spec", c.change)
			problems, err := Check(decode(t, crd.Echoes), replacement, 0)
			if err != nil {
				t.Fatal(err)
			}
			for _, want := range c.want {
				if !slices.ContainsFunc(problems, func(problem string) bool { return strings.Contains(problem, want) }) {
					t.Errorf("problems = %q, want one that contains %q", problems, want)
				}
			}
			if len(c.want) == 0 && len(problems) > 0 {
				t.Errorf("problems = %q, want none", problems)
			}
		})
	}
}

func decode(t *testing.T, manifest []byte) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.UnmarshalStrict(manifest, crd); err != nil {
		t.Fatal(err)
	}
	return crd
}
