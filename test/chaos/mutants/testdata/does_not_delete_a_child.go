// Mutant: does not delete an unwanted child
// Guarantee: 4
// Suite: crash points
// Package: internal/controller

package controller

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kkloud-io/echo-operator/internal/children"
)

func (p *pass) remove(context.Context, children.Kind, client.Object) (child, error) {
	return child{}, nil
}
