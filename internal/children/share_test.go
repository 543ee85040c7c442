package children

import (
	"maps"
	"strings"
	"testing"
	"unsafe"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// copied returns a map whose texts have memory of their own, as after decoding.
func copied(texts map[string]string) map[string]string {
	result := map[string]string{}
	for key, value := range texts {
		result[strings.Clone(key)] = strings.Clone(value)
	}
	return result
}

func TestShareMetaSharesConstantTextsAndKeepsAllOthers(t *testing.T) {
	labels := map[string]string{ManagedByLabel: ManagedBy, EchoLabel: "hello", "team": ManagedBy, "app.kubernetes.io/name": ""}
	annotations := map[string]string{generationAnnotation: "3", "example.com/note": "x"}
	object := &corev1.Service{ObjectMeta: metav1.ObjectMeta{
		Labels: copied(labels), Annotations: copied(annotations),
		OwnerReferences: []metav1.OwnerReference{{APIVersion: strings.Clone("kkloud.io/v1"), Kind: strings.Clone("Echo"), Name: "hello"}},
	}}
	ShareMeta(object)
	if !maps.Equal(object.Labels, labels) || !maps.Equal(object.Annotations, annotations) {
		t.Errorf("labels and annotations = %v and %v, want %v and %v", object.Labels, object.Annotations, labels, annotations)
	}
	memory := map[*byte]bool{}
	for text := range constants {
		memory[unsafe.StringData(constants[text])] = true
	}
	for _, texts := range []map[string]string{object.Labels, object.Annotations} {
		for key := range texts {
			if _, found := constants[key]; found && !memory[unsafe.StringData(key)] {
				t.Errorf("key %q has memory of its own", key)
			}
		}
	}
	owner := object.OwnerReferences[0]
	for _, text := range []string{object.Labels[ManagedByLabel], owner.APIVersion, owner.Kind} {
		if !memory[unsafe.StringData(text)] {
			t.Errorf("text %q has memory of its own", text)
		}
	}
}
