package kinds

import (
	"testing"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/children"
)

func TestFieldNotations(t *testing.T) {
	f := Field{named("metadata"), named("labels"), keyed("a.b/c~d")}.Append()
	if got, want := f.String(), "metadata.labels[a.b/c~d]"; got != want {
		t.Errorf("String = %s, want %s", got, want)
	}
	if got, want := f.Pointer(), "/metadata/labels/a.b~1c~0d"; got != want {
		t.Errorf("Pointer = %s, want %s", got, want)
	}
	f = Field{named("spec"), named("ports"), {Index: 2}, named("port")}
	if got, want := f.String(), "spec.ports[2].port"; got != want {
		t.Errorf("String = %s, want %s", got, want)
	}
	if got, want := f.Pointer(), "/spec/ports/2/port"; got != want {
		t.Errorf("Pointer = %s, want %s", got, want)
	}
}

func TestAppendDoesNotChangeTheReceiver(t *testing.T) {
	f := make(Field, 1, 4)
	a, b := f.Append(named("a")), f.Append(named("b"))
	if a[1].Name != "a" || b[1].Name != "b" {
		t.Errorf("paths = %v and %v, want different ends", a, b)
	}
}

func changes(t *testing.T, kind string) map[string]Change {
	t.Helper()
	echo := &echov1.Echo{Spec: echov1.EchoSpec{Message: "m", Replicas: 2, Port: 80, TargetPort: 5678, Route: &echov1.Route{
		ParentRefs: []echov1.ParentRef{{Name: "g"}}, Paths: []echov1.Path{{Type: "Exact", Value: "/"}},
	}}}
	echo.Name, echo.UID = "one", "uid"
	child := ByName(kind)
	object := New(child)
	object.SetName(ChildName(child, echo.Name))
	in := Inputs()
	in.ServerImage = "image:1"
	child.Mutate(object, echo, in)
	children.SetGeneration(object, 1)
	all, err := Changes(object)
	if err != nil {
		t.Fatal(err)
	}
	byName := map[string]Change{}
	for _, c := range all {
		if previous, found := byName[c.String()]; found && previous.Field.String() == c.Field.String() {
			t.Errorf("%s: two changes are named %q, want unique names", kind, c)
		}
		byName[c.String()] = c
	}
	return byName
}

func TestChangesIncludeLeavesThatExistAndLeavesThatDoNot(t *testing.T) {
	deployment := changes(t, "Deployment")
	for name, pointer := range map[string]string{
		"spec.replicas: change":                                                     "/spec/replicas",
		"metadata.labels[app.kubernetes.io/managed-by]: remove":                     "/metadata/labels/app.kubernetes.io~1managed-by",
		"metadata.annotations[kkloud.io/echo-generation]: remove":                   "/metadata/annotations/kkloud.io~1echo-generation",
		"metadata.ownerReferences[0].controller: change":                            "/metadata/ownerReferences/0/controller",
		"spec.template.spec.containers[0].image: change":                            "/spec/template/spec/containers/0/image",
		"spec.template.spec.containers[0].args[0]: change":                          "/spec/template/spec/containers/0/args/0",
		"spec.template.spec.securityContext.fsGroup: add":                           "/spec/template/spec/securityContext/fsGroup",
		"spec.template.spec.securityContext.seLinuxOptions.level: add":              "/spec/template/spec/securityContext/seLinuxOptions",
		"spec.template.spec.hostNetwork: add":                                       "/spec/template/spec/hostNetwork",
		"spec.template.spec.tolerations: add":                                       "/spec/template/spec/tolerations",
		"spec.template.spec.nodeSelector[example.com/chaos]: add":                   "/spec/template/spec/nodeSelector/example.com~1chaos",
		"spec.template.spec.initContainers: add":                                    "/spec/template/spec/initContainers",
		"spec.template.spec.containers: add before the first item":                  "/spec/template/spec/containers/0",
		"spec.template.spec.containers: add":                                        "/spec/template/spec/containers/-",
		"spec.template.spec.containers[0]: remove":                                  "/spec/template/spec/containers/0",
		"spec.template.spec.containers[0].resources.limits[cpu]: change":            "/spec/template/spec/containers/0/resources/limits/cpu",
		"spec.template.spec.containers[0].resources.limits[ephemeral-storage]: add": "/spec/template/spec/containers/0/resources/limits/ephemeral-storage",
	} {
		if c, found := deployment[name]; !found || c.Field.Pointer() != pointer {
			t.Errorf("Deployment: change %q is of %q, want %q", name, c.Field.Pointer(), pointer)
		}
	}
	service := changes(t, "Service")
	for _, name := range []string{"spec.ports[0].appProtocol: add", "spec.sessionAffinity: add", "spec.selector[kkloud.io/echo]: remove", "spec.type: change"} {
		if _, found := service[name]; !found {
			t.Errorf("Service: no change %q, want one", name)
		}
	}
}

func TestChangesLeaveOutWhatTheAPIServerAssigns(t *testing.T) {
	for _, kind := range children.Kinds {
		for name, c := range changes(t, kind.Name) {
			if c.Action != Remove && c.Value == nil {
				t.Errorf("%s: change %q has no value", kind.Name, name)
			}
			if c.Field[0].Name == "metadata" && c.Field[1].Name != "labels" && c.Field[1].Name != "annotations" &&
				c.Field[1].Name != "ownerReferences" && c.Field[1].Name != "finalizers" {
				t.Errorf("%s: change %q, want none of fields that the API server assigns", kind.Name, name)
			}
		}
	}
}

func TestChangesDifferFromTheCurrentValue(t *testing.T) {
	deployment := changes(t, "Deployment")
	for name, want := range map[string]any{
		"spec.replicas: change":                                          int64(3),
		"spec.template.spec.automountServiceAccountToken: change":        true,
		"spec.template.spec.containers[0].image: change":                 "image:1x",
		"spec.template.spec.containers[0].resources.limits[cpu]: change": "77m",
		"spec.strategy.type: change":                                     "Recreate",
	} {
		if got := deployment[name].Value; got != want {
			t.Errorf("%s: value = %v, want %v", name, got, want)
		}
	}
}
