package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
)

// violation is an Echo that violates one rule of the API.
type violation struct {
	field string // The field that has the rule.
	rule  string // The keyword of the rule in the CRD.
	value any    // The invalid value. With nil, the field is missing.
	text  string // The text that the error message must contain.
}

const celRule = "x-kubernetes-validations"

// violations violate every rule of the API, each as little as possible.
var violations = []violation{
	{"metadata.name", celRule, "with.dot", "metadata.name becomes the Service name"},
	{"metadata.name", celRule, strings.Repeat("n", 59), "metadata.name becomes the Service name"},
	{"spec", "required", nil, "spec: Required value"},
	{"spec.message", "required", nil, "spec.message: Required value"},
	{"spec.message", "minLength", "", "spec.message"},
	{"spec.message", "maxLength", strings.Repeat("m", 16385), "spec.message"},
	{"spec.message", celRule, "a\x00b", "message must not contain the NUL character"},
	{"spec.replicas", "minimum", int64(0), "spec.replicas"},
	{"spec.replicas", "maximum", int64(6), "spec.replicas"},
	{"spec.port", "minimum", int64(0), "spec.port"},
	{"spec.port", "maximum", int64(65536), "spec.port"},
	{"spec.targetPort", "minimum", int64(0), "spec.targetPort"},
	{"spec.targetPort", "maximum", int64(65536), "spec.targetPort"},
	{"spec.page.title", "maxLength", strings.Repeat("t", 254), "spec.page.title"},
	{"spec.page.language", "pattern", "pt_BR", "spec.page.language"},
	{"spec.page.language", "maxLength", strings.Repeat("abcdefg-", 4) + "abcd", "spec.page.language"},
	{"spec.page.color", "pattern", "#2196F", "spec.page.color"},
	{"spec.image", "minLength", "", "spec.image"},
	{"spec.image", "maxLength", strings.Repeat("i", 1025), "spec.image"},
	{"spec.command", celRule, []any{"/bin/sh"}, "command and args are for a server of your own: set image, too"},
	{"spec.args", celRule, []any{"-v"}, "command and args are for a server of your own: set image, too"},
	{"spec.resources.limits", "pattern", map[string]any{"cpu": "much"}, "spec.resources.limits.cpu"},
	{"spec.resources.requests", "pattern", map[string]any{"cpu": "much"}, "spec.resources.requests.cpu"},
	{"spec.resources.claims", celRule, []any{map[string]any{"name": "gpu"}}, "claims are not supported: set limits and requests"},
}

// limits are valid Echoes with minimum and maximum values.
var limits = []map[string]any{
	{"message": "m", "replicas": int64(1), "port": int64(1), "targetPort": int64(1), "image": "i"},
	{"message": strings.Repeat("m", 16384), "replicas": int64(5), "port": int64(65535), "targetPort": int64(65535),
		"image": strings.Repeat("i", 1024), "page": map[string]any{
			"title": strings.Repeat("t", 253), "language": strings.Repeat("abcdefg-", 4) + "abc", "color": "#00aaFF",
		}},
}

// rejects checks in a dry run that the API server accepts Echoes at the limits, and rejects each
// violation with a message that names the field.
func rejects(ctx context.Context, t *fixture) error {
	var problems []error
	for _, spec := range limits {
		if err := t.Create(ctx, t.candidate(spec), client.DryRunAll); err != nil {
			return fmt.Errorf("expected an Echo with minimum or maximum values to be accepted; observed: %w", err)
		}
	}
	for _, v := range violations {
		if err := t.Create(ctx, v.apply(t.candidate(map[string]any{"message": "m"})), client.DryRunAll); !v.causes(err) {
			problems = append(problems, v.describe(err))
		}
	}
	return errors.Join(problems...)
}

// candidate returns an Echo for a dry run. It is unstructured, because the Go type cannot
// represent every invalid value.
func (t *fixture) candidate(spec map[string]any) *unstructured.Unstructured {
	echo := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	echo.SetGroupVersionKind(echov1.GroupVersion.WithKind("Echo"))
	echo.SetNamespace(t.echo.Namespace)
	echo.SetGenerateName(t.echo.GenerateName)
	return echo
}

// apply sets the invalid value.
func (v violation) apply(echo *unstructured.Unstructured) *unstructured.Unstructured {
	path := strings.Split(v.field, ".")
	if v.value == nil {
		unstructured.RemoveNestedField(echo.Object, path...)
	} else if err := unstructured.SetNestedField(echo.Object, v.value, path...); err != nil {
		panic(err) // The path contains a scalar: the table above is wrong.
	}
	return echo
}

// causes reports whether the error is the API server's rejection of this violation.
func (v violation) causes(err error) bool {
	return apierrors.IsInvalid(err) && strings.Contains(err.Error(), v.text)
}

func (v violation) describe(err error) error {
	expected := fmt.Sprintf("expected an Echo that violates the rule %s of %s to be rejected with %q", v.rule, v.field, v.text)
	if err == nil {
		return errors.New(expected + "; observed: it was accepted")
	}
	return fmt.Errorf("%s; observed: %w", expected, err)
}
