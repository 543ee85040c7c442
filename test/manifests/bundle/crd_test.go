package bundle

import (
	"fmt"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/crdify/pkg/config"
	"sigs.k8s.io/crdify/pkg/runner"
	"sigs.k8s.io/crdify/pkg/validations/property"
	"sigs.k8s.io/yaml"

	"github.com/kkloud-io/echo-operator/config/crd"
	"github.com/kkloud-io/echo-operator/hack/catalog/releases"
)

// strictness is the configuration of OLM v1 (operator-controller v1.11): every rule and every change without a rule is an error, except
// changed descriptions and new enum values.
var strictness = config.Config{
	Conversion:           config.ConversionPolicyIgnore,
	UnhandledEnforcement: config.EnforcementPolicyError,
	Validations: []config.ValidationConfig{
		{Name: "description", Enforcement: config.EnforcementPolicyNone},
		{Name: "enum", Enforcement: config.EnforcementPolicyError, Configuration: map[string]any{"additionPolicy": property.AdditionPolicyAllow}},
	},
}

// incompatibilities returns why OLM v1 would reject the upgrade of a CRD. Each could make an Echo invalid, or change it.
func incompatibilities(t *testing.T, old, replacement []byte) (problems []string) {
	t.Helper()
	rules, err := runner.New(&strictness, runner.DefaultRegistry())
	if err != nil {
		t.Fatal(err)
	}
	results := rules.Run(decodeCRD(t, old), decodeCRD(t, replacement))
	for _, result := range results.CRDValidation {
		problems = append(problems, result.Errors...)
	}
	for _, version := range append(results.SameVersionValidation, results.ServedVersionValidation...) {
		for _, field := range version.PropertyComparisons {
			for _, result := range field.ComparisonResults {
				for _, problem := range result.Errors {
					problems = append(problems, fmt.Sprintf("%s: %s: %s", field.Property, result.Name, problem))
				}
			}
		}
	}
	return problems
}

func decodeCRD(t *testing.T, manifest []byte) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	decoded := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.UnmarshalStrict(manifest, decoded); err != nil {
		t.Fatal(err)
	}
	return decoded
}

// Echoes of every published release stay valid and unchanged.
func TestCRDIsCompatibleWithEveryRelease(t *testing.T) {
	published, err := releases.Published()
	if err != nil {
		t.Fatal(err)
	}
	for _, release := range published {
		old, err := release.File("bundle/manifests/kkloud.io_echoes.yaml")
		if err != nil {
			t.Fatal(err)
		}
		for _, problem := range incompatibilities(t, old, crd.Echoes) {
			t.Errorf("since %s: %s", release.Version, problem)
		}
	}
}

func TestIncompatibleCRDIsFound(t *testing.T) {
	for name, change := range map[string]func(*apiextensionsv1.JSONSchemaProps){
		"a lower maximum": func(s *apiextensionsv1.JSONSchemaProps) {
			replicas := s.Properties["replicas"]
			replicas.Maximum = new(4.0)
			s.Properties["replicas"] = replicas
		},
		"a new rule": func(s *apiextensionsv1.JSONSchemaProps) {
			s.XValidations = append(s.XValidations, apiextensionsv1.ValidationRule{Rule: "!has(self.page)", Message: "m"})
		},
		"a removed field": func(s *apiextensionsv1.JSONSchemaProps) { delete(s.Properties, "targetPort") },
		"another default": func(s *apiextensionsv1.JSONSchemaProps) {
			port := s.Properties["port"]
			port.Default = &apiextensionsv1.JSON{Raw: []byte("8080")}
			s.Properties["port"] = port
		},
	} {
		changed := decodeCRD(t, crd.Echoes)
		spec := changed.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"]
		change(&spec)
		changed.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"] = spec
		manifest, err := yaml.Marshal(changed)
		if err != nil {
			t.Fatal(err)
		}
		if len(incompatibilities(t, crd.Echoes, manifest)) == 0 {
			t.Errorf("%s: want an incompatibility", name)
		}
	}
}
