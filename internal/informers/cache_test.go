package informers

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/children"
	"github.com/kkloud-io/echo-operator/internal/testing/controlplane"
	"github.com/kkloud-io/echo-operator/internal/testing/values"
)

var inputs = children.Inputs{ServerImage: controlplane.ServerImage, VerifierImage: controlplane.VerifierImage, ClusterIPs: []string{"10.0.0.7"}}

// A larger child is a stub in the cache, so each reconciliation would read it from the API server.
func TestChildrenOfTheDefaultServerAreCached(t *testing.T) {
	for _, c := range values.Cases() {
		echo := &echov1.Echo{}
		if len(c.Rejection) > 0 {
			continue
		}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(c.Echo.Object, echo); err != nil {
			t.Fatal(err)
		}
		if echo.Spec.Image != "" {
			continue
		}
		if route := echo.Spec.Route; route != nil && len(route.Paths) == 0 {
			route.Paths = []echov1.Path{{Type: "PathPrefix", Value: "/"}} // The default of the API server.
		}
		echo.Name, echo.Spec.Message = strings.Repeat("n", 56), strings.Repeat(`"`, 16384)
		if echo.Spec.Page == nil {
			echo.Spec.Page = &echov1.Page{}
		}
		echo.Spec.Page.Title, echo.Spec.Page.Color = strings.Repeat(`"`, 253), "#2196F3"
		for _, kind := range children.Kinds {
			child := kind.New()
			child.SetName(kind.ChildName(echo))
			kind.Mutate(child, echo, inputs)
			if IsStub(transformChild(kind, child)) {
				t.Errorf("%s: %s has %d bytes, want at most %d", c.Name, kind.Name, child.(interface{ Size() int }).Size(), maxCachedSize)
			}
		}
	}
}
