package controller

import (
	"context"
	"errors"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/backoff"
	"github.com/kkloud-io/echo-operator/internal/informers"
	"github.com/kkloud-io/echo-operator/internal/status"
)

// reconcileRoute reconciles the HTTPRoute if the cache contains the kind.
func (c *child) reconcileRoute(ctx context.Context) error {
	if missing := c.Optional.Check(); missing != nil {
		return c.reportMissingKind(missing)
	}
	err := c.reconcile(ctx)
	if c.kind.Wanted(c.echo) || c.failure != nil {
		object, _ := c.object.(*gatewayv1.HTTPRoute)
		c.observed.Route = &status.Route{Object: object, Failure: c.failure, Waiting: c.terminating}
	}
	return err
}

// reportMissingKind reports why the cache does not contain the kind. If there is an HTTPRoute,
// it reconciles the Echo when the cache contains the kind.
func (c *child) reportMissingKind(missing error) error {
	isNotServed := errors.Is(missing, informers.ErrNotServed)
	hasNone := !c.kind.Wanted(c.echo) && (isNotServed || !isRouted(c.echo))
	switch {
	case hasNone:
		return nil
	case isNotServed:
		c.requeue(c.Optional.Period)
		c.observed.Route = &status.Route{NotInstalled: true}
		return nil
	case errors.Is(missing, informers.ErrNotYet):
		return missing
	default:
		c.failure = &status.Failure{Reason: echov1.ReasonRejected, Message: c.kind.Name + ": " + missing.Error()}
		c.requeue(backoff.Max)
		c.observed.Route = &status.Route{Failure: c.failure}
		return nil
	}
}
