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
)

// unwatchedRecheck is when to read a child again that the watch does not report, because it lacks the operator's label.
const unwatchedRecheck = 5 * time.Second

// reconcileChild brings one child to its desired state with at most one write. It returns an
// error if the API server did not respond, or if the cache lags behind.
func (rec *reconciliation) reconcileChild(ctx context.Context, kind children.Kind) (outcome, error) {
	if rec.readOnly {
		return rec.observeChild(ctx, kind)
	}
	live, err := rec.find(ctx, kind, rec.wants(kind))
	switch {
	case err != nil:
		return outcome{}, err
	case live != nil:
		return rec.reconcileLive(ctx, kind, live)
	case rec.wants(kind):
		return rec.create(ctx, kind)
	default:
		return outcome{}, nil
	}
}

// reconcileLive is reconcileChild for an object that exists.
func (rec *reconciliation) reconcileLive(ctx context.Context, kind children.Kind, live client.Object) (result outcome, err error) {
	// An orphan gets its owner reference with its desired state.
	owned := metav1.IsControlledBy(live, rec.echo) || children.IsOrphan(live, rec.echo)
	switch {
	case !owned && !rec.wants(kind):
		return outcome{}, nil
	case !owned:
		return rec.notControlled(kind, live), nil
	case !live.GetDeletionTimestamp().IsZero():
		result.terminating = deletion(kind, live, "") // The event of its end requeues the Echo.
	case rec.wants(kind):
		result, err = rec.update(ctx, kind, live)
	default:
		return rec.remove(ctx, kind, live)
	}
	if isWatched := live.GetLabels()[children.ManagedByLabel] == children.ManagedBy; !isWatched {
		result.recheck = earliest(result.recheck, unwatchedRecheck)
	}
	return result, err
}

// observeChild returns the child without changing it.
func (rec *reconciliation) observeChild(ctx context.Context, kind children.Kind) (outcome, error) {
	live, err := rec.find(ctx, kind, false)
	if err != nil {
		return outcome{}, err
	}
	exists := live != nil && metav1.IsControlledBy(live, rec.echo) && live.GetDeletionTimestamp() == nil
	if !exists {
		return outcome{}, nil
	}
	return outcome{object: live}, nil
}

// find returns the object with the name of the child, or nil. The cache contains only objects
// with the operator's label, and only stubs of those that are not children or too large. So an object that is
// missing there, or that the Echo does not seem to control, is read from the API server if the Echo is to have it.
func (rec *reconciliation) find(ctx context.Context, kind children.Kind, isToExist bool) (client.Object, error) {
	object := client.Object(kind.New())
	err := rec.Client.Get(ctx, client.ObjectKey{Namespace: rec.echo.Namespace, Name: kind.ChildName(rec.echo)}, object)
	switch {
	case apierrors.IsNotFound(err):
		return rec.findUncached(ctx, kind, isToExist)
	case err != nil:
		return nil, err
	}
	isControlled := metav1.IsControlledBy(object, rec.echo)
	isComplete := isControlled && !informers.IsStub(object)
	mayBeChild := isControlled || isToExist
	switch {
	case isComplete:
		return object, nil
	case mayBeChild:
		return rec.readLive(ctx, kind)
	default:
		return nil, nil
	}
}

// findUncached is find for a child that the cache lacks.
func (rec *reconciliation) findUncached(ctx context.Context, kind children.Kind, isToExist bool) (client.Object, error) {
	if !isToExist {
		if rec.readOnly || rec.wants(kind) || !rec.mayBeLeft(kind) {
			return nil, nil
		}
		return rec.readLive(ctx, kind) // Somebody may have changed the label by which the cache selects.
	}
	mayExist := rec.previouslyReconciled(kind) || rec.hasUnwrittenStatus()
	if !mayExist {
		return nil, nil // Creating the child shows whether it exists.
	}
	object, err := rec.readLive(ctx, kind)
	if object == nil && err == nil {
		err = rec.checkNewest(ctx) // The child may have been deleted together with its Echo.
	}
	return object, err
}

// readLive reads the child from the API server. It returns nil if there is none.
func (rec *reconciliation) readLive(ctx context.Context, kind children.Kind) (client.Object, error) {
	object := client.Object(kind.New())
	err := rec.APIReader.Get(ctx, client.ObjectKey{Namespace: rec.echo.Namespace, Name: kind.ChildName(rec.echo)}, object)
	if err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	return object, nil
}

// mayBeLeft reports whether an earlier spec may have left a child that is no longer wanted. The status says so until it
// is written without the child: before that, the operator deletes the child, or the status reports why it cannot.
func (rec *reconciliation) mayBeLeft(kind children.Kind) bool {
	reported := rec.echo.Status
	degraded := meta.FindStatusCondition(reported.Conditions, echov1.ConditionDegraded)
	isRejected := degraded != nil && degraded.Reason == echov1.ReasonRejected
	isNotAllowed := kind.Wanted(rec.echo) // But not by the administrator.
	isOutdated := reported.ObservedGeneration != rec.echo.Generation || isNotAllowed
	switch {
	case isRejected, !isOutdated:
		return isRejected
	case kind.OptionalAPI:
		return isRouted(rec.echo)
	case kind.Verifier:
		return mayBeVerified(rec.echo)
	default:
		return hadReplicas(rec.echo)
	}
}

