package controller

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/children"
	"github.com/kkloud-io/echo-operator/internal/informers"
	"github.com/kkloud-io/echo-operator/internal/status"
)

// child is what a reconciliation found or did about one kind of child.
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
	// slow is true if a write took long and failed.
	slow bool
	// outdated is true for a verifier that is not written yet for the newest spec.
	outdated bool
	// notServed is true if the API server does not serve the kind.
	notServed bool
}

// recreation is the correction that creates a child that was deleted.
const recreation = "recreation"

// desiredState returns a mutated copy of the live object, and whether the two differ. Usually they
// do not: comparing the encodings shows that in an eighth of the time of reflection. Encodings
// of equal objects may differ in notation, for example 1 and 1000m, so reflection decides then.
func desiredState(echo *echov1.Echo, c children.Kind, in children.Inputs, live client.Object) (desired client.Object, changed bool) {
	desired = live.DeepCopyObject().(client.Object)
	before := encode(desired)
	c.Mutate(desired, echo, in)
	if before != nil && bytes.Equal(before, encode(desired)) {
		return desired, false
	}
	return desired, !equality.Semantic.DeepEqual(live, desired)
}

// encode returns the protobuf encoding of the object, or nil for a type without one.
func encode(object client.Object) []byte {
	if o, is := object.(interface{ Marshal() ([]byte, error) }); is {
		encoding, _ := o.Marshal() // After an error, reflection decides.
		return encoding
	}
	return nil
}

// reconcileChild brings one child to its desired state with at most one write. It returns an
// error if the API server did not respond, or if the cache lags behind.
func (r *EchoReconciler) reconcileChild(ctx context.Context, echo *echov1.Echo, c children.Kind, in children.Inputs) (child, error) {
	wanted := r.wants(echo, c)
	live, err := r.find(ctx, echo, c, wanted)
	if err != nil {
		return child{}, err
	}
	if live == nil {
		if !wanted {
			return child{}, nil
		}
		created, existing, err := r.create(ctx, echo, c, in)
		if existing == nil {
			return created, err
		}
		live = existing
	}
	controller := metav1.GetControllerOf(live)
	switch {
	case controller == nil && children.IsOrphan(live, echo):
		// An owner reference is part of the desired state.
	case controller == nil || controller.UID != echo.UID:
		if !wanted {
			return child{}, nil
		}
		return r.notControlled(echo, c, live, controller), nil
	}
	switch {
	case !live.GetDeletionTimestamp().IsZero():
		return child{}, nil // The event of the deletion requeues the Echo.
	case !wanted:
		return r.remove(ctx, echo, c, live)
	}
	result, err := r.update(ctx, echo, c, in, live)
	if live.GetLabels()[children.ManagedByLabel] != children.ManagedBy {
		result.recheck = earliest(result.recheck, unwatchedRecheck)
	}
	return result, err
}

// unwatchedRecheck is when to read a child again that the watch does not report, because admission
// removed the operator's label.
const unwatchedRecheck = 5 * time.Second

// wants reports whether the Echo has a child of the kind. An administrator has to allow a verifier on
// every node.
func (r *EchoReconciler) wants(echo *echov1.Echo, c children.Kind) bool {
	return c.Wanted(echo) && (r.AllowEveryNodeVerification || !c.Verifier || !children.WantsVerifierDaemonSet(echo))
}

// find returns the object with the name of the child, or nil. The cache contains only objects
// with the operator's label, and only stubs of those that are not children. So an object that is
// missing there, or seems not to be controlled by the Echo, is read from the API server.
func (r *EchoReconciler) find(ctx context.Context, echo *echov1.Echo, c children.Kind, wanted bool) (client.Object, error) {
	object := client.Object(c.New())
	key := client.ObjectKey{Namespace: echo.Namespace, Name: c.ChildName(echo)}
	err := r.Client.Get(ctx, key, object)
	switch {
	case apierrors.IsNotFound(err):
		if !wanted || !previouslyReconciled(echo, c) && !r.pace.has(unwrittenStatus(echo)) {
			return nil, nil // Creating the child shows whether it exists.
		}
		if object, err = r.readLive(ctx, echo, c); object == nil && err == nil {
			err = r.checkNewest(ctx, echo) // The child may have been deleted together with its Echo.
		}
		return object, err
	case err != nil:
		return nil, err
	case metav1.IsControlledBy(object, echo):
		if informers.IsStub(object) {
			return r.readLive(ctx, echo, c)
		}
		return object, nil
	case !wanted:
		return nil, nil
	}
	return r.readLive(ctx, echo, c)
}

