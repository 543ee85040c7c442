package controller

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/apirules"
	"github.com/kkloud-io/echo-operator/internal/children"
)

// A larger child is a stub in the cache, so each reconciliation would read it from the API server.
func TestChildrenOfTheDefaultServerAreCached(t *testing.T) {
	for i, spec := range apirules.Limits {
		echo := &echov1.Echo{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(spec, &echo.Spec); err != nil {
			t.Fatal(err)
		}
		if len(echo.Spec.Command)+len(echo.Spec.Args) > 0 {
			continue
		}
		echo.Name, echo.Spec.Message = strings.Repeat("n", 58), strings.Repeat(`"`, 16384)
		echo.Spec.Page = &echov1.Page{Title: strings.Repeat(`"`, 253), Color: "#2196F3"}
		for _, kind := range children.Kinds {
			child := kind.New()
			child.SetName(kind.ChildName(echo))
			kind.Mutate(child, echo, inputs)
			if isStub(slimChild(kind, child).(client.Object)) {
				t.Errorf("Limits[%d]: %s has %d bytes, want at most %d", i, kind.Name, child.(interface{ Size() int }).Size(), maxCachedSize)
			}
		}
	}
}
