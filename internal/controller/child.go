package controller

import (
	"context"
	"errors"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/children"
	"github.com/kkloud-io/echo-operator/internal/status"
)

// child is one child in a reconciliation: what was found, and what the status reports about it.
type child struct {
	*reconciliation
	kind     children.Kind
	key      types.NamespacedName
	isWanted bool

	// object is the child as the API server last returned it. It is nil if the Echo controls none, or the child is being
	// deleted.
	object client.Object
	// failure is why the child does not have its desired state.
	failure *status.Failure
	// overridden holds the fields that admission changed, where the operator accepted the result.
	overridden *echov1.OverriddenChild
	// waiting is what the child waits for, without a failure.
	waiting string
	// terminating describes a child that is being deleted, and that the Echo wants.
	terminating string
}

// child returns the child of a kind. An administrator has to allow a verifier on every node.
func (rec *reconciliation) child(kind children.Kind) *child {
	isAllowed := rec.AllowEveryNodeVerification || !kind.Verifier || !children.WantsVerifierDaemonSet(rec.echo)
	key := types.NamespacedName{Namespace: rec.echo.Namespace, Name: kind.ChildName(rec.echo)}
	return &child{reconciliation: rec, kind: kind, key: key, isWanted: isAllowed && kind.Wanted(rec.echo)}
}

// reconcileChildren reconciles every child, even after the rejection of another one. Rejections become part of the
// observation. Of all other errors, it returns the first, or the first of the API server: that has its own back-off, which a
// cache that lags does not hide. The kinds are in the order of their dependencies: a verifier depends on the Deployment and
// on the Service.
func (rec *reconciliation) reconcileChildren(ctx context.Context) (failed error) {
	for _, kind := range children.Kinds {
		err := rec.child(kind).reconcileAndReport(ctx)
		if errors.Is(err, errStaleEcho) {
			return err // The other children would be written for the same stale Echo.
		}
		if isFirst := failed == nil || isStale(failed) && !isStale(err); err != nil && isFirst {
			failed = fmt.Errorf("reconcile %s: %w", kind.Name, err)
		}
	}
	return failed
}

// serviceLag is how long a node may take to apply a change of the Service: kube-proxy collects changes for a second.
const serviceLag = 2 * time.Second

// reconcileAndReport adds to the observation what the status depends on.
func (c *child) reconcileAndReport(ctx context.Context) (err error) {
	switch {
	case c.kind.OptionalAPI:
		err = c.reconcileRoute(ctx)
	case c.kind.Verifier:
		err = c.reconcileVerifier(ctx)
	default:
		err = c.reconcile(ctx)
		if c.waiting == "" && !c.kind.Conditional {
			c.waiting = c.terminating
		}
	}
	if c.failure != nil {
		c.observed.Rejected = append(c.observed.Rejected, *c.failure)
	}
	if c.overridden != nil {
		c.observed.Overridden = append(c.observed.Overridden, *c.overridden)
	}
	if c.waiting != "" {
		c.observed.Waiting = append(c.observed.Waiting, c.waiting)
	}
	switch object := c.object.(type) {
	case *appsv1.Deployment:
		if !c.kind.Verifier {
			c.observed.Deployment = object
		}
	case *corev1.Service:
		c.observed.Service, c.inputs.ClusterIPs = object, object.Spec.ClusterIPs // The input of verifiers, which come later.
		if lag := time.Until(c.memory.serviceChanged.Add(serviceLag)); lag > 0 {
			c.observed.Waiting = append(c.observed.Waiting, "Service: the nodes apply the change")
			c.requeue(lag)
		}
	}
	return err
}

// unwatchedPeriod is when to read a child again that the watch does not report, because it lacks the operator's label.
const unwatchedPeriod = 5 * time.Second

// reconcile brings the child to its desired state with at most one write. It returns an error if the API server did not
// respond, or if the cache lags behind.
func (c *child) reconcile(ctx context.Context) error {
	if c.readOnly {
		return c.observe(ctx)
	}
	live, err := c.find(ctx, c.isWanted)
	switch {
	case err != nil:
		return err
	case live != nil:
		err = c.reconcileLive(ctx, live)
	case c.isWanted:
		err = c.create(ctx)
	}
	if c.isWanted {
		c.reportRepeatedDrift()
	}
	return err
}

// reconcileLive is reconcile for an object that exists.
func (c *child) reconcileLive(ctx context.Context, live client.Object) error {
	// An orphan gets its owner reference with its desired state.
	isOwned := metav1.IsControlledBy(live, c.echo) || children.IsOrphan(live, c.echo)
	isWatched := live.GetLabels()[children.ManagedByLabel] == children.ManagedBy
	if isOwned && !isWatched {
		c.requeue(unwatchedPeriod)
	}
	switch {
	case !isOwned && !c.isWanted:
		return nil
	case !isOwned:
		c.reportOwner(live)
		return nil
	case !live.GetDeletionTimestamp().IsZero():
		c.terminating = deletion(c.kind, live, "") // The event of its end requeues the Echo.
		return nil
	case c.isWanted:
		return c.update(ctx, live)
	default:
		return c.remove(ctx, live)
	}
}

// observe finds the child without changing it.
func (c *child) observe(ctx context.Context) error {
	live, err := c.find(ctx, false)
	if live != nil && metav1.IsControlledBy(live, c.echo) && live.GetDeletionTimestamp() == nil {
		c.object = live
		if c.echo.Status.ObservedGeneration == c.echo.Generation {
			c.overridden = c.accepted()
		}
	}
	return err
}

// reconcileVerifier reconciles a verifier, once the newest spec is rolled out: so every result of the newest verifier is
// about that spec.
func (c *child) reconcileVerifier(ctx context.Context) (err error) {
	isOutdated := c.isWanted && (len(children.ClusterIPs(c.inputs)) == 0 || !status.Assess(c.echo, c.observed).IsUpdated)
	if isOutdated {
		err = c.observe(ctx)
	} else {
		err = c.reconcile(ctx)
	}
	if !c.kind.Wanted(c.echo) {
		return err
	}
	c.observed.Verification = &status.Verification{
		Object: c.object, Failure: c.failure, NotAllowed: !c.isWanted, Outdated: isOutdated, Waiting: c.terminating,
	}
	return err
}
