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
var Violations = slices.Concat(fieldViolations, podViolations)

var fieldViolations = []Violation{
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
	{"spec.statusCode", "minimum", int64(199), "spec.statusCode", "greater than or equal to 200"},
	{"spec.statusCode", "maximum", int64(600), "spec.statusCode", "less than or equal to 599"},
	{"spec.statusCode", CEL, int64(503), "statusCode must be 200 or unset with command or args", ""},
	{"spec.readinessPath", "pattern", "healthz", "spec.readinessPath", "^/[!-~]*$"},
	{"spec.readinessPath", "pattern", "/a b", "spec.readinessPath", "^/[!-~]*$"},
	{"spec.readinessPath", "pattern", "/é", "spec.readinessPath", "^/[!-~]*$"},
	{"spec.readinessPath", "minLength", "", "spec.readinessPath", "at least 1"},
	{"spec.readinessPath", "maxLength", "/" + strings.Repeat("p", 1024), "spec.readinessPath", "1024"},
	{"spec.readinessPath", CEL, "/healthz", "readinessPath is for a server of your own", "set command or args, too"},
	{"spec.resources.limits", "pattern", map[string]any{"cpu": "much"}, "spec.resources.limits.cpu", ""},
	{"spec.resources.requests", "pattern", map[string]any{"cpu": "much"}, "spec.resources.requests.cpu", ""},
	{"spec.route.parentRefs", "required", nil, "spec.route.parentRefs: Required value", ""},
	{"spec.route.parentRefs", "minItems", []any{}, "spec.route.parentRefs", "at least 1"},
	{"spec.route.parentRefs", "maxItems", gateways("a", "b", "c", "d", "e"), "spec.route.parentRefs: Too many", "4"},
	{"spec.route.parentRefs", CEL, gateways("a", "a"), "parentRefs that name the same Gateway must each have a sectionName of their own", "spec.route.parentRefs"},
	{"spec.route.parentRefs.name", "required", nil, "spec.route.parentRefs[0].name: Required value", ""},
	{"spec.route.parentRefs.name", "minLength", "", "spec.route.parentRefs[0].name", "at least 1"},
	{"spec.route.parentRefs.name", "maxLength", strings.Repeat("n", 254), "spec.route.parentRefs[0].name: Too long", "253"},
	{"spec.route.parentRefs.name", "pattern", "Public", "spec.route.parentRefs[0].name", "[a-z0-9]"},
	{"spec.route.parentRefs.namespace", "minLength", "", "spec.route.parentRefs[0].namespace", "at least 1"},
	{"spec.route.parentRefs.namespace", "maxLength", strings.Repeat("n", 64), "spec.route.parentRefs[0].namespace: Too long", "63"},
	{"spec.route.parentRefs.namespace", "pattern", "a.b", "spec.route.parentRefs[0].namespace", "[a-z0-9]"},
	{"spec.route.parentRefs.sectionName", "minLength", "", "spec.route.parentRefs[0].sectionName", "at least 1"},
	{"spec.route.parentRefs.sectionName", "maxLength", strings.Repeat("n", 254), "spec.route.parentRefs[0].sectionName: Too long", "253"},
	{"spec.route.parentRefs.sectionName", "pattern", "HTTPS", "spec.route.parentRefs[0].sectionName", "[a-z0-9]"},
	{"spec.route.parentRefs.port", "minimum", int64(0), "spec.route.parentRefs[0].port", "greater than or equal to 1"},
	{"spec.route.parentRefs.port", "maximum", int64(65536), "spec.route.parentRefs[0].port", "65535"},
	{"spec.route.hostnames", "maxItems", list(9, "a.example"), "spec.route.hostnames: Too many", "8"},
	{"spec.route.hostnames", "minLength", list(1, ""), "spec.route.hostnames[0]", "at least 1"},
	{"spec.route.hostnames", "maxLength", list(1, strings.Repeat("h", 254)), "spec.route.hostnames[0]: Too long", "253"},
	{"spec.route.hostnames", "pattern", list(1, "a.example:443"), "spec.route.hostnames[0]", "[a-z0-9]"},
	{"spec.route.hostnames", "pattern", list(1, "a.*.example"), "spec.route.hostnames[0]", "[a-z0-9]"},
	{"spec.route.paths", "minItems", []any{}, "spec.route.paths", "at least 1"},
	{"spec.route.paths", "maxItems", slices.Repeat([]any{map[string]any{"value": "/"}}, 9), "spec.route.paths: Too many", "8"},
	{"spec.route.paths.type", "enum", "RegularExpression", "spec.route.paths[0].type", "PathPrefix"},
	{"spec.route.paths.value", "required", nil, "spec.route.paths[0].value: Required value", ""},
	{"spec.route.paths.value", "minLength", "", "spec.route.paths[0].value", "at least 1"},
	{"spec.route.paths.value", "maxLength", "/" + strings.Repeat("p", 1024), "spec.route.paths[0].value: Too long", "1024"},
	{"spec.route.paths.value", "pattern", "docs", "spec.route.paths[0].value", "^/"},
	{"spec.route.paths.value", "pattern", "/a?b", "spec.route.paths[0].value", "^/"},
	{"spec.route.paths.value", CEL, "/a//b", "value of a path must not contain //", "spec.route.paths[0]"},
	{"spec.route.paths.value", CEL, "/a/./b", "value of a path must not contain //", "spec.route.paths[0]"},
	{"spec.route.paths.value", CEL, "/a/..", "value of a path must not contain //", "spec.route.paths[0]"},
	{"spec.route.paths.value", CEL, "/a%2Fb", "value of a path must not contain //", "spec.route.paths[0]"},
	{"spec.route.responseHeaders", "maxItems", headers(17), "spec.route.responseHeaders: Too many", "16"},
	{"spec.route.responseHeaders", CEL, []any{header("A", "v"), header("a", "v")}, "responseHeaders must not repeat a name", "spec.route.responseHeaders"},
	{"spec.route.responseHeaders.name", "required", nil, "spec.route.responseHeaders[0].name: Required value", ""},
	{"spec.route.responseHeaders.name", "minLength", "", "spec.route.responseHeaders[0].name", "at least 1"},
	{"spec.route.responseHeaders.name", "maxLength", strings.Repeat("n", 257), "spec.route.responseHeaders[0].name: Too long", "256"},
	{"spec.route.responseHeaders.name", "pattern", "a:", "spec.route.responseHeaders[0].name", "[A-Za-z0-9"},
	{"spec.route.responseHeaders.value", "required", nil, "spec.route.responseHeaders[0].value: Required value", ""},
	{"spec.route.responseHeaders.value", "minLength", "", "spec.route.responseHeaders[0].value", "at least 1"},
	{"spec.route.responseHeaders.value", "maxLength", strings.Repeat("v", 4097), "spec.route.responseHeaders[0].value: Too long", "4096"},
	{"spec.route.responseHeaders.value", "pattern", "a\r\nSet-Cookie: b", "spec.route.responseHeaders[0].value", "[!-~]"},
	{"spec.route.scheme", "enum", "tcp", "spec.route.scheme", "https"},
	{"spec.verify.from", "enum", "Node", "spec.verify.from", "EveryNode"},
	{"spec.verify.periodSeconds", "minimum", int64(0), "spec.verify.periodSeconds", "greater than or equal to 1"},
	{"spec.verify.periodSeconds", "maximum", int64(301), "spec.verify.periodSeconds", "less than or equal to 300"},
	{"spec.verify.timeoutSeconds", "minimum", int64(0), "spec.verify.timeoutSeconds", "greater than or equal to 1"},
	{"spec.verify.timeoutSeconds", "maximum", int64(61), "spec.verify.timeoutSeconds", "less than or equal to 60"},
	{"spec.verify.timeoutSeconds", CEL, int64(11), "timeoutSeconds must be at most periodSeconds", "spec.verify"},
	{"spec.verify.failureThreshold", "minimum", int64(0), "spec.verify.failureThreshold", "greater than or equal to 1"},
	{"spec.verify.failureThreshold", "maximum", int64(11), "spec.verify.failureThreshold", "less than or equal to 10"},
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
	{"message": "m", "route": map[string]any{
		"parentRefs": []any{
			map[string]any{"name": strings.Repeat("n", 253), "namespace": strings.Repeat("n", 63), "sectionName": strings.Repeat("n", 253), "port": int64(1)},
			map[string]any{"name": strings.Repeat("n", 253), "namespace": strings.Repeat("n", 63), "sectionName": "s", "port": int64(65535)},
			map[string]any{"name": strings.Repeat("n", 253)}, map[string]any{"name": "1.b-c"},
		},
		"hostnames": append(list(7, strings.Repeat("h", 253)), "*.example"),
		"paths": append(slices.Repeat([]any{map[string]any{"type": "Exact", "value": "/" + strings.Repeat("p", 1023)}}, 6),
			map[string]any{"value": "/"}, map[string]any{"type": "PathPrefix", "value": "/-A9._~!$&'()*+,;=:@%2a/.well-known/..a/"}),
		"responseHeaders": headers(16), "scheme": "http",
	}},
	{"message": "m", "statusCode": int64(200), "image": "i", "command": []any{"c"}, "readinessPath": "/" + strings.Repeat("~", 1023)},
	{"message": "m", "statusCode": int64(599), "image": "i", "command": []any{}, "args": []any{}},
	{"message": "m", "image": "i", "args": []any{"a"}, "readinessPath": "/"},
	{"message": "m", "pod": map[string]any{}},
	{"message": "m", "verify": map[string]any{}},
	{"message": "m", "verify": map[string]any{"from": "Cluster", "periodSeconds": int64(1), "timeoutSeconds": int64(1), "failureThreshold": int64(1)}},
	{"message": "m", "verify": map[string]any{"from": "EveryNode", "periodSeconds": int64(300), "timeoutSeconds": int64(60), "failureThreshold": int64(10)}},
	{"message": "m", "pod": longestPodSettings()},
	{"message": "m", "image": "i", "command": list(2, strings.Repeat("é", 16384)), "args": []any{strings.Repeat("é", 16384), ""}},
}

