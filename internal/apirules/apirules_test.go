package apirules

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"
)

// A new rule in the CRD needs a violation.
func TestEveryRuleHasAViolation(t *testing.T) {
	var crd struct {
		Spec struct {
			Versions []struct {
				Schema struct{ OpenAPIV3Schema map[string]any }
			}
		}
	}
	text, err := os.ReadFile("../../config/crd/bases/kkloud.io_echoes.yaml")
	if err == nil {
		err = yaml.Unmarshal(text, &crd)
	}
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]bool{}
	rules(crd.Spec.Versions[0].Schema.OpenAPIV3Schema, "", want)

	violated := map[string]bool{}
	for _, v := range Violations {
		violated[v.Field+" "+v.Rule] = true
	}
	// A validation rule is known by its message: some rules are defined one level above the field
	// that violates them.
	for message := range want {
		for _, v := range Violations {
			if v.Rule == CEL && strings.HasPrefix(message, v.Text) {
				delete(violated, v.Field+" "+CEL)
				violated[message] = true
			}
		}
	}
	for rule := range want {
		if !violated[rule] {
			t.Errorf("no violation of %q: add one to Violations in apirules.go", rule)
		}
	}
	for rule := range violated {
		if !want[rule] {
			t.Errorf("Violations has %q, which is no rule of the CRD: remove it, or run make manifests", rule)
		}
	}
}

// rules collects the rules of a schema in the form "<field> <keyword>". A rule for the items of a
// list counts as one of the list; a validation rule has the form of its message.
func rules(schema map[string]any, path string, found map[string]bool) {
	for _, keyword := range []string{"minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems", "maxProperties", "pattern", "enum"} {
		if _, ok := schema[keyword]; ok {
			found[path+" "+keyword] = true
		}
	}
	validations, _ := schema[CEL].([]any)
	for _, rule := range validations {
		found[rule.(map[string]any)["message"].(string)] = true
	}
	required, _ := schema["required"].([]any)
	for _, field := range required {
		found[strings.TrimPrefix(fmt.Sprint(path, ".", field), ".")+" required"] = true
	}
	for _, keyword := range []string{"additionalProperties", "items"} {
		if values, ok := schema[keyword].(map[string]any); ok {
			rules(values, path, found)
		}
	}
	properties, _ := schema["properties"].(map[string]any)
	for name, property := range properties {
		// Only the operator writes the status. A rule rejects claims as a whole.
		if name != "status" && name != "claims" {
			rules(property.(map[string]any), strings.TrimPrefix(path+"."+name, "."), found)
		}
	}
}

func TestCheckAcceptsOnlyTheErrorOfTheRule(t *testing.T) {
	invalid := func(message string) error {
		err := apierrors.NewInvalid(schema.GroupKind{Kind: "Echo"}, "x", nil)
		err.ErrStatus.Message = message
		return err
	}
	v := Violation{Field: "spec.port", Rule: "maximum", Value: int64(65536), Text: "spec.port"}
	for err, want := range map[error]bool{
		nil:                                     false,
		errors.New("spec.port"):                 false,
		invalid("spec.replicas: Invalid value"): false,
		invalid("spec.port: Invalid value"):     true,
	} {
		if got := v.Check(err); (got == nil) != want {
			t.Errorf("Check(%v) = %v, want an error: %t", err, got, !want)
		}
	}
}
