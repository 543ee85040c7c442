package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

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

// gatewayLag is how long a Gateway may take to forget a deleted HTTPRoute.
const gatewayLag = 5 * time.Second

// readRoutes reads what children depend on beside the Echo: whether a Gateway may still use an HTTPRoute that the Echo no longer
// wants, and the HTTPRoutes that the Echo overrides, whose changes it follows. The status reports why they cannot be overridden.
func (rec *reconciliation) readRoutes(ctx context.Context) error {
	names, isWanted := children.Overrides(rec.echo), children.WantsHTTPRoute(rec.echo)
	var own *gatewayv1.HTTPRoute
	var err error
	rec.missingRoutes = rec.Optional.Check()
	if dependsOnOwn := len(names) > 0 || !isWanted; rec.missingRoutes == nil && dependsOnOwn {
		if own, err = rec.ownRoute(ctx); err != nil {
			return fmt.Errorf("read the cache: %w", err)
		}
	}
	mayBeUsed := own != nil || isRouted(rec.echo) || time.Since(rec.memory.routeDeleted) < gatewayLag
	rec.inputs.KeepsRoutePort = mayBeUsed && !isWanted
	if rec.inputs.KeepsRoutePort {
		rec.followed = "the port of an HTTPRoute that is no longer wanted"
		isDeleted := own == nil && (rec.missingRoutes == nil || errors.Is(rec.missingRoutes, informers.ErrNotServed))
		if isDeleted {
			rec.requeue(gatewayLag)
		}
	}
	switch {
	case len(names) > 0 && errors.Is(rec.missingRoutes, informers.ErrNotYet):
		return rec.missingRoutes // A verifier without these routes would be another one.
	case rec.missingRoutes != nil:
		names = nil
	}
	rec.OtherRoutes.Follow(client.ObjectKeyFromObject(rec.echo), names) //nolint:contextcheck // The watches outlive the reconciliation.
	if len(names) == 0 {
		return nil
	}
	if err := rec.readOwners(ctx, own); err != nil {
		return err
	}
	err = rec.readOverridden(ctx, names)
	rec.stillOverrides = own != nil && children.StillOverrides(own, rec.echo)
	if rec.unresolved != nil && rec.stillOverrides {
		rec.inputs.OverriddenRoutes = []gatewayv1.HTTPRoute{*own}
	}
	return err
}

// ownRoute returns the HTTPRoute of the Echo, or nil if the cache has none.
func (rec *reconciliation) ownRoute(ctx context.Context) (*gatewayv1.HTTPRoute, error) {
	own := &gatewayv1.HTTPRoute{}
	err := rec.Client.Get(ctx, types.NamespacedName{Namespace: rec.echo.Namespace, Name: children.Name(rec.echo)}, own)
	if err != nil || !metav1.IsControlledBy(own, rec.echo) {
		return nil, client.IgnoreNotFound(err)
	}
	return own, nil
}

// readOverridden reads the named HTTPRoutes until one of them cannot be overridden.
func (rec *reconciliation) readOverridden(ctx context.Context, names []string) error {
	var routes []gatewayv1.HTTPRoute
	for _, name := range names {
		var route gatewayv1.HTTPRoute
		err := rec.APIReader.Get(ctx, types.NamespacedName{Namespace: rec.echo.Namespace, Name: name}, &route)
		if apierrors.IsNotFound(err) {
			rec.unresolved = &status.Failure{Reason: echov1.ReasonRouteNotFound, Message: "HTTPRoute " + name + " does not exist"}
			return nil
		}
		if err != nil {
			c := rec.child(children.OptionalKind())
			err = c.reject(fmt.Errorf("read %s: %w", name, err), 0)
			rec.unresolved = c.failure
			return err
		}
		route.Annotations, route.ManagedFields, route.Status = nil, nil, gatewayv1.HTTPRouteStatus{} // They may be large.
		routes = append(routes, route)
		rec.followed += fmt.Sprintf("%s %d ", route.UID, route.Generation)
		if why := children.WhyNotOverridable(rec.echo, routes); why != "" {
			rec.unresolved = &status.Failure{Reason: echov1.ReasonRouteNotOverridable, Message: why}
			return nil
		}
	}
	rec.inputs.OverriddenRoutes = routes
	return nil
}

// readOwners reads what must be deleted before the Deployment and the Service of an Echo that overrides HTTPRoutes.
func (rec *reconciliation) readOwners(ctx context.Context, own *gatewayv1.HTTPRoute) error {
	if own != nil {
		rec.inputs.Route = []metav1.OwnerReference{{APIVersion: gatewayv1.GroupVersion.String(), Kind: "HTTPRoute", Name: own.Name, UID: own.UID}}
	}
	pods, err := rec.podsBy(ctx, children.EchoLabel)
	for _, pod := range status.ReadyPods(pods) {
		rec.inputs.Pods = append(rec.inputs.Pods, metav1.OwnerReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID})
	}
	rec.followed += fmt.Sprint(rec.inputs.Route, rec.inputs.Pods)
	return err
}

// reconcileRoute reconciles the HTTPRoute if the cache contains the kind. One that overrides others is created after the first
// available pod, and after the nodes have applied the Service, so that no request fails.
func (c *child) reconcileRoute(ctx context.Context) error {
	if c.missingRoutes != nil {
		return c.reportMissingKind(c.missingRoutes)
	}
	isApplied := len(c.inputs.Route) > 0 || time.Since(c.memory.serviceChanged) >= serviceLag // Gateways use one that exists.
	isServed := isApplied && c.observed.Service != nil && c.observed.Deployment != nil && c.observed.Deployment.Status.AvailableReplicas > 0
	waiting := ""
	if len(children.Overrides(c.echo)) > 0 && (len(c.inputs.OverriddenRoutes) == 0 || !isServed && !c.stillOverrides) {
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
		c.observed.Route = &status.Route{Unresolved: &status.Failure{Reason: echov1.ReasonGatewayAPINotInstalled,
			Message: "The cluster does not serve HTTPRoute in gateway.networking.k8s.io/v1: install the CRDs of the Gateway API"}}
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