// readLive reads the child from the API server. It returns nil if there is none.
func (r *EchoReconciler) readLive(ctx context.Context, echo *echov1.Echo, c children.Kind) (client.Object, error) {
	object := client.Object(c.New())
	err := r.APIReader.Get(ctx, client.ObjectKey{Namespace: echo.Namespace, Name: c.ChildName(echo)}, object)
	if err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	return object, nil
}

// previouslyReconciled reports whether the status was written after the child had been created.
func previouslyReconciled(echo *echov1.Echo, c children.Kind) bool {
	if c.Verifier && !mayBeVerified(echo) {
		return false
	}
	observed := echo.Status.ObservedGeneration
	return observed == echo.Generation || observed > 0 && !c.Optional
}

// mayBeRecreation reports whether the operator may have created a child of the Echo before, so that
// repeated creations have to wait. A new Echo has no status, unless the status cannot be written.
func (r *EchoReconciler) mayBeRecreation(echo *echov1.Echo) bool {
	return echo.Status.ObservedGeneration > 0 || r.pace.has(unwrittenStatus(echo))
}

// errStaleEcho reports that the Echo in the cache has since been changed or deleted.
var errStaleEcho = errors.New("the cache lags behind the Echo")

// checkNewest reads the Echo from the API server, and returns errStaleEcho if the cached Echo is
// out of date. It is called only if a child indicates that.
func (r *EchoReconciler) checkNewest(ctx context.Context, echo *echov1.Echo) error {
	var newest echov1.Echo
	err := r.APIReader.Get(ctx, client.ObjectKeyFromObject(echo), &newest)
	if apierrors.IsNotFound(err) || err == nil &&
		(newest.UID != echo.UID || newest.Generation != echo.Generation || newest.DeletionTimestamp != nil) {
		return errStaleEcho
	}
	return err
}

// checkNotNewer returns an error if the child was already written for a newer generation than
// that of the cached Echo: a write would revert the child. Other clients can change the
// annotation, so checkNewest decides.
func (r *EchoReconciler) checkNotNewer(ctx context.Context, echo *echov1.Echo, live client.Object) error {
	if children.Generation(live) <= echo.Generation {
		return nil
	}
	return r.checkNewest(ctx, echo)
}

// create creates the child. If the child exists, it returns the existing object.
func (r *EchoReconciler) create(ctx context.Context, echo *echov1.Echo, c children.Kind, in children.Inputs) (created child, existing client.Object, err error) {
	correction := ""
	if r.mayBeRecreation(echo) {
		correction = recreation
	}
	if paused, failure := r.paused(echo, c, correction); paused > 0 {
		return child{failure: failure, recheck: paused}, nil, nil
	}
	object := client.Object(c.New())
	object.SetNamespace(echo.Namespace)
	object.SetName(c.ChildName(echo))
	c.Mutate(object, echo, in)
	children.SetGeneration(object, echo.Generation)
	start := time.Now()
	if err := call(ctx, func() error { return r.Client.Create(ctx, object) }); err != nil {
		// Admission may reject the creation of an object that exists.
		took := time.Since(start)
		existing, readErr := r.readLive(ctx, echo, c)
		if existing != nil || readErr != nil {
			return child{}, existing, readErr
		}
		rejected, err := r.rejected(echo, c, err, took)
		return rejected, nil, err
	}
	r.ownWrites.wrote(echo, c.ObjectKind, object)
	log.FromContext(ctx).Info("Created "+c.Name, "child", object.GetName())
	if previouslyReconciled(echo, c) && !meta.IsStatusConditionTrue(echo.Status.Conditions, echov1.ConditionDegraded) {
		r.Metrics.CountCorrection(c.Name)
	}
	created, err = r.written(echo, c, in, object, correction)
	return created, nil, err
}

// update writes the child if it differs from its desired state, based on the version that was
// read. If the write is rejected, the child keeps the live object.
func (r *EchoReconciler) update(ctx context.Context, echo *echov1.Echo, c children.Kind, in children.Inputs, live client.Object) (child, error) {
	desired, changed := desiredState(echo, c, in, live)
	if !changed {
		return child{object: live}, nil
	}
	return r.patch(ctx, echo, c, in, live, desired)
}

