package performance

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/children"
	"github.com/kkloud-io/echo-operator/internal/status"
	"github.com/kkloud-io/echo-operator/internal/testing/controlplane"
)

// inputs are those of the operator's process.
var inputs = children.Inputs{ServerImage: controlplane.ServerImage, VerifierImage: controlplane.VerifierImage}

// newChildren returns the children of an Echo as the operator creates them.
func newChildren(echo *echov1.Echo) (objects []children.Object) {
	for _, kind := range children.Kinds {
		if kind.Wanted(echo) {
			child := kind.New()
			kind.Mutate(child, echo, inputs)
			child.SetNamespace(echo.Namespace)
			child.SetName(kind.ChildName(echo))
			children.SetEchoGeneration(child, echo.Generation)
			objects = append(objects, child)
		}
	}
	return objects
}

// createChildren writes what the operator has to write for a new Echo: a POST of each child, and a
// PUT of the status. It returns what an edit changes.
func (e *environment) createChildren(echo *echov1.Echo) (observed status.Observation, err error) {
	for _, child := range newChildren(echo) {
		if err := e.baselineClient.Create(e.Context(), child); err != nil {
			return observed, err
		}
		switch child := child.(type) {
		case *appsv1.Deployment:
			observed.Deployment = child
		case *corev1.Service:
			observed.Service = child
		}
	}
	return observed, e.writeStatus(echo, observed)
}

// updateChildren writes what the operator has to write after an edit of the message: a PUT of the
// Deployment and of the status.
func (e *environment) updateChildren(echo *echov1.Echo, observed status.Observation) error {
	children.Deployment(observed.Deployment, echo, inputs)
	children.SetEchoGeneration(observed.Deployment, echo.Generation)
	observed.Deployment.SetManagedFields(nil)
	if err := e.baselineClient.Update(e.Context(), observed.Deployment); err != nil {
		return err
	}
	return e.writeStatus(echo, observed)
}

func (e *environment) writeStatus(echo *echov1.Echo, observed status.Observation) error {
	echo.Status, _ = status.Assess(echo, observed).Status()
	for i := range echo.Status.Conditions {
		echo.Status.Conditions[i].LastTransitionTime = echo.CreationTimestamp
	}
	return e.baselineClient.Status().Update(e.Context(), echo)
}
