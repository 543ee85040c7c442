package children

import (
	"encoding/json"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
)

// InheritedAnnotation contains, on an object, which of its labels and annotations the operator set for
// spec.inheritedMetadata, as JSON. It is removed with them.
const InheritedAnnotation = "kkloud.io/inherited-metadata"

// setInherited sets the metadata on an object, and removes what an earlier call set.
func setInherited(object metav1.Object, metadata *echov1.InheritedMetadata) {
	recorded, declared := recordedEntries(object, InheritedAnnotation), ptr.Deref(metadata, echov1.InheritedMetadata{})
	labels, annotations := object.GetLabels(), object.GetAnnotations()
	set := entries{
		Labels:      setEntries(&labels, recorded.Labels, declared.Labels),
		Annotations: setEntries(&annotations, recorded.Annotations, declared.Annotations),
	}
	object.SetLabels(labels)
	object.SetAnnotations(annotations)
	recordEntries(object, InheritedAnnotation, set)
}

// settingsOf returns spec.pod with the metadata that pods inherit. Verifiers have no labels and annotations of spec.pod:
// a Service of the user may select the server's pods by them.
func settingsOf(echo *echov1.Echo, component string) echov1.PodSettings {
	settings, inherited := ptr.Deref(echo.Spec.Pod, echov1.PodSettings{}), ptr.Deref(echo.Spec.InheritedMetadata, echov1.InheritedMetadata{})
	if component == verifierComponent {
		settings.Labels, settings.Annotations = nil, nil
	}
	settings.Labels = merged(inherited.Labels, settings.Labels)
	settings.Annotations = merged(inherited.Annotations, settings.Annotations)
	return settings
}

// merged returns the entries of both maps. The second one decides.
func merged[M ~map[string]V, V any](a, b M) M {
	all := M{}
	maps.Copy(all, a)
	maps.Copy(all, b)
	return all
}

// PodSettingsAnnotation contains, on an object with a pod template, which entries of the template the
// operator set for spec.pod, as JSON. So the operator removes an entry that spec.pod no longer has,
// and keeps the entries of external writers. Without entries, there is no annotation. The annotation
// is not on the template, where it would restart the pods.
const PodSettingsAnnotation = "kkloud.io/pod-settings"

// entries are those that the operator set on an object or its pod template: the keys of maps, and the items of lists.
type entries struct {
	NodeSelector      []string                      `json:"nodeSelector,omitempty"`
	Tolerations       []corev1.Toleration           `json:"tolerations,omitempty"`
	PriorityClassName bool                          `json:"priorityClassName,omitempty"`
	ImagePullSecrets  []corev1.LocalObjectReference `json:"imagePullSecrets,omitempty"`
	Labels            []string                      `json:"labels,omitempty"`
	Annotations       []string                      `json:"annotations,omitempty"`
}

// mutatePodSettings sets the settings on the pod template of an object, and removes the entries that
// an earlier call set. What the operator sets itself, for example labels, has to be set afterwards.
func mutatePodSettings(object metav1.Object, template *corev1.PodTemplateSpec, declared echov1.PodSettings) {
	recorded := recordedEntries(object, PodSettingsAnnotation)
	var secrets []corev1.LocalObjectReference
	for _, secret := range declared.ImagePullSecrets {
		secrets = append(secrets, corev1.LocalObjectReference{Name: secret.Name})
	}
	pod := &template.Spec
	setItems(&pod.Tolerations, recorded.Tolerations, declared.Tolerations, tolerationKey)
	setItems(&pod.ImagePullSecrets, recorded.ImagePullSecrets, secrets, secretKey)
	if recorded.PriorityClassName || declared.PriorityClassName != "" {
		pod.PriorityClassName = declared.PriorityClassName
	}
	recordEntries(object, PodSettingsAnnotation, entries{
		NodeSelector:      setEntries(&pod.NodeSelector, recorded.NodeSelector, declared.NodeSelector),
		Tolerations:       declared.Tolerations,
		PriorityClassName: declared.PriorityClassName != "",
		ImagePullSecrets:  secrets,
		Labels:            setEntries(&template.Labels, recorded.Labels, declared.Labels),
		Annotations:       setEntries(&template.Annotations, recorded.Annotations, declared.Annotations),
	})
}

// recordedEntries returns the entries that the annotation contains: none if it is missing or not valid.
func recordedEntries(object metav1.Object, annotation string) (recorded entries) {
	text, found := object.GetAnnotations()[annotation]
	if !found || json.Unmarshal([]byte(text), &recorded) != nil {
		return entries{}
	}
	return recorded
}

func recordEntries(object metav1.Object, annotation string, set entries) {
	annotations := object.GetAnnotations()
	if equality.Semantic.DeepEqual(set, entries{}) {
		delete(annotations, annotation)
		return
	}
	text, _ := json.Marshal(set) // The type can be encoded.
	object.SetAnnotations(labels.Merge(annotations, labels.Set{annotation: string(text)}))
}

// setEntries sets the declared entries of a map, and removes the recorded entries that are not
// declared. It returns the keys that are declared, sorted.
func setEntries[V ~string](entries *map[string]string, recorded []string, declared map[string]V) []string {
	for _, key := range recorded {
		if _, found := declared[key]; !found {
			delete(*entries, key)
		}
	}
	if *entries == nil && len(declared) > 0 {
		*entries = map[string]string{}
	}
	for key, value := range declared {
		(*entries)[key] = string(value)
	}
	return slices.Sorted(maps.Keys(declared))
}

// setItems makes the declared items those of the list whose keys are declared or recorded. Other
// items keep their order.
func setItems[T any, K comparable](items *[]T, recorded, declared []T, key func(T) K) {
	if len(recorded)+len(declared) == 0 {
		return
	}
	owned := slices.Concat(recorded, declared)
	isOwned := func(item T) bool { return slices.ContainsFunc(owned, func(o T) bool { return key(o) == key(item) }) }
	isOther := func(item T) bool { return !isOwned(item) }
	if equality.Semantic.DeepEqual(slices.DeleteFunc(slices.Clone(*items), isOther), declared) {
		return
	}
	at, others := slices.IndexFunc(*items, isOwned), slices.DeleteFunc(*items, isOwned)
	if at < 0 {
		others = withoutCopies(others, key)
		at = len(others)
	}
	*items = slices.Insert(others, at, declared...)
}

// tolerationKey identifies the taints that a toleration is for. How long it tolerates them is its
// value: of several tolerations for a taint, the shortest time counts.
func tolerationKey(t corev1.Toleration) corev1.Toleration {
	t.TolerationSeconds = nil
	return t
}

func secretKey(secret corev1.LocalObjectReference) string { return secret.Name }
