package bundle

import (
	"strings"
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

// compare returns why OLM v1 would reject the upgrade of a CRD. Each could make an Echo invalid, or change it.
func compare(t *testing.T, old, replacement []byte) *runner.Results {
	t.Helper()
	rules, err := runner.New(&strictness, runner.DefaultRegistry())
	if err != nil {
		t.Fatal(err)
	}
	var crds [2]apiextensionsv1.CustomResourceDefinition
	for i, manifest := range [][]byte{old, replacement} {
		if err := yaml.UnmarshalStrict(manifest, &crds[i]); err != nil {
			t.Fatal(err)
		}
	}
	return rules.Run(&crds[0], &crds[1])
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
		if results := compare(t, old, crd.Echoes); results.HasFailures() {
			t.Errorf("since %s:\n%s", release.Version, results.RenderPlainText())
		}
	}
}

func TestIncompatibleCRDIsFound(t *testing.T) {
	for name, change := range map[string][2]string{
		"a lower maximum": {"maximum: 5\n", "maximum: 4\n"},
		"another rule":    {"sum() <= 32768\n", "sum() <= 32767\n"},
		"a removed field": {" targetPort:\n", " port2:\n"},
		"another default": {"default: 80\n", "default: 8080\n"},
	} {
		changed := strings.Replace(string(crd.Echoes), change[0], change[1], 1)
		if !compare(t, crd.Echoes, []byte(changed)).HasFailures() {
			t.Errorf("%s: want an incompatibility", name)
		}
	}
}
