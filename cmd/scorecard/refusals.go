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

// refusal is one way to break a rule of the API.
type refusal struct {
	field string // The field that has the rule.
	rule  string // The rule's keyword in the CRD.
	value any    // What breaks it; nil is a field that is missing.
	words string // What the message must say of it, beside the field's name where it has one.
}

const celRule = "x-kubernetes-validations"

// refusals break every bound and every rule of the API, each by as little as possible.
var refusals = []refusal{
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

// limits are Echoes at both ends of what is allowed.
var limits = []map[string]any{
	{"message": "m", "replicas": int64(1), "port": int64(1), "targetPort": int64(1), "image": "i"},
	{"message": strings.Repeat("m", 16384), "replicas": int64(5), "port": int64(65535), "targetPort": int64(65535),
		"image": strings.Repeat("i", 1024), "page": map[string]any{
			"title": strings.Repeat("t", 253), "language": strings.Repeat("abcdefg-", 4) + "abc", "color": "#00aaFF",
		}},
}

// refuses: the API refuses whatever breaks a rule, in words that name the field, and
// nothing else. It is asked to do so in a dry run.
func refuses(ctx context.Context, t *trial) error {
	var problems []error
	for _, spec := range limits {
		if err := t.Create(ctx, t.candidate(spec), client.DryRunAll); err != nil {
			return fmt.Errorf("expected an Echo at the limits of what is allowed to be accepted; seen: %w", err)
		}
	}
	for _, r := range refusals {
		if err := t.Create(ctx, r.apply(t.candidate(map[string]any{"message": "m"})), client.DryRunAll); !r.met(err) {
			problems = append(problems, r.describe(err))
		}
	}
	return errors.Join(problems...)
}

// candidate returns an Echo that is never stored. It is unstructured, as the Go type
// cannot express everything that a user can write.
func (t *trial) candidate(spec map[string]any) *unstructured.Unstructured {
	echo := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	echo.SetGroupVersionKind(echov1.GroupVersion.WithKind("Echo"))
	echo.SetNamespace(t.echo.Namespace)
	echo.SetGenerateName(t.echo.GenerateName)
	return echo
}

// apply breaks the rule.
func (r refusal) apply(echo *unstructured.Unstructured) *unstructured.Unstructured {
	path := strings.Split(r.field, ".")
	if r.value == nil {
		unstructured.RemoveNestedField(echo.Object, path...)
	} else if err := unstructured.SetNestedField(echo.Object, r.value, path...); err != nil {
		panic(err) // The path runs through a scalar: a mistake in the table above.
	}
	return echo
}

// met tells whether the API server refused for this very rule.
func (r refusal) met(err error) bool {
	return apierrors.IsInvalid(err) && strings.Contains(err.Error(), r.words)
}

func (r refusal) describe(err error) error {
	broken := fmt.Sprintf("expected an Echo that breaks the rule %s of %s to be refused with %q", r.rule, r.field, r.words)
	if err == nil {
		return errors.New(broken + "; seen: it was accepted")
	}
	return fmt.Errorf("%s; seen: %w", broken, err)
}
