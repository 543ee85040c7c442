package apirules

import (
	"fmt"
	"strings"
)

const (
	reservedLabel      = "labels has a key that is reserved"
	reservedAnnotation = "annotations has a key that is reserved"
)

// podViolations violate the rules of spec.pod.
var podViolations = []Violation{
	{"spec.pod.nodeSelector", "maxProperties", entries(17, "v"), "spec.pod.nodeSelector", "16"},
	{"spec.pod.nodeSelector", "maxLength", entries(1, strings.Repeat("v", 64)), "spec.pod.nodeSelector.k0", "63"},
	{"spec.pod.nodeSelector", "pattern", entries(1, "-v"), "spec.pod.nodeSelector.k0", "[A-Za-z0-9]"},
	{"spec.pod.nodeSelector", CEL, map[string]any{"": "v"}, "nodeSelector has an invalid key", "spec.pod.nodeSelector"},
	{"spec.pod.nodeSelector", CEL, map[string]any{"Example.com/k": "v"}, "nodeSelector has an invalid key", "lower-case"},
	{"spec.pod.nodeSelector", CEL, map[string]any{"kubernetes.io/os": "windows"}, "kubernetes.io/os must be linux or unset", "spec.pod.nodeSelector"},

	{"spec.pod.tolerations", "maxItems", repeated(17, map[string]any{"key": "k"}), "spec.pod.tolerations", "16"},
	{"spec.pod.tolerations", CEL, toleration("key", strings.Repeat("k", 318)), "a toleration has a key of at most 317 characters", "spec.pod.tolerations"},
	{"spec.pod.tolerations", CEL, toleration("key", "k", "value", strings.Repeat("v", 64)), "a toleration has a key of at most 317 characters", "a value of at most 63"},
	{"spec.pod.tolerations", CEL, toleration("key", "k", "operator", "Is"), "the operator of a toleration is Equal, Exists, Lt or Gt", "spec.pod.tolerations"},
	{"spec.pod.tolerations", CEL, toleration("key", "k", "effect", "Never"), "the effect of a toleration is NoSchedule, PreferNoSchedule or NoExecute", "spec.pod.tolerations"},
	{"spec.pod.tolerations", CEL, toleration("operator", "Equal"), "a toleration without a key has the operator Exists", "spec.pod.tolerations"},
	{"spec.pod.tolerations", CEL, toleration("key", "k", "operator", "Exists", "value", "v"), "a toleration with the operator Exists has no value", "spec.pod.tolerations"},
	{"spec.pod.tolerations", CEL, toleration("key", "k", "tolerationSeconds", int64(5)), "a toleration with tolerationSeconds has the effect NoExecute", "spec.pod.tolerations"},

	{"spec.pod.priorityClassName", "minLength", "", "spec.pod.priorityClassName", "at least 1"},
	{"spec.pod.priorityClassName", "maxLength", strings.Repeat("p", 254), "spec.pod.priorityClassName", "253"},
	{"spec.pod.priorityClassName", "pattern", "High", "spec.pod.priorityClassName", "[a-z0-9]"},

	{"spec.pod.imagePullSecrets", "maxItems", []any{secret("a"), secret("b"), secret("c"), secret("d"), secret("e")}, "spec.pod.imagePullSecrets", "4"},
	{"spec.pod.imagePullSecrets", CEL, []any{map[string]any{}}, "imagePullSecrets must have names of Secrets", "spec.pod.imagePullSecrets"},
	{"spec.pod.imagePullSecrets", CEL, []any{secret("a/b")}, "imagePullSecrets must have names of Secrets", "lower-case"},
	{"spec.pod.imagePullSecrets", CEL, []any{secret(strings.Repeat("s", 254))}, "imagePullSecrets must have names of Secrets", "253"},

	{"spec.pod.labels", "maxProperties", entries(17, "v"), "spec.pod.labels", "16"},
	{"spec.pod.labels", "maxLength", entries(1, strings.Repeat("v", 64)), "spec.pod.labels.k0", "63"},
	{"spec.pod.labels", "pattern", entries(1, "a b"), "spec.pod.labels.k0", "[A-Za-z0-9]"},
	{"spec.pod.labels", CEL, map[string]any{"a/b/c": "v"}, "labels has an invalid key", "spec.pod.labels"},
	{"spec.pod.labels", CEL, map[string]any{"kkloud.io/echo": "v"}, reservedLabel, "kkloud.io/echo"},
	{"spec.pod.labels", CEL, map[string]any{"app.kubernetes.io/name": "v"}, reservedLabel, "app.kubernetes.io/name"},
	{"spec.pod.labels", CEL, map[string]any{"pod-template-hash": "v"}, reservedLabel, "pod-template-hash"},

	{"spec.pod.annotations", "maxProperties", entries(17, "v"), "spec.pod.annotations", "16"},
	{"spec.pod.annotations", "maxLength", entries(1, strings.Repeat("é", 4097)), "spec.pod.annotations.k0", "4096"},
	{"spec.pod.annotations", CEL, map[string]any{strings.Repeat("p", 254) + "/k": "v"}, "annotations has an invalid key", "spec.pod.annotations"},
	{"spec.pod.annotations", CEL, map[string]any{"k8s.io/k": "v"}, reservedAnnotation, "k8s.io/k"},
	{"spec.pod.annotations", CEL, map[string]any{"a.b.kkloud.io/k": "v"}, reservedAnnotation, "a.b.kkloud.io/k"},
	{"spec.pod.annotations", CEL, entries(2, strings.Repeat("v", 2049)), "annotations must have values of at most 4,096 characters in total", "spec.pod.annotations"},
}

// longestPodSettings returns settings with the longest values that are valid.
func longestPodSettings() map[string]any {
	name := strings.Repeat("s", 253)
	labels, tolerations := map[string]any{}, []any{}
	for i := range 16 {
		key := fmt.Sprintf("%s/%02d%s", name, i, strings.Repeat("k", 61))
		labels[key] = strings.Repeat("v", 63)
		tolerations = append(tolerations, map[string]any{
			"key": key, "operator": "Equal", "value": strings.Repeat("v", 63), "effect": "NoExecute", "tolerationSeconds": int64(3600),
		})
	}
	annotations := map[string]any{}
	for key := range labels {
		annotations[key] = strings.Repeat("😀", 256)
	}
	return map[string]any{
		"nodeSelector": labels, "tolerations": tolerations, "priorityClassName": name, "labels": labels, "annotations": annotations,
		"imagePullSecrets": []any{secret(name), secret("a"), secret("0"), secret("a.b-c")},
	}
}

// entries returns a map with so many keys that have the value.
func entries(count int, value string) map[string]any {
	found := map[string]any{}
	for i := range count {
		found[fmt.Sprint("k", i)] = value
	}
	return found
}

func repeated(count int, item map[string]any) []any {
	var items []any
	for range count {
		items = append(items, item)
	}
	return items
}

// toleration returns a list with one toleration that has the fields, as names and values.
func toleration(fields ...any) []any {
	item := map[string]any{}
	for i := 0; i < len(fields); i += 2 {
		item[fields[i].(string)] = fields[i+1]
	}
	return []any{item}
}

func secret(name string) map[string]any { return map[string]any{"name": name} }
