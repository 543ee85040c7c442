package controller

import (
	"context"
	"errors"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/children"
	"github.com/kkloud-io/echo-operator/internal/informers"
	"github.com/kkloud-io/echo-operator/internal/status"
)

// child is what a pass found or did about one child.
type child struct {
	// object is the child as the API server last returned it. It is nil if the Echo controls
	// none, or the child is being deleted.
	object client.Object
	// failure is why the child does not have its desired state.
	failure *status.Failure
	// overridden has the fields that admission changed, where the operator accepted the result.
	overridden *echov1.OverriddenChild
	// waiting is what the child waits for, without a failure.
	waiting string
	// recheck is when to reconcile again without an event. 0 means that events suffice.
	recheck time.Duration
}

// unwatchedRecheck is when to read a child again that the watch does not report, because it lacks the operator's label.
const unwatchedRecheck = 5 * time.Second

// reconcileChild brings one child to its desired state with at most one write. It returns an
// error if the API server did not respond, or if the cache lags behind.
func (p *pass) reconcileChild(ctx context.Context, kind children.Kind) (child, error) {
	if p.readOnly {
		return p.observeChild(ctx, kind)
	}
	live, err := p.find(ctx, kind, p.wants(kind))
	switch {
	case err != nil:
		return child{}, err
	case live != nil:
		return p.reconcileLive(ctx, kind, live)
	case p.wants(kind):
		return p.create(ctx, kind)
	default:
		return child{}, nil
	}
}

// reconcileLive is reconcileChild for an object that exists.
func (p *pass) reconcileLive(ctx context.Context, kind children.Kind, live client.Object) (c child, err error) {
	// An orphan gets its owner reference with its desired state.
	owned := metav1.IsControlledBy(live, p.echo) || children.IsOrphan(live, p.echo)
	switch {
	case !owned && !p.wants(kind):
		return child{}, nil
	case !owned:
		return p.notControlled(kind, live), nil
	case !live.GetDeletionTimestamp().IsZero():
		// The event of the deletion requeues the Echo.
	case p.wants(kind):
		c, err = p.update(ctx, kind, live)
	default:
		return p.remove(ctx, kind, live)
	}
	if isWatched := live.GetLabels()[children.ManagedByLabel] == children.ManagedBy; !isWatched {
		c.recheck = earliest(c.recheck, unwatchedRecheck)
	}
	return c, err
}

// observeChild returns the child without changing it.
func (p *pass) observeChild(ctx context.Context, kind children.Kind) (child, error) {
	live, err := p.find(ctx, kind, false)
	if err != nil {
		return child{}, err
	}
	exists := live != nil && metav1.IsControlledBy(live, p.echo) && live.GetDeletionTimestamp() == nil
	if !exists {
		return child{}, nil
	}
	return child{object: live}, nil
}

// find returns the object with the name of the child, or nil. The cache contains only objects
// with the operator's label, and only stubs of those that are not children. So an object that is
// missing there, or seems not to be controlled by the Echo, is read from the API server.
func (p *pass) find(ctx context.Context, kind children.Kind, wanted bool) (client.Object, error) {
	object := client.Object(kind.New())
	err := p.Client.Get(ctx, client.ObjectKey{Namespace: p.echo.Namespace, Name: kind.ChildName(p.echo)}, object)
	switch {
	case apierrors.IsNotFound(err):
		return p.findUncached(ctx, kind, wanted)
	case err != nil:
		return nil, err
	}
	isControlled := metav1.IsControlledBy(object, p.echo)
	switch {
	case isControlled && !informers.IsStub(object):
		return object, nil
	case isControlled, wanted:
		return p.readLive(ctx, kind)
	default:
		return nil, nil
	}
}

// findUncached is find for a child that the cache lacks.
func (p *pass) findUncached(ctx context.Context, kind children.Kind, wanted bool) (client.Object, error) {
	if isExpected := wanted && (p.previouslyReconciled(kind) || p.hasUnwrittenStatus()); !isExpected {
		return nil, nil // Creating the child shows whether it exists.
	}
	object, err := p.readLive(ctx, kind)
	if object == nil && err == nil {
		err = p.checkNewest(ctx) // The child may have been deleted together with its Echo.
	}
	return object, err
}

// readLive reads the child from the API server. It returns nil if there is none.
func (p *pass) readLive(ctx context.Context, kind children.Kind) (client.Object, error) {
	object := client.Object(kind.New())
	err := p.APIReader.Get(ctx, client.ObjectKey{Namespace: p.echo.Namespace, Name: kind.ChildName(p.echo)}, object)
	if err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	return object, nil
}