// hadReplicas reports whether the Echo had more than one replica when its status was written.
func hadReplicas(echo *echov1.Echo) bool {
	_, replicas, _ := strings.Cut(echo.Status.Ready, "/")
	return replicas != "" && replicas != "1"
}

// previouslyReconciled reports whether the status was written after the child had been created.
func (rec *reconciliation) previouslyReconciled(kind children.Kind) bool {
	if kind.Verifier && !mayBeVerified(rec.echo) {
		return false
	}
	observed := rec.echo.Status.ObservedGeneration
	hasNewestStatus := observed == rec.echo.Generation
	hasEveryChildOfTheKind := !kind.Conditional && observed > 0
	return hasNewestStatus || hasEveryChildOfTheKind
}

// hasUnwrittenStatus reports whether a write of the status failed recently, for example because the Echo no longer
// exists. Then the operator may have created the child, although the status does not say so.
func (rec *reconciliation) hasUnwrittenStatus() bool {
	return rec.backoff.HasFailed(unwrittenStatus(rec.echo))
}

// mayBeVerified reports whether a verifier may have existed when the status was written.
func mayBeVerified(echo *echov1.Echo) bool {
	verified := meta.FindStatusCondition(echo.Status.Conditions, echov1.ConditionVerified)
	return verified != nil && verified.Reason != echov1.ReasonRollingOut && verified.Reason != echov1.ReasonEveryNodeNotAllowed
}

// errStaleEcho reports that the Echo in the cache has since been changed or deleted.
var errStaleEcho = errors.New("the cache lags behind the Echo")

// checkNewest reads the Echo from the API server, and returns errStaleEcho if the cached Echo is
// out of date. It is called only if a child indicates that.
func (rec *reconciliation) checkNewest(ctx context.Context) error {
	var newest echov1.Echo
	err := rec.APIReader.Get(ctx, client.ObjectKeyFromObject(rec.echo), &newest)
	if apierrors.IsNotFound(err) {
		return errStaleEcho
	}
	if err != nil {
		return err
	}
	isNewest := newest.UID == rec.echo.UID && newest.Generation == rec.echo.Generation && newest.DeletionTimestamp == nil
	if !isNewest {
		return errStaleEcho
	}
	return nil
}

// checkNotNewer returns an error if the child was already written for a newer generation than
// that of the cached Echo: a write would revert the child. Other clients can change the
// annotation, so checkNewest decides.
func (rec *reconciliation) checkNotNewer(ctx context.Context, live client.Object) error {
	if children.Generation(live) <= rec.echo.Generation {
		return nil
	}
	return rec.checkNewest(ctx)
}

// recreation is the correction that creates a child that was deleted.
const recreation = "recreation"

// create creates the child, or reconciles it if it exists.
func (rec *reconciliation) create(ctx context.Context, kind children.Kind) (outcome, error) {
	correction := ""
	if mayBeRecreation := rec.echo.Status.ObservedGeneration > 0 || rec.hasUnwrittenStatus(); mayBeRecreation {
		correction = recreation
	}
	if paused, failure := rec.paused(kind, correction); paused > 0 {
		return outcome{failure: failure, recheck: paused}, nil
	}
	object := client.Object(kind.New())
	object.SetNamespace(rec.echo.Namespace)
	object.SetName(kind.ChildName(rec.echo))
	kind.Mutate(object, rec.echo, rec.inputs)
	children.SetGeneration(object, rec.echo.Generation)
	start := time.Now()
	if err := rec.Client.Create(ctx, object); err != nil {
		took := time.Since(start)
		existing, readErr := rec.readLive(ctx, kind) // Admission may reject the creation of an object that exists.
		switch {
		case readErr != nil:
			return outcome{}, readErr
		case existing != nil:
			return rec.reconcileLive(ctx, kind, existing)
		default:
			return rec.rejected(kind, err, took)
		}
	}
	rec.expectEvent(kind, object, "")
	log.FromContext(ctx).Info("Created "+kind.Name, "child", object.GetName())
	isRepair := rec.previouslyReconciled(kind) && !meta.IsStatusConditionTrue(rec.echo.Status.Conditions, echov1.ConditionDegraded)
	if isRepair {
		rec.Metrics.CountCorrection(kind.Name)
	}
	return rec.written(kind, object, correction)
}

func (rec *reconciliation) expectEvent(kind children.Kind, written client.Object, basedOn string) {
	rec.expectations.Expect(client.ObjectKeyFromObject(rec.echo), kind.ObjectKind, written, basedOn)
}

