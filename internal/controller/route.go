package controller

import (
	"context"
	"errors"

	"k8s.io/apimachinery/pkg/api/meta"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/backoff"
	"github.com/kkloud-io/echo-operator/internal/children"
	"github.com/kkloud-io/echo-operator/internal/informers"
	"github.com/kkloud-io/echo-operator/internal/status"
)

// reconcileRoute reconciles the HTTPRoute if the cache contains the kind.
func (p *pass) reconcileRoute(ctx context.Context, kind children.Kind) error {
	if missing := p.Optional.Check(); missing != nil {
		return p.reportMissingKind(kind, missing)
	}
	c, err := p.reconcileChild(ctx, kind)
	p.report(c)
	if kind.Wanted(p.echo) || c.failure != nil {
		object, _ := c.object.(*gatewayv1.HTTPRoute)
		p.observed.Route = &status.Route{Object: object, Failure: c.failure}
	}
	return err
}

// reportMissingKind reports why the cache does not contain the kind. If there is an HTTPRoute,
// it reconciles the Echo when the cache contains the kind.
func (p *pass) reportMissingKind(kind children.Kind, missing error) error {
	isNotServed := errors.Is(missing, informers.ErrNotServed)
	hasNone := !kind.Wanted(p.echo) && (isNotServed || !isRouted(p.echo))
	switch {
	case hasNone:
		return nil
	case isNotServed:
		p.report(child{recheck: p.Optional.Period})
		p.observed.Route = &status.Route{NotInstalled: true}
		return nil
	case errors.Is(missing, informers.ErrNotYet):
		return missing
	default:
		failure := &status.Failure{Reason: echov1.ReasonRejected, Message: kind.Name + ": " + missing.Error()}
		p.report(child{failure: failure, recheck: backoff.Max})
		p.observed.Route = &status.Route{Failure: failure}
		return nil
	}
}

// isRouted reports whether the status reports about an HTTPRoute.
func isRouted(echo *echov1.Echo) bool {
	return meta.FindStatusCondition(echo.Status.Conditions, echov1.ConditionRouted) != nil
}
