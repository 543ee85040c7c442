package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/children"
	"github.com/kkloud-io/echo-operator/internal/informers"
)

var (
	// errStaleEcho reports that the Echo in the cache has since been changed or deleted.
	errStaleEcho = errors.New("the cache lags behind the Echo")
	// errStaleChild reports that the child in the cache has since been changed or deleted.
	errStaleChild = errors.New("the cache lags behind the child")
)

// find returns the object with the name of the child, or nil. The cache contains only objects
// with the operator's label, and only stubs of those that are not children or too large. So an object that is
// missing there, or that the Echo does not seem to control, is read from the API server if the child is to be written.
func (c *child) find(ctx context.Context, isWritten bool) (client.Object, error) {
	var cached client.Object = c.kind.New()
	switch err := c.Client.Get(ctx, c.key, cached); {
	case apierrors.IsNotFound(err):
		cached = nil
	case err != nil:
		return nil, fmt.Errorf("read the cache: %w", err)
	}
	isControlled := cached != nil && metav1.IsControlledBy(cached, c.echo)
	switch {
	case c.versions.IsStale(c.kind.ObjectKind, c.key, cached):
		return nil, errStaleChild
	case cached == nil && isWritten:
		if mayExist := c.previouslyReconciled() || c.memory.lacksStatus(); !mayExist {
			return nil, nil // Creating the child shows whether it exists.
		}
		live, err := c.readLive(ctx)
		if live == nil && err == nil {
			err = c.checkNewest(ctx) // The child may have been deleted together with its Echo.
		}
		return live, err
	case cached == nil && c.mayHaveLeftover(ctx):
		return c.readLive(ctx) // Another client may have changed the label by which the cache selects.
	case isControlled && !informers.IsStub(cached):
		return cached, nil
	case cached != nil && (isControlled || isWritten):
		return c.readLive(ctx)
	default:
		return nil, nil
	}
}

// readLive reads the child from the API server. It returns nil if there is none.
func (c *child) readLive(ctx context.Context) (client.Object, error) {
	object := client.Object(c.kind.New())
	if err := c.APIReader.Get(ctx, c.key, object); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	return object, nil
}

// mayHaveLeftover reports whether an earlier spec may have left a child that is not wanted. The status tells until it
// is written without the child: before that, the operator deletes the child, or the status reports why it cannot.
func (c *child) mayHaveLeftover(ctx context.Context) bool {
	if c.readOnly || c.isWanted {
		return false
	}
	reported := c.echo.Status
	isRejected := c.reason(echov1.ConditionDegraded) == echov1.ReasonRejected
	isNotAllowed := c.kind.Wanted(c.echo) // But not by the administrator.
	isOutdated := reported.ObservedGeneration != c.echo.Generation || isNotAllowed
	isNew := reported.ObservedGeneration <= 0
	switch {
	case isRejected:
		return true
	case isNew, !isOutdated:
		return false
	case c.kind.OptionalAPI:
		return isRouted(c.echo)
	case c.kind.Verifier:
		return !slices.Contains([]string{"", echov1.ReasonEveryNodeNotAllowed}, c.reason(echov1.ConditionVerified))
	default:
		return c.hadReplicas(ctx)
	}
}

// hadReplicas reports whether the Echo was last written with more than one replica. A budget is reconciled before the
// Deployment, but perhaps after an error once more.
func (rec *reconciliation) hadReplicas(ctx context.Context) bool {
	var deployment appsv1.Deployment
	err := rec.Client.Get(ctx, types.NamespacedName{Namespace: rec.echo.Namespace, Name: children.Name(rec.echo)}, &deployment, client.UnsafeDisableDeepCopy)
	return err != nil || rec.echo.Status.Replicas > 1 || deployment.Spec.Replicas == nil || *deployment.Spec.Replicas > 1
}

// reason returns the reason that the status has for a condition, or an empty text.
func (c *child) reason(conditionType string) string {
	return ptr.Deref(meta.FindStatusCondition(c.echo.Status.Conditions, conditionType), metav1.Condition{}).Reason
}

// isRouted reports whether the status reports about an HTTPRoute.
func isRouted(echo *echov1.Echo) bool {
	return meta.FindStatusCondition(echo.Status.Conditions, echov1.ConditionRouted) != nil
}

// previouslyReconciled reports whether the status was written after the child had been created.
func (c *child) previouslyReconciled() bool {
	lacksVerifier := c.kind.Verifier && slices.Contains(
		[]string{"", echov1.ReasonRollingOut, echov1.ReasonEveryNodeNotAllowed}, c.reason(echov1.ConditionVerified))
	lacksRoute := c.kind.OptionalAPI && slices.Contains(
		[]string{echov1.ReasonRouteNotCreated, echov1.ReasonRouteNotFound, echov1.ReasonRouteNotOverridable}, c.reason(echov1.ConditionRouted))
	observed := c.echo.Status.ObservedGeneration
	hasNewestStatus := observed == c.echo.Generation
	hasEveryChildOfTheKind := !c.kind.Conditional && observed > 0
	return !lacksVerifier && !lacksRoute && (hasNewestStatus || hasEveryChildOfTheKind)
}
