package children

import (
	"errors"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// The cache and the RESTMapper rely on it: they do not use discovery.
func TestKindsNameTheTypesOfTheirObjects(t *testing.T) {
	types := runtime.NewScheme()
	if err := errors.Join(scheme.AddToScheme(types), gatewayv1.Install(types)); err != nil {
		t.Fatal(err)
	}
	for _, kind := range Kinds {
		for name, object := range map[string]runtime.Object{kind.Name: kind.New(), kind.Name + "List": kind.NewList()} {
			want := kind.Resource.GroupVersion().WithKind(name)
			if got, _, err := types.ObjectKinds(object); err != nil || len(got) != 1 || got[0] != want {
				t.Errorf("%s: type of %T = %v, %v, want %v", kind.Name, object, got, err, want)
			}
		}
	}
}

// The operator creates the children of other kinds while the cluster does not serve an optional API.
func TestKindsOfAnOptionalAPIAreOptional(t *testing.T) {
	for i, kind := range Kinds {
		if kind.OptionalAPI && (!kind.Optional || i != len(Kinds)-1) {
			t.Errorf("%s: Optional = %t at index %d, want true and the last index", kind.Name, kind.Optional, i)
		}
	}
}

func TestEveryEchoWantsTheKindsThatAreNotOptional(t *testing.T) {
	for _, kind := range Kinds {
		if !kind.Optional && !kind.Wanted(newEcho()) {
			t.Errorf("a minimal Echo does not want a %s, but the kind is not optional", kind.Name)
		}
	}
}
