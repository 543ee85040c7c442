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
func (rec *reconciliation) reconcileRoute(ctx context.Context, kind children.Kind) error {
	if missing := rec.Optional.Check(rec.echo.Namespace); missing != nil {
		return rec.reportMissingKind(kind, missing)
	}
	result, err := rec.reconcileChild(ctx, kind)
	rec.report(result)
	if kind.Wanted(rec.echo) || result.failure != nil {
		object, _ := result.object.(*gatewayv1.HTTPRoute)
		rec.observed.Route = &status.Route{Object: object, Failure: result.failure, Waiting: result.terminating}
	}
	return err
}

// reportMissingKind reports why the cache does not contain the kind. If there is an HTTPRoute,
// it reconciles the Echo when the cache contains the kind.
func (rec *reconciliation) reportMissingKind(kind children.Kind, missing error) error {
	isNotServed := errors.Is(missing, informers.ErrNotServed)
	hasNone := !kind.Wanted(rec.echo) && (isNotServed || !isRouted(rec.echo))
	switch {
	case hasNone:
		return nil
	case isNotServed:
		rec.report(outcome{recheck: rec.Optional.Period})
		rec.observed.Route = &status.Route{NotInstalled: true}
		return nil
	case errors.Is(missing, informers.ErrNotYet):
		return missing
	default:
		failure := &status.Failure{Reason: echov1.ReasonRejected, Message: kind.Name + ": " + missing.Error()}
		rec.report(outcome{failure: failure, recheck: backoff.Max})
		rec.observed.Route = &status.Route{Failure: failure}
		return nil
	}
}

// isRouted reports whether the status reports about an HTTPRoute.
func isRouted(echo *echov1.Echo) bool {
	return meta.FindStatusCondition(echo.Status.Conditions, echov1.ConditionRouted) != nil
}
