// Mutant: trusts a stale Echo
// Guarantee: 5
// Suite: stale reads
// Package: internal/controller

package controller

import (
	"context"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
)

func (r *EchoReconciler) checkNewest(context.Context, *echov1.Echo) error { return nil }
