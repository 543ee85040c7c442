// Mutant: writes in steady state
// Guarantee: 1
// Suite: crash points
// Package: internal/controller

package controller

import (
	"sigs.k8s.io/controller-runtime/pkg/client"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/children"
)

func desiredState(echo *echov1.Echo, c children.Kind, in children.Inputs, live client.Object) (client.Object, bool) {
	desired, _ := originalDesiredState(echo, c, in, live)
	return desired, true
}
