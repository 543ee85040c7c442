package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/backoff"
	"github.com/kkloud-io/echo-operator/internal/children"
	"github.com/kkloud-io/echo-operator/internal/informers"
	"github.com/kkloud-io/echo-operator/internal/status"
)

// readOverridden reads the HTTPRoutes that the Echo overrides, and follows their changes. The status reports why they cannot be
// overridden.
func (rec *reconciliation) readOverridden(ctx context.Context) error {
	names := children.Overrides(rec.echo)
	if len(names) > 0 && rec.Optional.Check() != nil {
		names = nil
	}
	rec.OtherRoutes.Follow(client.ObjectKeyFromObject(rec.echo), names) //nolint:contextcheck // The watches outlive the reconciliation.
	var routes []gatewayv1.HTTPRoute
	for _, name := range names {
		var route gatewayv1.HTTPRoute
		err := rec.APIReader.Get(ctx, types.NamespacedName{Namespace: rec.echo.Namespace, Name: name}, &route)
		if apierrors.IsNotFound(err) {
			rec.unresolved = &status.Failure{Reason: echov1.ReasonRouteNotFound, Message: "HTTPRoute " + name + " does not exist"}
			return nil
		}
		if err != nil {
			return fmt.Errorf("read HTTPRoute %s: %w", name, err)
		}
		routes = append(routes, route)
		rec.followed += fmt.Sprintf("%s %d ", route.UID, route.Generation)
	}
	if len(routes) == 0 {
		return nil
	}
	if why := children.WhyNotOverridable(rec.echo, routes); why != "" {
		rec.unresolved = &status.Failure{Reason: echov1.ReasonRouteNotOverridable, Message: why}
		return nil
	}
	rec.inputs.OverriddenRoutes = routes
	return rec.readOwners(ctx)
}

// readOwners reads what must be deleted before the Deployment and the Service of an Echo that overrides HTTPRoutes.
func (rec *reconciliation) readOwners(ctx context.Context) error {
	var own gatewayv1.HTTPRoute
	err := rec.Client.Get(ctx, types.NamespacedName{Namespace: rec.echo.Namespace, Name: children.Name(rec.echo)}, &own)
	if client.IgnoreNotFound(err) != nil {
		return err
	}
	if err == nil && metav1.IsControlledBy(&own, rec.echo) {
		rec.inputs.Route = []metav1.OwnerReference{{APIVersion: gatewayv1.GroupVersion.String(), Kind: "HTTPRoute", Name: own.Name, UID: own.UID}}
	}
	pods, err := rec.podsBy(ctx, informers.PodsByEcho)
	for _, pod := range status.ReadyPods(pods) {
		rec.inputs.Pods = append(rec.inputs.Pods, metav1.OwnerReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID})
	}
	rec.followed += fmt.Sprint(rec.inputs.Route, rec.inputs.Pods)
	return err
}

// reconcileRoute reconciles the HTTPRoute if the cache contains the kind. One that overrides others is created after the
// Service and the first available pod, so that no request fails. Until it can be updated, it remains as it was.
func (c *child) reconcileRoute(ctx context.Context) error {
	if missing := c.Optional.Check(); missing != nil {
		return c.reportMissingKind(missing)
	}
	isServed := c.observed.Service != nil && c.observed.Deployment != nil && c.observed.Deployment.Status.AvailableReplicas > 0
	waiting := ""
	if len(children.Overrides(c.echo)) > 0 && (!isServed || len(c.inputs.OverriddenRoutes) == 0) {
		c.isWanted, waiting = false, "The HTTPRoute waits for the first available pod"
	}
	err := c.reconcile(ctx)
	if c.kind.Wanted(c.echo) || c.failure != nil {
		object, _ := c.object.(*gatewayv1.HTTPRoute)
		c.observed.Route = &status.Route{
			Object: object, Failure: c.failure, Waiting: cmp.Or(c.terminating, waiting),
			ParentRefs: children.ParentRefs(c.echo, c.inputs), Unresolved: c.unresolved,
		}
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
