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

func TestShareMetaSharesTextsOfSeveralObjects(t *testing.T) {
	labels := map[string]string{ManagedByLabel: ManagedBy, EchoLabel: "hello", "app.kubernetes.io/name": ""}
	annotations := map[string]string{generationAnnotation: "3"}
	memory := map[*byte]bool{}
	for range 2 {
		object := &corev1.Service{ObjectMeta: metav1.ObjectMeta{
			Labels: copied(labels), Annotations: copied(annotations),
			OwnerReferences: []metav1.OwnerReference{{APIVersion: strings.Clone("kkloud.io/v1"), Kind: strings.Clone("Echo"), Name: "hello"}},
		}}
		ShareMeta(object)
		if !maps.Equal(object.Labels, labels) || !maps.Equal(object.Annotations, annotations) {
			t.Errorf("labels and annotations = %v and %v, want %v and %v", object.Labels, object.Annotations, labels, annotations)
		}
		for _, texts := range []map[string]string{object.Labels, object.Annotations} {
			for key, value := range texts {
				memory[unsafe.StringData(key)] = true
				memory[unsafe.StringData(value)] = true
			}
		}
		memory[unsafe.StringData(object.OwnerReferences[0].APIVersion)] = true
		memory[unsafe.StringData(object.OwnerReferences[0].Kind)] = true
	}
	if want := 2*(len(labels)+len(annotations)) + 2; len(memory) > want {
		t.Errorf("the texts of two objects have %d places in memory, want at most %d", len(memory), want)
	}
}