// list returns a list that contains the item so many times.
func list(length int, item string) []any { return slices.Repeat([]any{item}, length) }

// gateways returns parentRefs with these names.
func gateways(names ...string) (refs []any) {
	for _, name := range names {
		refs = append(refs, map[string]any{"name": name})
	}
	return refs
}

func header(name, value string) any { return map[string]any{"name": name, "value": value} }

// headers returns so many headers of the maximum length.
func headers(count int) (all []any) {
	for i := range count {
		all = append(all, header(fmt.Sprintf("%02d", i)+strings.Repeat("!", 254), "v"+strings.Repeat(" ", 4094)+"v"))
	}
	return all
}

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
	spec := echo.Object["spec"].(map[string]any)
	if (v.Field == "spec.command" || v.Field == "spec.args") && v.Text != needsImage {
		spec["image"] = "i"
	}
	if v.Field == "spec.statusCode" || v.Field == "spec.readinessPath" && v.Rule != CEL {
		spec["image"], spec["args"] = "i", []any{"a"}
	}
	if strings.HasPrefix(v.Field, "spec.route.") {
		spec["route"] = map[string]any{
			"parentRefs": gateways("g"), "paths": []any{map[string]any{"value": "/"}}, "responseHeaders": []any{header("a", "v")},
		}
	}
	set(echo.Object, strings.Split(v.Field, "."), v.Value)
	return echo
}

// set sets a field, or removes it if the value is nil. Of a list, it changes the first item.
func set(object map[string]any, path []string, value any) {
	name, rest := path[0], path[1:]
	if len(rest) == 0 {
		if object[name] = value; value == nil {
			delete(object, name)
		}
		return
	}
	if items, is := object[name].([]any); is {
		set(items[0].(map[string]any), rest, value)
		return
	}
	child, is := object[name].(map[string]any)
	if !is {
		child = map[string]any{}
		object[name] = child
	}
	set(child, rest, value)
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