// patch writes the difference between the live child and its desired state, unless the operator
// has accepted this difference for this generation of the Echo, or has to wait.
func (r *EchoReconciler) patch(ctx context.Context, echo *echov1.Echo, c children.Kind, in children.Inputs, live, desired client.Object) (child, error) {
	record := accepted(echo, c.Name)
	unchanged := child{object: live, overridden: record}
	acceptedNow := record != nil && echo.Status.ObservedGeneration == echo.Generation // For this generation.
	drifted := acceptedNow || children.Generation(live) == echo.Generation
	correction := ""
	if record != nil || drifted {
		difference, err := compare(c, live, desired)
		if err != nil {
			return unchanged, err
		}
		if acceptedNow && record.Hash == difference.hash {
			return unchanged, nil
		}
		if drifted {
			correction = strings.Join(difference.fields, ", ")
		}
	}
	if paused, failure := r.paused(echo, c, correction); paused > 0 {
		unchanged.failure, unchanged.recheck = failure, paused
		if correction != "" && failure == nil && !c.Optional { // Meanwhile, clients may receive another answer.
			unchanged.waiting = c.Name + ": the operator pauses before it reverts an external change of " + correction
		}
		return unchanged, nil
	}
	if err := r.checkNotNewer(ctx, echo, live); err != nil {
		return unchanged, err
	}
	children.SetGeneration(desired, echo.Generation)
	patch, err := lockedPatch(live, desired)
	if err != nil {
		return unchanged, err
	}
	object := live.DeepCopyObject().(client.Object)
	start := time.Now()
	if err := call(ctx, func() error { return r.Client.Patch(ctx, object, patch) }); err != nil {
		rejected, err := r.rejectedUpdate(ctx, echo, c, live, err, time.Since(start))
		rejected.object, rejected.overridden = live, record
		return rejected, err
	}
	r.ownWrites.wrote(echo, c.ObjectKind, object)
	log.FromContext(ctx).Info("Updated "+c.Name, "child", live.GetName())
	if drifted {
		r.Metrics.CountCorrection(c.Name)
	} else if _, is := object.(*corev1.Service); is {
		r.pace.wrote(serviceChange(echo), echo.Generation, childBurst)
	}
	return r.written(echo, c, in, object, correction)
}

// written compares the object that a write returned with its desired state. Admission would change
// it again, so an immediate retry has no effect. A correction names the drift that was reverted.
func (r *EchoReconciler) written(echo *echov1.Echo, c children.Kind, in children.Inputs, object client.Object, correction string) (child, error) {
	t := targetOf(echo, c.Name)
	desired, changed := desiredState(echo, c, in, object)
	var difference changes
	if changed {
		var err error
		if difference, err = compare(c, object, desired); err != nil {
			return child{object: object}, err
		}
	}
	if len(difference.answer) > 0 {
		failure := mutatedByAdmission(c, difference)
		r.pace.failed(t, echo.Generation, failure)
		paused, _ := r.pace.wait(t, echo.Generation)
		return child{object: object, failure: failure, recheck: paused}, nil
	}
	if correction != "" {
		r.pace.wrote(t, echo.Generation, childBurst)
		r.pace.wrote(correctionOf(echo, c, correction), echo.Generation, correctionBurst)
	} else {
		r.pace.forget(t)
	}
	if changed {
		return child{object: object, overridden: difference.overridden(c.Name)}, nil
	}
	return child{object: object}, nil
}

// remove deletes a child that is not wanted, in the version that was read.
func (r *EchoReconciler) remove(ctx context.Context, echo *echov1.Echo, c children.Kind, live client.Object) (child, error) {
	if paused, failure := r.paused(echo, c, ""); paused > 0 {
		return child{failure: failure, recheck: paused}, nil
	}
	if err := r.checkNotNewer(ctx, echo, live); err != nil {
		return child{}, err
	}
	uid, version := live.GetUID(), live.GetResourceVersion()
	start := time.Now()
	err := call(ctx, func() error {
		return r.Client.Delete(ctx, live, client.Preconditions{UID: &uid, ResourceVersion: &version})
	})
	if err != nil {
		return r.rejectedUpdate(ctx, echo, c, live, err, time.Since(start))
	}
	log.FromContext(ctx).Info("Deleted "+c.Name, "child", live.GetName())
	return child{}, nil
}
