package scenarios

import (
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/testing/values"
)

// change sets fields of the spec, by their path. Nil unsets a field.
type change struct {
	set map[string]any
	// rejection is part of the API server's message if it rejects the change of the Echo.
	rejection string
	// childRejection is part of its message if it accepts the Echo but rejects the Deployment.
	childRejection string
}

// fieldSequences returns, by the path of each field of the spec, a sequence that steps through its values: unset,
// minimum, maximum, each invalid value, another, minimum, and unset.
func fieldSequences() map[string][]change {
	sequences := map[string][]change{}
	for _, f := range values.Current.Fields()[1:] { // The first is the spec itself.
		valid := func(value any) change { return replaceSpec(values.Current.With(f.Path, value)) }
		changes := []change{valid(f.Minimum), valid(f.Maximum)}
		keywords := map[string]bool{} // One violation of each suffices: the integration tests cover all.
		for _, invalid := range f.Invalid {
			if invalid.Value != nil && !keywords[invalid.Keyword] {
				changes = append(changes, change{set: map[string]any{f.Path: invalid.Value}, rejection: invalid.Texts[0]})
			}
			keywords[invalid.Keyword] = true
		}
		changes = append(changes, valid(f.Another), valid(f.Minimum))
		if f.Required {
			changes = append(changes, change{set: map[string]any{f.Path: nil}, rejection: "spec." + f.Path + ": Required value"})
		} else {
			changes = append(changes, valid(nil))
		}
		sequences[f.Path] = changes
	}
	return sequences
}

// replaceSpec sets the fields of the spec, and unsets all others.
func replaceSpec(spec map[string]any) change {
	c := change{set: map[string]any{}}
	for _, f := range values.Current.Fields()[1:] {
		if !strings.Contains(f.Path, ".") {
			c.set[f.Path] = nil
		}
	}
	maps.Copy(c.set, spec)
	return c
}

// longestMessage is the maximum length of a message.
const longestMessage = 16384

