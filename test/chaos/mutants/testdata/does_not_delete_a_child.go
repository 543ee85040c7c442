// Mutant: does not delete an unwanted child
// Guarantee: 4
// Suite: crash points
// Package: internal/controller

package controller

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

func (c *child) remove(context.Context, client.Object) error { return nil }
