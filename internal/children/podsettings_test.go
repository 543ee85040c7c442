package children

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/testing/values"
)

var (
	dedicated = corev1.Toleration{Key: "dedicated", Operator: corev1.TolerationOpEqual, Value: "canary", Effect: corev1.TaintEffectNoSchedule}
	notReady  = corev1.Toleration{Key: "node.kubernetes.io/not-ready", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: new(int64(30))}
)

func withPod(settings echov1.PodSettings) func(*echov1.Echo) {
	return func(echo *echov1.Echo) { echo.Spec.Pod = &settings }
}

func everyPodSetting() echov1.PodSettings {
	return echov1.PodSettings{
		NodeSelector:      map[string]echov1.LabelValue{"example.com/pool": "canary"},
		Tolerations:       []corev1.Toleration{dedicated, notReady},
		PriorityClassName: "low",
		ImagePullSecrets:  []echov1.SecretReference{{Name: "mirror"}},
		Labels:            map[string]echov1.LabelValue{"team": "blue"},
		Annotations:       map[string]echov1.AnnotationValue{"example.com/contact": "blue@example.com"},
		RunAsUser:         65532,
	}
}

// otherEntries adds entries of an external writer to a pod template.
func otherEntries(template *corev1.PodTemplateSpec) {
	template.Labels["mesh"] = "on"
	template.Annotations = map[string]string{"kubectl.kubernetes.io/restartedAt": "now"}
	template.Spec.NodeSelector["topology.kubernetes.io/zone"] = "a"
	template.Spec.Tolerations = append(template.Spec.Tolerations, corev1.Toleration{Key: "spot", Operator: corev1.TolerationOpExists})
	template.Spec.ImagePullSecrets = append(template.Spec.ImagePullSecrets, corev1.LocalObjectReference{Name: "cluster-wide"})
}

func TestPodSettingsAreRemovedAndEntriesOfExternalWritersAreKept(t *testing.T) {
	without, with := newEcho(), newEcho(withPod(everyPodSetting()))
	live := desiredState(without)
	otherEntries(&live.deployment().Spec.Template)
	before := live.deepCopy()

	live.mutate(with)
	template := live.deployment().Spec.Template
	equal(t, template.Spec.NodeSelector, map[string]string{"kubernetes.io/os": "linux", "topology.kubernetes.io/zone": "a", "example.com/pool": "canary"})
	equal(t, template.Spec.Tolerations, []corev1.Toleration{{Key: "spot", Operator: corev1.TolerationOpExists}, dedicated, notReady})
	equal(t, template.Spec.ImagePullSecrets, []corev1.LocalObjectReference{{Name: "cluster-wide"}, {Name: "mirror"}})
	equal(t, template.Spec.PriorityClassName, "low")
	equal(t, template.Labels["team"]+template.Labels["mesh"]+template.Labels[EchoLabel], "blue"+"on"+with.Name)
	equal(t, template.Annotations, map[string]string{"kubectl.kubernetes.io/restartedAt": "now", "example.com/contact": "blue@example.com"})
	equal(t, live.deployment().Annotations, map[string]string{PodSettingsAnnotation: `{"nodeSelector":["example.com/pool"],` +
		`"tolerations":[{"key":"dedicated","operator":"Equal","value":"canary","effect":"NoSchedule"},` +
		`{"key":"node.kubernetes.io/not-ready","operator":"Exists","effect":"NoExecute","tolerationSeconds":30}],` +
		`"priorityClassName":true,"imagePullSecrets":[{"name":"mirror"}],"labels":["team"],"annotations":["example.com/contact"]}`})

	live.mutate(newEcho(withPod(echov1.PodSettings{})))
	equal(t, live, before)
	live.mutate(with)
	live.mutate(without)
	equal(t, live, before)
}

func TestPodSettingsOverwriteTheValuesOfExternalWriters(t *testing.T) {
	echo := newEcho(withPod(everyPodSetting()))
	want := desiredState(echo)
	live := want.deepCopy()
	template := &live.deployment().Spec.Template
	template.Labels["team"], template.Annotations["example.com/contact"], template.Spec.NodeSelector["example.com/pool"] = "red", "", "spot"
	template.Spec.PriorityClassName = "high"
	template.Spec.ImagePullSecrets = nil
	longer, shorter := notReady, notReady
	longer.TolerationSeconds, shorter.TolerationSeconds = nil, new(int64(1))
	template.Spec.Tolerations = []corev1.Toleration{dedicated, longer, shorter}
	live.mutate(echo)
	equal(t, live, want)
}

// Admission may add a label to the selector, too, which is immutable. The API server rejects a template
// that the selector does not match.
func TestLabelOfTheSelectorRemainsAfterItsRemovalFromThePodSettings(t *testing.T) {
	live := desiredState(newEcho())
	live.deployment().Spec.Selector.MatchLabels["team"] = "blue"
	live.deployment().Spec.Template.Labels["team"] = "blue"
	want := live.deepCopy()
	live.mutate(newEcho(withPod(everyPodSetting())))
	live.mutate(newEcho())
	equal(t, live, want)
}