// fieldPairs returns sequences of changes of fields that depend on each other.
func fieldPairs() map[string][]change {
	set := func(pathsAndValues ...any) change {
		c := change{set: map[string]any{}}
		for i := 0; i < len(pathsAndValues); i += 2 {
			c.set[pathsAndValues[i].(string)] = pathsAndValues[i+1] //nolint:gosec // The number of arguments is even.
		}
		return c
	}
	rejected := func(c change, message string) change { c.rejection = message; return c }
	childRejected := func(c change, message string) change { c.childRejection = message; return c }
	const ownCode = "statusCode must be unset with image"
	const needsLocation = "statusCode 301, 302, 303, 307 or 308 requires the header Location"
	const ownHeaders = "headers must be empty or unset with image"
	header := func(name, value string) []any { return []any{map[string]any{"name": name, "value": value}} }
	const ownPage = "page must be unset with image"
	const pathNeedsImage = "readinessPath is for your own image: set image, too"
	const needsImage = "command and args are for your own image: set image, too"
	const needsMessage = "message is required without image"
	cpu := func(quantity string) map[string]any { return map[string]any{"cpu": quantity} }
	pairs := map[string][]change{
		"replicas and the PodDisruptionBudget": {set("replicas", 2), set("replicas", 1), set("replicas", 5), set("replicas", nil), set("replicas", 2)},
		"page and image": {
			set("page.title", "<t>"), rejected(set("image", customImage), ownPage), set("image", customImage, "page", nil), set("page.language", "vi", "image", nil), set("page", nil)},
		"message and image": {
			rejected(set("message", nil), needsMessage), set("image", customImage, "message", nil), rejected(set("image", nil), needsMessage), set("message", "m"), set("image", nil)},
		"image and command": {
			rejected(set("command", []any{"serve"}), needsImage), set("image", customImage, "command", []any{"serve"}, "args", []any{"-v"}),
			rejected(set("image", nil), needsImage), set("command", nil), rejected(set("image", nil), needsImage), set("args", nil), set("image", nil)},
		"targetPort and port": {set("targetPort", 80), set("port", 5678), set("targetPort", 5678), set("port", 80, "targetPort", 80), set("port", nil, "targetPort", nil)},
		"privileged targetPort": {
			set("targetPort", 1023), set("targetPort", 1024), set("targetPort", 1023, "image", customImage, "args", []any{"$(ECHO_PORT)"}), set("targetPort", nil), set("image", nil, "args", nil)},
		"requests and limits": {
			set("resources.limits", cpu("1")), childRejected(set("resources.requests", cpu("2")), "must be less than or equal to cpu limit"),
			set("resources.limits", cpu("2")), childRejected(set("resources.requests", cpu("-1")), "must be greater than or equal to 0"),
			set("resources.requests", nil), set("resources", nil)},
		"page and the longest message": {
			set("page.title", strings.Repeat("\"", 253), "message", strings.Repeat("&", longestMessage)), set("message", strings.Repeat("🦜", longestMessage)),
			set("page", nil), set("message", strings.Repeat("$", longestMessage)), set("image", customImage, "args", []any{"$(ECHO_TEXT)"}), set("image", nil, "args", nil, "message", "m")},
		"statusCode and image": {
			set("statusCode", 503), rejected(set("image", customImage), ownCode), set("image", customImage, "statusCode", nil),
			rejected(set("statusCode", 200), ownCode), set("image", nil, "statusCode", 404), set("statusCode", nil)},
		"statusCode and headers": {
			rejected(set("statusCode", 308), needsLocation), set("statusCode", 308, "headers", header("location", "/$(HOME)")), rejected(set("headers", nil), needsLocation),
			set("verify.from", "Cluster"), set("headers", header("Location", "/b")), set("statusCode", 204), set("page.title", "t", "statusCode", 503),
			set("headers", header("CONTENT-TYPE", "text/plain")), set("page", nil), set("headers", nil), set("statusCode", nil, "verify", nil)},
		"headers and image": {
			set("headers", header("A", "b")), rejected(set("image", customImage), ownHeaders), set("headers", []any{}, "image", customImage),
			rejected(set("headers", header("A", "b")), ownHeaders), set("headers", nil), set("image", nil), set("headers", header("A", "c")), set("headers", nil)},
		"verify.timeoutSeconds and verify.periodSeconds": {
			set("verify.periodSeconds", 5, "verify.timeoutSeconds", 5), rejected(set("verify.timeoutSeconds", 6), "timeoutSeconds must be at most periodSeconds"),
			set("verify.periodSeconds", 6), set("verify.timeoutSeconds", 6), set("verify", nil)},
		"verify and the server": {
			set("verify.from", "Cluster"), set("image", customImage, "args", []any{"-v"}), set("port", 8080), set("verify.from", "EveryNode"),
			set("image", nil, "args", nil), set("statusCode", 503), set("verify", nil)},
		"readinessPath and image": {
			rejected(set("readinessPath", "/"), pathNeedsImage), set("image", customImage), set("readinessPath", "/ready"), set("targetPort", 8080), set("port", 443, "targetPort", nil),
			rejected(set("image", nil), pathNeedsImage), set("command", []any{"serve"}), set("readinessPath", nil), set("image", nil, "command", nil, "port", nil)},
	}
	maps.Copy(pairs, podPairs(set))
	return pairs
}

// podSettings returns pod settings that scenarios set: a value of each field.
func podSettings() *echov1.PodSettings {
	return &echov1.PodSettings{
		NodeSelector: map[string]echov1.LabelValue{"example.com/pool": "canary"},
		Tolerations: []corev1.Toleration{
			{Key: "example.com/canary", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule},
			{Key: "example.com/maintenance", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: ptr.To[int64](60)},
		},
		PriorityClassName: "system-node-critical",
		ImagePullSecrets:  []echov1.SecretReference{{Name: "registry"}},
		Labels:            map[string]echov1.LabelValue{"example.com/tier": "canary"},
		Annotations:       map[string]echov1.AnnotationValue{"example.com/contact": "platform@example.com"},
		RunAsUser:         65532,
	}
}

// podPairs returns sequences of changes of spec.pod and of fields that depend on it.
func podPairs(set func(pathsAndValues ...any) change) map[string][]change {
	other := podSettings()
	other.NodeSelector = map[string]echov1.LabelValue{"example.com/pool": "other", "disk": "ssd"}
	other.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	other.ImagePullSecrets = append(other.ImagePullSecrets, echov1.SecretReference{Name: "mirror"})
	return map[string][]change{
		"pod settings": {
			set("pod", podSettings()), set("pod", other), set("pod.nodeSelector", nil, "message", "n"), set("pod.tolerations", nil), set("pod.imagePullSecrets", nil),
			set("pod.labels", nil), set("pod", podSettings()), set("pod.annotations", nil, "pod.priorityClassName", nil), set("pod", nil)},
		"pod settings and image": {
			set("pod", podSettings(), "image", customImage), set("image", nil), set("pod.nodeSelector", map[string]any{"kubernetes.io/arch": "arm64"}),
			set("image", customImage, "pod.nodeSelector", nil), set("pod", nil), set("image", nil)},
	}
}