// drift is what somebody else has changed since the operator wrote the child for this generation of the Echo.
type drift struct {
	isDrift bool
	// correction names the fields.
	correction string
	// isAccepted is true if the operator has accepted exactly this change, by admission, for this generation.
	isAccepted bool
}

func (rec *reconciliation) driftOf(kind children.Kind, live, desired client.Object) (d drift, err error) {
	accepted := rec.accepted(kind)
	isAcceptedNow := accepted != nil && rec.echo.Status.ObservedGeneration == rec.echo.Generation
	d.isDrift = isAcceptedNow || children.Generation(live) == rec.echo.Generation
	if !d.isDrift {
		return d, nil
	}
	compared, err := children.Compare(kind, live, desired)
	d.correction = strings.Join(compared.Fields, ", ")
	d.isAccepted = isAcceptedNow && accepted.Hash == compared.Hash
	return d, err
}

// accepted returns the record of accepted changes of the child in the Echo's status, or nil.
func (rec *reconciliation) accepted(kind children.Kind) *echov1.OverriddenChild {
	for i := range rec.echo.Status.Overridden {
		if record := &rec.echo.Status.Overridden[i]; record.Kind == kind.Name {
			return record
		}
	}
	return nil
}

// update writes the child if it differs from its desired state, unless the operator has accepted the difference, or
// has to wait.
func (rec *reconciliation) update(ctx context.Context, kind children.Kind, live client.Object) (outcome, error) {
	desired, changed := children.Desired(kind, live, rec.echo, rec.inputs)
	if !changed {
		return outcome{object: live}, nil
	}
	unwritten := outcome{object: live, overridden: rec.accepted(kind)}
	drift, err := rec.driftOf(kind, live, desired)
	if err != nil || drift.isAccepted {
		return unwritten, err
	}
	if paused, failure := rec.paused(kind, drift.correction); paused > 0 {
		unwritten.failure, unwritten.recheck = failure, paused
		mayServeAnotherResponse := drift.correction != "" && !kind.Conditional
		if failure == nil && mayServeAnotherResponse {
			unwritten.waiting = kind.Name + ": the operator pauses before it reverts an external change of " + drift.correction
		}
		return unwritten, nil
	}
	if err := rec.checkNotNewer(ctx, live); err != nil {
		return unwritten, err
	}
	return rec.patch(ctx, kind, live, desired, drift)
}

// patch writes the difference between the live child and its desired state, based on the version that was read.
// If the write is rejected, the child keeps the live object.
func (rec *reconciliation) patch(ctx context.Context, kind children.Kind, live, desired client.Object, drift drift) (outcome, error) {
	children.SetGeneration(desired, rec.echo.Generation)
	patch, err := children.LockedPatch(live, desired)
	if err != nil {
		return outcome{object: live}, err
	}
	object := live.DeepCopyObject().(client.Object)
	start := time.Now()
	if err := rec.Client.Patch(ctx, object, client.RawPatch(types.JSONPatchType, patch)); err != nil {
		rejected, err := rec.rejectedUpdate(ctx, kind, live, err, time.Since(start))
		rejected.object, rejected.overridden = live, rec.accepted(kind)
		return rejected, err
	}
	rec.expectEvent(kind, object, live.GetResourceVersion())
	log.FromContext(ctx).Info("Updated "+kind.Name, "child", live.GetName())
	_, isService := object.(*corev1.Service)
	switch {
	case drift.isDrift:
		rec.Metrics.CountCorrection(kind.Name)
	case isService:
		rec.serviceChanged()
	}
	return rec.written(kind, object, drift.correction)
}

// written compares the object that a write returned with its desired state. Admission would change
// it again, so an immediate retry has no effect. A correction names the drift that was reverted.
func (rec *reconciliation) written(kind children.Kind, object client.Object, correction string) (outcome, error) {
	result := outcome{object: object}
	if desired, changed := children.Desired(kind, object, rec.echo, rec.inputs); changed {
		difference, err := children.Compare(kind, object, desired)
		if err != nil {
			return result, err
		}
		if len(difference.ResponseFields) > 0 {
			return rec.mutatedByAdmission(kind, object, difference), nil
		}
		result.overridden = difference.Overridden(kind.Name)
	}
	rec.succeeded(kind, correction)
	return result, nil
}

// remove deletes a child that is not wanted, in the version that was read.
func (rec *reconciliation) remove(ctx context.Context, kind children.Kind, live client.Object) (outcome, error) {
	if paused, failure := rec.paused(kind, ""); paused > 0 {
		return outcome{failure: failure, recheck: paused}, nil
	}
	if err := rec.checkNotNewer(ctx, live); err != nil {
		return outcome{}, err
	}
	uid, version := live.GetUID(), live.GetResourceVersion()
	start := time.Now()
	if err := rec.Client.Delete(ctx, live, client.Preconditions{UID: &uid, ResourceVersion: &version}); err != nil {
		return rec.rejectedUpdate(ctx, kind, live, err, time.Since(start))
	}
	log.FromContext(ctx).Info("Deleted "+kind.Name, "child", live.GetName())
	return outcome{}, nil
}