// External writers can change the record. Without it, entries remain that the operator would have
// removed; with a forged one, entries of external writers are removed. The operator's own stay.
func TestChangedRecordOfPodSettingsIsReplaced(t *testing.T) {
	own := newEcho(withPod(everyPodSetting()))
	forged := `{"labels":["mesh","` + EchoLabel + `","app.kubernetes.io/name"],"nodeSelector":["kubernetes.io/os"],"priorityClassName":true}`
	for name, c := range map[string]struct {
		record  string
		removed string
	}{
		"deleted": {"", ""}, "no JSON": {"{", ""}, "another type": {`["mesh"]`, ""}, "another field type": {`{"nodeSelector":["topology.kubernetes.io/zone"],"labels":"mesh"}`, ""},
		"null": {"null", ""}, "unknown field": {`{"labels":[],"later":1}`, ""}, "forged": {forged, "mesh"},
	} {
		for _, echo := range []*echov1.Echo{own, newEcho()} {
			t.Run(fmt.Sprintf("%s, with settings %t", name, echo == own), func(t *testing.T) {
				want := desiredState(echo)
				otherEntries(&want.deployment().Spec.Template)
				want.mutate(echo) // otherEntries replaces the annotations.
				live := want.deepCopy()
				live.deployment().Annotations = map[string]string{PodSettingsAnnotation: c.record}
				if c.record == "" {
					live.deployment().Annotations = nil
				}
				delete(want.deployment().Spec.Template.Labels, c.removed)
				live.mutate(echo)
				equal(t, live, want)
			})
		}
	}
}

// Each edit of an Echo writes the Deployment again. The list must not become longer each time, which
// would also restart the pods.
func TestItemsThatAdmissionChangesDoNotMultiply(t *testing.T) {
	echo := newEcho(withPod(everyPodSetting()))
	live := desiredState(echo)
	var written []*appsv1.Deployment
	for range 4 {
		pod := live.pod()
		expressions := pod.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0].MatchExpressions
		for i := range expressions {
			expressions[i].Values = []string{"amd64"}
		}
		for i := range pod.Tolerations {
			pod.Tolerations[i].Key = "renamed-" + string(pod.Tolerations[i].Effect)
		}
		for i := range pod.ImagePullSecrets {
			pod.ImagePullSecrets[i].Name = "renamed"
		}
		written = append(written, live.deployment().DeepCopy())
		live.mutate(echo)
	}
	if got := len(written[3].Spec.Template.Spec.Tolerations); got != 4 {
		t.Errorf("tolerations after 4 writes = %d, want 4", got)
	}
	if !equality.Semantic.DeepEqual(written[2].Spec.Template, written[3].Spec.Template) {
		t.Errorf("the pod template changes with each write:\n%v\n%v", written[2].Spec.Template, written[3].Spec.Template)
	}
}

// FuzzPodSettings changes the settings of a pod template that has entries of external writers. The
// result is the same as if the template had never had the earlier settings.
func FuzzPodSettings(f *testing.F) {
	for seed := range uint64(100) {
		f.Add(binary.BigEndian.AppendUint64(nil, seed), binary.BigEndian.AppendUint64(nil, ^seed), []byte{byte(seed)})
	}
	f.Fuzz(func(t *testing.T, data, earlier, filling []byte) {
		settings := ptr.Deref(values.Random(data).Spec.Pod, echov1.PodSettings{})
		before := ptr.Deref(values.Random(earlier).Spec.Pod, echov1.PodSettings{})
		live := corev1.PodTemplateSpec{}
		filler(filling).Fill(&live)
		want := *live.DeepCopy()
		removeSettings(&want, before)
		mutatePodSettings(&metav1.ObjectMeta{}, &want, settings)

		object := &metav1.ObjectMeta{}
		mutatePodSettings(object, &live, before)
		mutatePodSettings(object, &live, settings)
		expectSameEntries(t, live, want)
		entries := settings
		entries.RunAsUser = 0 // The operator owns the user in every pod, so it needs no record.
		if isSet := !equality.Semantic.DeepEqual(entries, echov1.PodSettings{}); (len(object.Annotations) == 1) != isSet {
			t.Errorf("annotations = %v, want a record: %t", object.Annotations, isSet)
		}
	})
}

// removeSettings removes the entries that have the keys of the settings.
func removeSettings(template *corev1.PodTemplateSpec, settings echov1.PodSettings) {
	pod := &template.Spec
	maps.DeleteFunc(pod.NodeSelector, func(key, _ string) bool { _, found := settings.NodeSelector[key]; return found })
	maps.DeleteFunc(template.Labels, func(key, _ string) bool { _, found := settings.Labels[key]; return found })
	maps.DeleteFunc(template.Annotations, func(key, _ string) bool { _, found := settings.Annotations[key]; return found })
	pod.Tolerations = slices.DeleteFunc(pod.Tolerations, func(t corev1.Toleration) bool {
		return slices.ContainsFunc(settings.Tolerations, func(s corev1.Toleration) bool { return s.MatchToleration(&t) })
	})
	pod.ImagePullSecrets = slices.DeleteFunc(pod.ImagePullSecrets, func(s corev1.LocalObjectReference) bool {
		return slices.Contains(settings.ImagePullSecrets, echov1.SecretReference{Name: s.Name})
	})
	if settings.PriorityClassName != "" {
		pod.PriorityClassName = ""
	}
}

// expectSameEntries compares two pod templates, except for the order and the copies of list items.
func expectSameEntries(t *testing.T, got, want corev1.PodTemplateSpec) {
	t.Helper()
	for _, template := range []*corev1.PodTemplateSpec{&got, &want} {
		sortItems(&template.Spec.Tolerations)
		sortItems(&template.Spec.ImagePullSecrets)
	}
	equal(t, got, want)
}

func sortItems[T any](items *[]T) {
	compare := func(a, b T) int {
		x, _ := json.Marshal(a)
		y, _ := json.Marshal(b)
		return bytes.Compare(x, y)
	}
	slices.SortFunc(*items, compare)
	*items = slices.CompactFunc(*items, func(a, b T) bool { return compare(a, b) == 0 })
}
