package children

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestWalkVisitsTheFieldsThatDiffer(t *testing.T) {
	decode := func(text string) (value any) {
		if err := json.Unmarshal([]byte(text), &value); err != nil {
			t.Fatal(err)
		}
		return value
	}
	for name, test := range map[string]struct {
		live, desired string
		want          []string
	}{
		"nothing":                {`{"a":[{"b":1}]}`, `{"a":[{"b":1}]}`, nil},
		"a field of an item":     {`{"c":[{"name":"x"},{"name":"echo","image":"a"}]}`, `{"c":[{"name":"echo","image":"b"},{"name":"x"}]}`, []string{"c[echo].image"}},
		"an item without name":   {`{"c":[{"args":["a","b"]}]}`, `{"c":[{"args":["a","c"]}]}`, []string{"c[0].args[1]"}},
		"a missing item":         {`{"c":[]}`, `{"c":[{"name":"echo"}]}`, []string{"c[echo]"}},
		"an additional item":     {`{"c":["a","b"]}`, `{"c":["a"]}`, []string{"c[1]"}},
		"a key with a slash":     {`{"metadata":{"labels":{"kkloud.io/echo":"a"}}}`, `{"metadata":{"labels":{"kkloud.io/echo":"b"}}}`, []string{"metadata.labels[kkloud.io/echo]"}},
		"the first annotation":   {`{"metadata":{}}`, `{"metadata":{"annotations":{"a":"b"}}}`, []string{"metadata.annotations.a"}},
		"a missing object":       {`{"spec":{}}`, `{"spec":{"affinity":{"a":{}}}}`, []string{"spec.affinity"}},
		"another type":           {`{"spec":{"port":1}}`, `{"spec":{"port":"http"}}`, []string{"spec.port"}},
		"two fields, in order":   {`{"b":1,"a":1}`, `{"b":2,"a":2}`, []string{"a", "b"}},
		"a list for an object":   {`{"a":{}}`, `{"a":[1]}`, []string{"a[0]"}},
		"null and a missing one": {`{"a":null}`, `{}`, nil},
	} {
		var got []string
		walk("", decode(test.live), decode(test.desired), func(field string, _, _ any) { got = append(got, field) })
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: fields = %v, want %v", name, got, test.want)
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
		return Compare(kindOf("Deployment"), live, desired)
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
	if renaming := check(renamed, both); !slices.Contains(renaming.ResponseFields, "spec.template.spec.containers[echo]") {
		t.Errorf("a renamed container: fields %v, that determine the response %v, want it", renaming.Fields, renaming.ResponseFields)
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
	first := Compare(kindOf("Deployment"), bare, desired(bare))
	second := Compare(kindOf("Deployment"), revised, desired(revised))
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
	if text := difference.Description(); len(text) > maxFields*(maxFieldLength+2)+20 || !strings.HasSuffix(text, ", and 1 more") {
		t.Errorf("description has %d bytes and ends with %q", len(text), text[len(text)-20:])
	}
}

// Without a description, the operator would revert it without pauses.
func TestAnotherOrderOfAListHasADescription(t *testing.T) {
	live := desiredState(newEcho(ownServer)).deployment()
	desired := live.DeepCopy()
	slices.Reverse(live.Spec.Template.Spec.Containers[0].Env)
	if got := Compare(kindOf("Deployment"), live, desired).Description(); got == "" {
		t.Error("no description")
	}
}

func TestDeterminesResponse(t *testing.T) {
	for _, test := range []struct {
		kind, field string
		want        bool
	}{
		{"Deployment", "spec.replicas", true},
		{"Deployment", "spec", true},
		{"Deployment", "spec.template.spec.containers", true},
		{"Deployment", "spec.template.spec.containers[echo].args[0]", true},
		{"Deployment", "spec.template.spec.containers[sidecar].args[0]", false},
		{"Deployment", "spec.template.spec.containers[echo].image", false},
		{"Deployment", "spec.replicasX", false},
		{"Deployment", "spec.strategy", false},
		{"Deployment", "spec.template.spec.containers[echo].resources", false},
		{"Deployment", "spec.template.spec.securityContext", false},
		{"Deployment", "spec.template.metadata.labels[kkloud.io/echo]", true},
		{"Deployment", "spec.template.metadata.labels[app.kubernetes.io/name]", false},
		{"Deployment", "metadata.labels[kkloud.io/echo]", false},
		{"Service", "spec.ports[http].targetPort", true},
		{"Service", "spec.sessionAffinity", false},
		{"PodDisruptionBudget", "spec.maxUnavailable", false},
		{"VerifierDeployment", "spec.template.metadata.labels[kkloud.io/response]", true},
		{"VerifierDeployment", "spec.template.metadata.labels[kkloud.io/echo]", true},
		{"VerifierDeployment", "spec.template.spec.containers[service].args[1]", true},
		{"VerifierDeployment", "spec.template.spec.containers[service].resources", false},
		{"VerifierDaemonSet", "spec.template.spec.containers[route].readinessProbe.httpGet.path", true},
		{"VerifierDaemonSet", "spec.template.spec.tolerations[0]", false},
		{"HTTPRoute", "spec.rules[0].backendRefs[echo-hello].weight", true},
		{"HTTPRoute", "spec.parentRefs[0].port", true},
		{"HTTPRoute", "metadata.labels[kkloud.io/echo]", false},
	} {
		if got := kindOf(test.kind).DeterminesResponse(test.field); got != test.want {
			t.Errorf("%s %s: DeterminesResponse = %t, want %t", test.kind, test.field, got, test.want)
		}
	}
}
