package children

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
)

// The cache and the RESTMapper rely on it: they do not use discovery.
func TestKindsNameTheTypesOfTheirObjects(t *testing.T) {
	for _, kind := range Kinds {
		for name, object := range map[string]runtime.Object{kind.Name: kind.New(), kind.Name + "List": kind.NewList()} {
			want := kind.Resource.GroupVersion().WithKind(name)
			if got, _, err := scheme.Scheme.ObjectKinds(object); err != nil || len(got) != 1 || got[0] != want {
				t.Errorf("%s: type of %T = %v, %v, want %v", kind.Name, object, got, err, want)
			}
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