// previouslyReconciled reports whether the status was written after the child had been created.
func (p *pass) previouslyReconciled(kind children.Kind) bool {
	if kind.Verifier && !mayBeVerified(p.echo) {
		return false
	}
	observed := p.echo.Status.ObservedGeneration
	return observed == p.echo.Generation || observed > 0 && !kind.Optional
}

// hasUnwrittenStatus reports whether a write of the status failed recently, for example because the Echo no longer
// exists. Then the operator may have created the child, although the status does not say so.
func (p *pass) hasUnwrittenStatus() bool { return p.backoff.HasFailed(unwrittenStatus(p.echo)) }

// mayBeVerified reports whether a verifier may have existed when the status was written.
func mayBeVerified(echo *echov1.Echo) bool {
	verified := meta.FindStatusCondition(echo.Status.Conditions, echov1.ConditionVerified)
	return verified != nil && verified.Reason != echov1.ReasonRollingOut && verified.Reason != echov1.ReasonEveryNodeNotAllowed
}

// errStaleEcho reports that the Echo in the cache has since been changed or deleted.
var errStaleEcho = errors.New("the cache lags behind the Echo")

// checkNewest reads the Echo from the API server, and returns errStaleEcho if the cached Echo is
// out of date. It is called only if a child indicates that.
func (p *pass) checkNewest(ctx context.Context) error {
	var newest echov1.Echo
	err := p.APIReader.Get(ctx, client.ObjectKeyFromObject(p.echo), &newest)
	if apierrors.IsNotFound(err) {
		return errStaleEcho
	}
	if err != nil {
		return err
	}
	isNewest := newest.UID == p.echo.UID && newest.Generation == p.echo.Generation && newest.DeletionTimestamp == nil
	if !isNewest {
		return errStaleEcho
	}
	return nil
}

// checkNotNewer returns an error if the child was already written for a newer generation than
// that of the cached Echo: a write would revert the child. Other clients can change the
// annotation, so checkNewest decides.
func (p *pass) checkNotNewer(ctx context.Context, live client.Object) error {
	if children.Generation(live) <= p.echo.Generation {
		return nil
	}
	return p.checkNewest(ctx)
}

// recreation is the correction that creates a child that was deleted.
const recreation = "recreation"

// create creates the child, or reconciles it if it exists.
func (p *pass) create(ctx context.Context, kind children.Kind) (child, error) {
	correction := ""
	if mayBeRecreation := p.echo.Status.ObservedGeneration > 0 || p.hasUnwrittenStatus(); mayBeRecreation {
		correction = recreation
	}
	if paused, failure := p.paused(kind, correction); paused > 0 {
		return child{failure: failure, recheck: paused}, nil
	}
	object := client.Object(kind.New())
	object.SetNamespace(p.echo.Namespace)
	object.SetName(kind.ChildName(p.echo))
	kind.Mutate(object, p.echo, p.inputs)
	children.SetGeneration(object, p.echo.Generation)
	start := time.Now()
	if err := p.Client.Create(ctx, object); err != nil {
		took := time.Since(start)
		existing, readErr := p.readLive(ctx, kind) // Admission may reject the creation of an object that exists.
		switch {
		case readErr != nil:
			return child{}, readErr
		case existing != nil:
			return p.reconcileLive(ctx, kind, existing)
		default:
			return p.rejected(kind, err, took)
		}
	}
	p.expectEvent(kind, object, "")
	log.FromContext(ctx).Info("Created "+kind.Name, "child", object.GetName())
	isRepair := p.previouslyReconciled(kind) && !meta.IsStatusConditionTrue(p.echo.Status.Conditions, echov1.ConditionDegraded)
	if isRepair {
		p.Metrics.CountCorrection(kind.Name)
	}
	return p.written(kind, object, correction)
}

func (p *pass) expectEvent(kind children.Kind, written client.Object, basedOn string) {
	p.expectations.Expect(client.ObjectKeyFromObject(p.echo), kind.ObjectKind, written, basedOn)
}

// difference is what is known about a difference between a child and its desired state.
type difference struct {
	// isDrift is true if somebody else has changed the child since the operator wrote it for this generation.
	isDrift bool
	// correction names the fields of a drift.
	correction string
	// isAccepted is true if the operator has accepted the difference for this generation of the Echo.
	isAccepted bool
}

