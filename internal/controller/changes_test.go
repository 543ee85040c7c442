package controller

import (
	"encoding/json"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/children"
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
func kindOf(name string) children.Kind {
	return children.Kinds[slices.IndexFunc(children.Kinds, func(k children.Kind) bool { return k.Name == name })]
}

func TestCompareNamesFieldsAndHashesLiveAndDesiredValues(t *testing.T) {
	deployment := func(image, arg string) *appsv1.Deployment {
		d := &appsv1.Deployment{}
		d.Spec.Template.Spec.Containers = []corev1.Container{{Name: "sidecar"}, {Name: "echo", Image: image, Args: []string{arg}}}
		return d
	}
	check := func(live, desired *appsv1.Deployment) changes {
		t.Helper()
		difference, err := compare(kindOf("Deployment"), live, desired)
		if err != nil {
			t.Fatal(err)
		}
		return difference
	}
	image := check(deployment("mirror", "x"), deployment("own", "x"))
	if want := []string{"spec.template.spec.containers[echo].image"}; !slices.Equal(image.fields, want) || len(image.answer) > 0 {
		t.Errorf("another image: fields %v, that determine the answer %v, want %v and none", image.fields, image.answer, want)
	}
	if same := check(deployment("mirror", "x"), deployment("own", "x")); same.hash != image.hash {
		t.Errorf("hash of the same difference = %s, want %s", same.hash, image.hash)
	}
	for name, other := range map[string]changes{
		"another live value":    check(deployment("mirror2", "x"), deployment("own", "x")),
		"another desired value": check(deployment("mirror", "x"), deployment("own2", "x")),
		"another field":         check(deployment("mirror", "y"), deployment("own", "x")),
	} {
		if other.hash == image.hash {
			t.Errorf("%s: the hash %s is the same", name, other.hash)
		}
	}
	if args := check(deployment("own", "y"), deployment("own", "x")); len(args.answer) != 1 {
		t.Errorf("another argument: fields that determine the answer %v, want one", args.answer)
	}
	renamed, both := deployment("own", "x"), deployment("own", "x")
	renamed.Spec.Template.Spec.Containers = []corev1.Container{{Name: "renamed", Image: "own", Args: []string{"x"}}}
	both.Spec.Template.Spec.Containers = []corev1.Container{{Name: "echo", Image: "own", Args: []string{"x"}}, renamed.Spec.Template.Spec.Containers[0]}
	if renaming := check(renamed, both); !slices.Contains(renaming.answer, "spec.template.spec.containers[echo].name") {
		t.Errorf("a renamed container: fields %v, that determine the answer %v, want its name", renaming.fields, renaming.answer)
	}
}

// A policy may remove all annotations at each write, and the Deployment controller adds its revision
// again without that policy. An accepted override has to stay the same.
func TestHashDoesNotDependOnAnnotationsOfOthers(t *testing.T) {
	desired := func(live *appsv1.Deployment) *appsv1.Deployment {
		d := live.DeepCopy()
		metav1.SetMetaDataAnnotation(&d.ObjectMeta, children.PodSettingsAnnotation, "{}")
		metav1.SetMetaDataLabel(&d.ObjectMeta, "a", "b")
		return d
	}
	bare, revised := &appsv1.Deployment{}, &appsv1.Deployment{}
	revised.Labels, revised.Annotations = map[string]string{"other": "x"}, map[string]string{revisionAnnotation: "1"}
	first, err := compare(kindOf("Deployment"), bare, desired(bare))
	if err != nil {
		t.Fatal(err)
	}
	second, err := compare(kindOf("Deployment"), revised, desired(revised))
	if err != nil {
		t.Fatal(err)
	}
	if first.hash != second.hash || !slices.Equal(first.fields, second.fields) {
		t.Errorf("difference without other annotations and labels: %v, %s; with them: %v, %s; want the same", first.fields, first.hash, second.fields, second.hash)
	}
}

func TestOverriddenRecordFitsTheSchema(t *testing.T) {
	var difference changes
	for range maxFields + 1 {
		difference.fields = append(difference.fields, string(make([]byte, 300)))
	}
	record := difference.overridden("Deployment")
	if len(record.Fields) != maxFields || len(record.Fields[0]) != maxFieldLength {
		t.Errorf("record has %d fields of %d bytes, want %d of %d", len(record.Fields), len(record.Fields[0]), maxFields, maxFieldLength)
	}
	echo := &echov1.Echo{Status: echov1.EchoStatus{Overridden: []echov1.OverriddenChild{*record}}}
	if accepted(echo, "Deployment") == nil || accepted(echo, "Service") != nil {
		t.Error("accepted finds no record of the Deployment, or one of the Service")
	}
}
