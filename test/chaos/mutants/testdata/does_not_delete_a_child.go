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

func (rec *reconciliation) remove(context.Context, children.Kind, client.Object) (outcome, error) {
	return outcome{}, nil
}
