package scenarios

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/client"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/children"
	"github.com/kkloud-io/echo-operator/test/chaos/kinds"
)

func TestEveryChildKindHasDriftsThatMutateReverts(t *testing.T) {
	echo := &echov1.Echo{Spec: everyChild()}
	echo.Spec.Port, echo.Spec.TargetPort, echo.Spec.Route.Paths = 80, 5678, []echov1.Path{{Type: "PathPrefix", Value: "/"}}
	echo.Name, echo.UID = one, "uid"
	for _, kind := range children.Kinds {
		echo.Spec.Verify = withChild(kind).Verify
		if echo.Spec.Verify != nil {
			echo.Spec.Verify.PeriodSeconds, echo.Spec.Verify.TimeoutSeconds, echo.Spec.Verify.FailureThreshold = 10, 2, 3
		}
		if len(driftsByKind[kind.Name]) == 0 {
			t.Errorf("%s: no drifts, want at least one in driftsByKind", kind.Name)
		}
		for _, drift := range drifts(kind.Name) {
			want := kinds.New(kind)
			kind.Mutate(want, echo, kinds.Inputs())
			got := want.DeepCopyObject().(client.Object)
			drift.change(got)
			if equality.Semantic.DeepEqual(got, want) {
				t.Errorf("%s, drift %q: no change, want one", kind.Name, drift.name)
			}
		}
	}
	for name := range driftsByKind {
		kinds.ByName(name) // It panics for a kind that is not a child.
	}
}
