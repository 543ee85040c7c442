// Package apirules has an invalid value for each rule of the API, and Echoes at the limits of the
// rules. The scorecard and the integration tests check that the API server enforces the rules.
package apirules

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
)

// Violation is a value that violates one rule of the API.
type Violation struct {
	Field string // The field that has the rule.
	Rule  string // The keyword of the rule in the CRD.
	Value any    // The invalid value. With nil, the field is missing.
	Text  string // The text that the error message must contain.
	// Detail is the limit in the error message. Its wording may depend on the version of
	// Kubernetes, so the scorecard ignores it.
	Detail string
}

// CEL is the keyword of validation rules in the CRD.
const CEL = "x-kubernetes-validations"

const needsImage = "command and args are for a server of your own: set image, too"

// Violations violate every rule of the API, each as little as possible.
var Violations = []Violation{
	{"metadata.name", CEL, "with.dot", "metadata.name becomes the Service name", "no dots"},
	{"metadata.name", CEL, strings.Repeat("n", 59), "metadata.name becomes the Service name", "58"},
	{"spec", "required", nil, "spec: Required value", ""},
	{"spec.message", "required", nil, "spec.message: Required value", ""},
	{"spec.message", "minLength", "", "spec.message", "at least 1"},
	{"spec.message", "maxLength", strings.Repeat("é", 16385), "spec.message", "16384"},
	{"spec.message", CEL, "a\x00b", "message must not contain the NUL character", "spec.message"},
	{"spec.replicas", "minimum", int64(0), "spec.replicas", "greater than or equal to 1"},
	{"spec.replicas", "maximum", int64(6), "spec.replicas", "less than or equal to 5"},
	{"spec.port", "minimum", int64(0), "spec.port", "greater than or equal to 1"},
	{"spec.port", "maximum", int64(65536), "spec.port", "65535"},
	{"spec.targetPort", "minimum", int64(0), "spec.targetPort", "greater than or equal to 1"},
	{"spec.targetPort", "maximum", int64(65536), "spec.targetPort", "65535"},
	{"spec.page.title", "maxLength", strings.Repeat("t", 254), "spec.page.title", "253"},
	{"spec.page.language", "pattern", "pt_BR", "spec.page.language", "[a-zA-Z]{2,8}"},
	{"spec.page.language", "pattern", "pt BR", "spec.page.language", "[a-zA-Z]{2,8}"},
	{"spec.page.language", "maxLength", strings.Repeat("abcdefg-", 4) + "abcd", "spec.page.language", "35"},
	{"spec.page.color", "pattern", "#2196F", "spec.page.color", "#[0-9a-fA-F]{6}"},
	{"spec.page.color", "pattern", "red", "spec.page.color", "#[0-9a-fA-F]{6}"},
	{"spec.image", "minLength", "", "spec.image", "at least 1"},
	{"spec.image", "maxLength", strings.Repeat("i", 1025), "spec.image", "1024"},
	{"spec.command", CEL, []any{"/bin/sh"}, needsImage, ""},
	{"spec.args", CEL, []any{"-v"}, needsImage, ""},
	{"spec.command", "maxItems", list(65, "c"), "spec.command: Too many", "64"},
	{"spec.command", "maxLength", list(1, strings.Repeat("c", 16385)), "spec.command[0]: Too long", "16384"},
	{"spec.command", CEL, append(list(2, strings.Repeat("é", 16384)), "c"), "command must have at most 32,768 characters in total", "spec.command"},
	{"spec.args", "maxItems", list(65, "a"), "spec.args: Too many", "64"},
	{"spec.args", "maxLength", list(1, strings.Repeat("a", 16385)), "spec.args[0]: Too long", "16384"},
	{"spec.args", CEL, append(list(2, strings.Repeat("é", 16384)), "a"), "args must have at most 32,768 characters in total", "spec.args"},
	{"spec.resources.limits", "pattern", map[string]any{"cpu": "much"}, "spec.resources.limits.cpu", ""},
	{"spec.resources.requests", "pattern", map[string]any{"cpu": "much"}, "spec.resources.requests.cpu", ""},
	{"spec.resources.claims", CEL, []any{map[string]any{"name": "gpu"}}, "claims are not supported: set limits and requests", "spec.resources"},
}

// Limits are valid Echoes with minimum and maximum values.
var Limits = []map[string]any{
	{"message": "m", "replicas": int64(1), "port": int64(1), "targetPort": int64(1), "image": "i"},
	{"message": strings.Repeat("m", 16384), "replicas": int64(5), "port": int64(65535), "targetPort": int64(65535),
		"image": strings.Repeat("i", 1024), "page": map[string]any{
			"title": strings.Repeat("t", 253), "language": strings.Repeat("abcdefg-", 4) + "abc", "color": "#00aaFF",
		}},
	{"message": "m", "command": []any{}, "args": []any{}},
	{"message": "m", "image": "i", "command": list(64, "c"), "args": list(64, strings.Repeat("é", 512))},
	{"message": "m", "image": "i", "command": list(2, strings.Repeat("é", 16384)), "args": []any{strings.Repeat("é", 16384), ""}},
}

// list returns a list that contains the item so many times.
func list(length int, item string) []any { return slices.Repeat([]any{item}, length) }

// Echo returns an Echo with the spec. It is unstructured, because the Go type cannot represent
// every invalid value.
func Echo(namespace string, spec map[string]any) *unstructured.Unstructured {
	echo := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	echo.SetGroupVersionKind(echov1.GroupVersion.WithKind("Echo"))
	echo.SetNamespace(namespace)
	echo.SetGenerateName("rules-")
	return echo
}

// Echo returns an Echo that is valid except for the violation.
func (v Violation) Echo(namespace string) *unstructured.Unstructured {
	echo := Echo(namespace, map[string]any{"message": "m"})
	if (v.Field == "spec.command" || v.Field == "spec.args") && v.Text != needsImage {
		echo.Object["spec"].(map[string]any)["image"] = "i"
	}
	path := strings.Split(v.Field, ".")
	if v.Value == nil {
		unstructured.RemoveNestedField(echo.Object, path...)
	} else if err := unstructured.SetNestedField(echo.Object, v.Value, path...); err != nil {
		panic(err) // The path contains a scalar: the table above is wrong.
	}
	return echo
}

// Check returns an error unless err is the API server's rejection of this violation.
func (v Violation) Check(err error) error {
	if apierrors.IsInvalid(err) && strings.Contains(err.Error(), v.Text) {
		return nil
	}
	expected := fmt.Sprintf("expected an Echo that violates the rule %s of %s to be rejected with %q", v.Rule, v.Field, v.Text)
	if err == nil {
		return errors.New(expected + "; observed: it was accepted")
	}
	return fmt.Errorf("%s; observed: %w", expected, err)
}
