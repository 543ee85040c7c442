// Mutant: does not delete an unwanted child
// Guarantee: 4
// Suite: crash points
// Package: internal/controller

package controller

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/children"
)

func (r *EchoReconciler) remove(context.Context, *echov1.Echo, children.Kind, client.Object) (child, error) {
	return child{}, nil
}
