package children

import (
	"errors"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
)

// The cache and the RESTMapper rely on it: they do not use discovery.
func TestKindsNameTheTypesOfTheirObjects(t *testing.T) {
	types := runtime.NewScheme()
	if err := errors.Join(scheme.AddToScheme(types), gatewayv1.Install(types)); err != nil {
		t.Fatal(err)
	}
	for _, kind := range Kinds {
		object, version := kind.New(), kind.Resource.GroupVersion()
		want := version.WithKind(kind.ObjectKind)
		if got, _, err := types.ObjectKinds(object); err != nil || len(got) != 1 || got[0] != want {
			t.Errorf("%s: type of %T = %v, %v, want %v", kind.Name, object, got, err, want)
		}
		if list := version.WithKind(kind.ObjectKind + "List"); !types.Recognizes(list) {
			t.Errorf("%s: the scheme has no type %v", kind.Name, list)
		}
	}
}

// The operator creates the children of other kinds while the cluster does not serve an optional API.
func TestOnlyTheLastKindMayNotBeServed(t *testing.T) {
	for i, kind := range Kinds {
		if isLast := i == len(Kinds)-1; kind.OptionalAPI != isLast || isLast && !kind.Conditional {
			t.Errorf("%s: OptionalAPI = %t, Conditional = %t at index %d of %d", kind.Name, kind.OptionalAPI, kind.Conditional, i, len(Kinds))
		}
	}
}

func TestEchoWantsTheKindsOfItsSpec(t *testing.T) {
	for want, echo := range map[string]*echov1.Echo{
		"Service Deployment":                     newEcho(),
		"Service PodDisruptionBudget Deployment": newEcho(func(e *echov1.Echo) { e.Spec.Replicas = 2 }),
		"Service Deployment VerifierDeployment":  newEcho(withVerify),
		"Service Deployment VerifierDaemonSet":   newEcho(withVerify, func(e *echov1.Echo) { e.Spec.Verify.From = echov1.VerifyFromEveryNode }),
		"Service Deployment HTTPRoute":           newEcho(withRoute),
	} {
		var got []string
		for _, kind := range Kinds {
			if kind.Wanted(echo) {
				got = append(got, kind.Name)
			} else if !kind.Conditional {
				t.Errorf("an Echo does not want a %s, but the kind is not conditional", kind.Name)
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("kinds = %v, want %s", got, want)
		}
	}
}

func TestKindsHaveDifferentNames(t *testing.T) {
	names, objects := map[string]bool{}, map[string]bool{}
	for _, kind := range Kinds {
		object := kind.Resource.Resource + "/" + kind.ChildName(newEcho())
		if names[kind.Name] || objects[object] {
			t.Errorf("another kind has the name %s or the object %s, too", kind.Name, object)
		}
		names[kind.Name], objects[object] = true, true
	}
	if got, want := len(WatchedKinds()), len(Kinds)-1; got != want { // Deployments are servers and verifiers.
		t.Errorf("there are %d different kinds of objects, want %d", got, want)
	}
}
