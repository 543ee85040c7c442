// Mutant: does not reset a removed field
// Guarantee: 4
// Suite: operations
// Package: internal/children

package children

import (
	corev1 "k8s.io/api/core/v1"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
)

func mutateContainer(container *corev1.Container, echo *echov1.Echo, image string) {
	before := container.Resources
	originalMutateContainer(container, echo, image)
	if len(before.Limits)+len(before.Requests) > 0 && len(echo.Spec.Resources.Limits)+len(echo.Spec.Resources.Requests) == 0 {
		container.Resources = before
	}
}
