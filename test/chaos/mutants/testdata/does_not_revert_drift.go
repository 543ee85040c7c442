// Mutant: does not revert drift
// Guarantee: 3
// Suite: external writers
// Package: internal/children

package children

import (
	appsv1 "k8s.io/api/apps/v1"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
)

func Deployment(deployment *appsv1.Deployment, echo *echov1.Echo, defaultImage string) {
	replicas := deployment.Spec.Replicas
	originalDeployment(deployment, echo, defaultImage)
	if EchoGeneration(deployment) == echo.Generation {
		deployment.Spec.Replicas = replicas
	}
}
