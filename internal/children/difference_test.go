package children

import (
	"encoding/json"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestFieldNameFormatsAPointerAsKubernetesFormatsAField(t *testing.T) {
	var document any
	if err := json.Unmarshal([]byte(`{"spec":{"containers":[{"name":"sidecar"},{"name":"echo","args":["a"]}],"list":["x"]},"metadata":{"labels":{"kkloud.io/echo":"a"}}}`), &document); err != nil {
		t.Fatal(err)
	}
	for pointer, want := range map[string]string{
		"/spec/containers/1/image":         "spec.containers[echo].image",
		"/spec/containers/1/args/0":        "spec.containers[echo].args[0]",
		"/spec/containers/7":               "spec.containers[7]",
		"/spec/list/0":                     "spec.list[0]",
		"/metadata/labels/kkloud.io~1echo": "metadata.labels[kkloud.io/echo]",
		"/metadata/annotations/a.b":        "metadata.annotations[a.b]",
	} {
		if got := fieldName(document, pointer); got != want {
			t.Errorf("fieldName(%s) = %s, want %s", pointer, got, want)
		}
	}
}

// kindOf returns the kind of child with the name.
func kindOf(name string) Kind {
	return Kinds[slices.IndexFunc(Kinds, func(k Kind) bool { return k.Name == name })]
}

func TestCompareNamesFieldsAndHashesLiveAndDesiredValues(t *testing.T) {
	deployment := func(image, arg string) *appsv1.Deployment {
		d := &appsv1.Deployment{}
		d.Spec.Template.Spec.Containers = []corev1.Container{{Name: "sidecar"}, {Name: "echo", Image: image, Args: []string{arg}}}
		return d
	}
	check := func(live, desired *appsv1.Deployment) Difference {
		t.Helper()
		difference, err := Compare(kindOf("Deployment"), live, desired)
		if err != nil {
			t.Fatal(err)
		}
		return difference
	}
	image := check(deployment("mirror", "x"), deployment("own", "x"))
	if want := []string{"spec.template.spec.containers[echo].image"}; !slices.Equal(image.Fields, want) || len(image.ResponseFields) > 0 {
		t.Errorf("another image: fields %v, that determine the response %v, want %v and none", image.Fields, image.ResponseFields, want)
	}
	if same := check(deployment("mirror", "x"), deployment("own", "x")); same.Hash != image.Hash {
		t.Errorf("hash of the same difference = %s, want %s", same.Hash, image.Hash)
	}
	for name, other := range map[string]Difference{
		"another live value":    check(deployment("mirror2", "x"), deployment("own", "x")),
		"another desired value": check(deployment("mirror", "x"), deployment("own2", "x")),
		"another field":         check(deployment("mirror", "y"), deployment("own", "x")),
	} {
		if other.Hash == image.Hash {
			t.Errorf("%s: the hash %s is the same", name, other.Hash)
		}
	}
	if args := check(deployment("own", "y"), deployment("own", "x")); len(args.ResponseFields) != 1 {
		t.Errorf("another argument: fields that determine the response %v, want one", args.ResponseFields)
	}
	renamed, both := deployment("own", "x"), deployment("own", "x")
	renamed.Spec.Template.Spec.Containers = []corev1.Container{{Name: "renamed", Image: "own", Args: []string{"x"}}}
	both.Spec.Template.Spec.Containers = []corev1.Container{{Name: "echo", Image: "own", Args: []string{"x"}}, renamed.Spec.Template.Spec.Containers[0]}
	if renaming := check(renamed, both); !slices.Contains(renaming.ResponseFields, "spec.template.spec.containers[echo].name") {
		t.Errorf("a renamed container: fields %v, that determine the response %v, want its name", renaming.Fields, renaming.ResponseFields)
	}
}

// A policy may remove all annotations at each write, and the Deployment controller adds its revision
// again without that policy. An accepted override has to stay the same.
func TestHashDoesNotDependOnAnnotationsOfOthers(t *testing.T) {
	desired := func(live *appsv1.Deployment) *appsv1.Deployment {
		d := live.DeepCopy()
		metav1.SetMetaDataAnnotation(&d.ObjectMeta, PodSettingsAnnotation, "{}")
		metav1.SetMetaDataLabel(&d.ObjectMeta, "a", "b")
		return d
	}
	bare, revised := &appsv1.Deployment{}, &appsv1.Deployment{}
	revised.Labels, revised.Annotations = map[string]string{"other": "x"}, map[string]string{"deployment.kubernetes.io/revision": "1"}
	first, err := Compare(kindOf("Deployment"), bare, desired(bare))
	if err != nil {
		t.Fatal(err)
	}
	second, err := Compare(kindOf("Deployment"), revised, desired(revised))
	if err != nil {
		t.Fatal(err)
	}
	if first.Hash != second.Hash || !slices.Equal(first.Fields, second.Fields) {
		t.Errorf("difference without other annotations and labels: %v, %s; with them: %v, %s; want the same", first.Fields, first.Hash, second.Fields, second.Hash)
	}
}

func TestOverriddenRecordFitsTheSchema(t *testing.T) {
	var difference Difference
	for range maxFields + 1 {
		difference.Fields = append(difference.Fields, string(make([]byte, 300)))
	}
	record := difference.Overridden("Deployment")
	if len(record.Fields) != maxFields || len(record.Fields[0]) != maxFieldLength {
		t.Errorf("record has %d fields of %d bytes, want %d of %d", len(record.Fields), len(record.Fields[0]), maxFields, maxFieldLength)
	}
}
