package scenarios

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
)

// podSettings returns pod settings that scenarios set: a value of each field.
func podSettings() *echov1.PodSettings {
	return &echov1.PodSettings{
		NodeSelector: map[string]echov1.LabelValue{"example.com/pool": "canary"},
		Tolerations: []corev1.Toleration{
			{Key: "example.com/canary", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule},
			{Key: "example.com/maintenance", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: ptr.To[int64](60)},
		},
		PriorityClassName: "system-node-critical",
		ImagePullSecrets:  []corev1.LocalObjectReference{{Name: "registry"}},
		Labels:            map[string]echov1.LabelValue{"example.com/tier": "canary"},
		Annotations:       map[string]echov1.AnnotationValue{"example.com/contact": "platform@example.com"},
	}
}

// podFields returns the fields of spec.pod.
func podFields() []field {
	pod := map[string]any{"pod": map[string]any{}}
	longestKey := strings.Repeat("a", 250) + ".io/" + strings.Repeat("n", 58) // The prefix has a limit of 253 characters, the name of 63.
	entries := func(count int, value string) map[string]any {
		all := map[string]any{}
		for i := range count {
			all[fmt.Sprintf("%s%05d", longestKey, i)] = value
		}
		return all
	}
	reserved := []any{
		map[string]any{"kkloud.io/echo": "other"}, map[string]any{"app.kubernetes.io/name": "other"}, map[string]any{"kubernetes.io/os": "x"},
		map[string]any{"node.k8s.io/x": "x"}, map[string]any{"-": "x"}, map[string]any{"a/b/c": "x"},
	}
	invalidLabels := append([]any{entries(17, "v"), map[string]any{"a": "b c"}, map[string]any{"a": strings.Repeat("v", 64)}, map[string]any{"a": 1}, "a=b"}, reserved...)
	toleration := map[string]any{"key": longestKey + "00000", "operator": "Equal", "value": strings.Repeat("v", 63), "effect": "NoExecute", "tolerationSeconds": 300}
	secrets := func(count int) (all []any) {
		for i := range count {
			all = append(all, map[string]any{"name": fmt.Sprintf("%s%03d", strings.Repeat("s", 250), i)})
		}
		return all
	}
	return []field{
		{path: "pod", minimum: map[string]any{}, maximum: podSettings(), another: map[string]any{"labels": map[string]any{"a": "b"}}, invalid: []any{"yes", []any{}}},
		{path: "pod.nodeSelector", with: pod, minimum: map[string]any{}, maximum: entries(16, strings.Repeat("v", 63)), another: map[string]any{"kubernetes.io/os": "linux", "pool": ""},
			invalid: []any{entries(17, "v"), map[string]any{"kubernetes.io/os": "windows"}, map[string]any{"a": "b c"}, map[string]any{"-": "x"}, "pool"}},
		{path: "pod.tolerations", with: pod, minimum: []any{}, maximum: slices.Repeat([]any{toleration}, 16), another: []any{map[string]any{"operator": "Exists"}},
			invalid: []any{
				slices.Repeat([]any{toleration}, 17), []any{map[string]any{}}, []any{map[string]any{"key": "a", "operator": "In"}}, []any{map[string]any{"key": "a", "effect": "Never"}},
				[]any{map[string]any{"key": "a", "operator": "Exists", "value": "b"}}, []any{map[string]any{"key": "a", "tolerationSeconds": 1}}, "a",
			}},
		{path: "pod.priorityClassName", with: pod, minimum: "system-node-critical", maximum: "system-cluster-critical", another: "system-node-critical",
			invalid: []any{"", "High", strings.Repeat("p", 254), 1}},
		{path: "pod.imagePullSecrets", with: pod, minimum: []any{}, maximum: secrets(4), another: []any{map[string]any{"name": "s"}},
			invalid: []any{secrets(5), append(secrets(1), secrets(1)...), []any{map[string]any{"name": "S"}}, []any{map[string]any{"name": ""}}, "registry"}},
		{path: "pod.labels", with: pod, minimum: map[string]any{}, maximum: entries(16, strings.Repeat("v", 63)), another: map[string]any{"team": "blue", "empty": ""},
			invalid: append([]any{map[string]any{"pod-template-hash": "x"}}, invalidLabels...)},
		{path: "pod.annotations", with: pod, minimum: map[string]any{}, maximum: entries(16, strings.Repeat("é", 256)), another: map[string]any{"a": "two\nlines"},
			invalid: append([]any{entries(17, "v"), entries(2, strings.Repeat("v", 2049)), map[string]any{"a": 1}, "a=b"}, reserved...)},
	}
}

// podPairs returns sequences of changes of spec.pod and of fields that depend on it.
func podPairs(set func(pathsAndValues ...any) change) map[string][]change {
	other := podSettings()
	other.NodeSelector = map[string]echov1.LabelValue{"example.com/pool": "other", "disk": "ssd"}
	other.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	other.ImagePullSecrets = append(other.ImagePullSecrets, corev1.LocalObjectReference{Name: "mirror"})
	return map[string][]change{
		"pod settings": {
			set("pod", podSettings()), set("pod", other), set("pod.nodeSelector", nil, "message", "n"), set("pod.tolerations", nil), set("pod.imagePullSecrets", nil),
			set("pod.labels", nil), set("pod", podSettings()), set("pod.annotations", nil, "pod.priorityClassName", nil), set("pod", nil)},
		"pod settings and image": {
			set("pod", podSettings(), "image", customImage), set("image", nil), set("pod.nodeSelector", map[string]any{"kubernetes.io/arch": "arm64"}),
			set("image", customImage, "pod.nodeSelector", nil), set("pod", nil), set("image", nil)},
	}
}
