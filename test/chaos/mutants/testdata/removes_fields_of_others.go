// Mutant: removes containers of external writers
// Guarantee: 3
// Suite: external writers
// Package: internal/children

package children

import (
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
)

func Deployment(deployment *appsv1.Deployment, echo *echov1.Echo, defaultImage string) {
	originalDeployment(deployment, echo, defaultImage)
	pod := &deployment.Spec.Template.Spec
	pod.Containers = slices.DeleteFunc(pod.Containers, func(c corev1.Container) bool { return c.Name != containerName })
}
