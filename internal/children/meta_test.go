package children

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestGenerationIsZeroWithoutAValidAnnotation(t *testing.T) {
	object := &metav1.ObjectMeta{}
	for _, want := range []int64{0, 7} {
		if want > 0 {
			SetEchoGeneration(object, want)
		}
		if got := EchoGeneration(object); got != want {
			t.Errorf("Generation = %d, want %d", got, want)
		}
	}
	object.Annotations[generationAnnotation] = "seven"
	if got := EchoGeneration(object); got != 0 {
		t.Errorf("Generation = %d for the annotation seven, want 0", got)
	}
}

func TestOrphanHasTheLabelsAndTheGenerationButNoController(t *testing.T) {
	echo := newEcho()
	for name, c := range map[string]struct {
		edit func(Object)
		want bool
	}{
		"orphan":                      {func(Object) {}, true},
		"owner that is no controller": {func(o Object) { o.SetOwnerReferences([]metav1.OwnerReference{{Kind: "Group", Name: "g"}}) }, true},
		"controlled by another object": {func(o Object) {
			o.SetOwnerReferences([]metav1.OwnerReference{{Kind: "Group", Name: "g", Controller: new(true)}})
		}, false},
		"no generation":           {func(o Object) { o.SetAnnotations(nil) }, false},
		"label of another Echo":   {func(o Object) { o.GetLabels()[EchoLabel] = "other" }, false},
		"not managed by operator": {func(o Object) { delete(o.GetLabels(), ManagedByLabel) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			for kind, object := range desiredState(echo) {
				object.SetOwnerReferences(nil)
				SetEchoGeneration(object, 3)
				c.edit(object)
				if got := IsOrphan(object, echo); got != c.want {
					t.Errorf("IsOrphan(%s) = %t, want %t", kind, got, c.want)
				}
			}
		})
	}
}

func TestEchoNameReturnsTheNameOfTheEchoOfAChild(t *testing.T) {
	echo := newEcho()
	for _, kind := range Kinds {
		child := kind.ChildName(echo)
		if name, found := EchoName(child); !found || name != echo.Name {
			t.Errorf("EchoName(%q) = %q, %t, want %q", child, name, found, echo.Name)
		}
	}
	if name, found := EchoName("web"); found {
		t.Errorf("EchoName(web) = %q, want none", name)
	}
}