func (p *pass) differenceOf(kind children.Kind, live, desired client.Object) (d difference, err error) {
	accepted := p.accepted(kind)
	isAcceptedNow := accepted != nil && p.echo.Status.ObservedGeneration == p.echo.Generation
	d.isDrift = isAcceptedNow || children.Generation(live) == p.echo.Generation
	if !d.isDrift {
		return d, nil
	}
	compared, err := children.Compare(kind, live, desired)
	d.correction = strings.Join(compared.Fields, ", ")
	d.isAccepted = isAcceptedNow && accepted.Hash == compared.Hash
	return d, err
}

// accepted returns the record of accepted changes of the child in the Echo's status, or nil.
func (p *pass) accepted(kind children.Kind) *echov1.OverriddenChild {
	for i := range p.echo.Status.Overridden {
		if record := &p.echo.Status.Overridden[i]; record.Kind == kind.Name {
			return record
		}
	}
	return nil
}

// update writes the child if it differs from its desired state, unless the operator has accepted the difference, or
// has to wait.
func (p *pass) update(ctx context.Context, kind children.Kind, live client.Object) (child, error) {
	desired, changed := children.Desired(kind, live, p.echo, p.inputs)
	if !changed {
		return child{object: live}, nil
	}
	unchanged := child{object: live, overridden: p.accepted(kind)}
	difference, err := p.differenceOf(kind, live, desired)
	if err != nil || difference.isAccepted {
		return unchanged, err
	}
	if paused, failure := p.paused(kind, difference.correction); paused > 0 {
		unchanged.failure, unchanged.recheck = failure, paused
		changesResponse := difference.correction != "" && !kind.Optional
		if failure == nil && changesResponse {
			unchanged.waiting = kind.Name + ": the operator pauses before it reverts an external change of " + difference.correction
		}
		return unchanged, nil
	}
	if err := p.checkNotNewer(ctx, live); err != nil {
		return unchanged, err
	}
	return p.patch(ctx, kind, live, desired, difference)
}

// patch writes the difference between the live child and its desired state, based on the version that was read.
// If the write is rejected, the child keeps the live object.
func (p *pass) patch(ctx context.Context, kind children.Kind, live, desired client.Object, difference difference) (child, error) {
	children.SetGeneration(desired, p.echo.Generation)
	patch, err := children.LockedPatch(live, desired)
	if err != nil {
		return child{object: live}, err
	}
	object := live.DeepCopyObject().(client.Object)
	start := time.Now()
	if err := p.Client.Patch(ctx, object, client.RawPatch(types.JSONPatchType, patch)); err != nil {
		rejected, err := p.rejectedUpdate(ctx, kind, live, err, time.Since(start))
		rejected.object, rejected.overridden = live, p.accepted(kind)
		return rejected, err
	}
	p.expectEvent(kind, object, live.GetResourceVersion())
	log.FromContext(ctx).Info("Updated "+kind.Name, "child", live.GetName())
	_, isService := object.(*corev1.Service)
	switch {
	case difference.isDrift:
		p.Metrics.CountCorrection(kind.Name)
	case isService:
		p.backoff.Succeeded(serviceChange(p.echo), p.echo.Generation, childBurst)
	}
	return p.written(kind, object, difference.correction)
}

// written compares the object that a write returned with its desired state. Admission would change
// it again, so an immediate retry has no effect. A correction names the drift that was reverted.
func (p *pass) written(kind children.Kind, object client.Object, correction string) (child, error) {
	result := child{object: object}
	if desired, changed := children.Desired(kind, object, p.echo, p.inputs); changed {
		difference, err := children.Compare(kind, object, desired)
		if err != nil {
			return result, err
		}
		if len(difference.AnswerFields) > 0 {
			return p.mutatedByAdmission(kind, object, difference), nil
		}
		result.overridden = difference.Overridden(kind.Name)
	}
	p.succeeded(kind, correction)
	return result, nil
}

// remove deletes a child that is not wanted, in the version that was read.
func (p *pass) remove(ctx context.Context, kind children.Kind, live client.Object) (child, error) {
	if paused, failure := p.paused(kind, ""); paused > 0 {
		return child{failure: failure, recheck: paused}, nil
	}
	if err := p.checkNotNewer(ctx, live); err != nil {
		return child{}, err
	}
	uid, version := live.GetUID(), live.GetResourceVersion()
	start := time.Now()
	if err := p.Client.Delete(ctx, live, client.Preconditions{UID: &uid, ResourceVersion: &version}); err != nil {
		return p.rejectedUpdate(ctx, kind, live, err, time.Since(start))
	}
	log.FromContext(ctx).Info("Deleted "+kind.Name, "child", live.GetName())
	return child{}, nil
}
