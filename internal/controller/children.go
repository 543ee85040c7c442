package controller

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/children"
)

// notControlledError reports that an object with the name of the child is not controlled by
// the Echo.
type notControlledError struct {
	kind   string
	object client.Object
}

func (e *notControlledError) Error() string {
	controller := "none"
	if ref := metav1.GetControllerOf(e.object); ref != nil {
		controller = fmt.Sprintf("%s %s, UID %s", ref.Kind, ref.Name, ref.UID)
	}
	return fmt.Sprintf("%s %s exists and is not controlled by this Echo (controller: %s): delete or rename it",
		e.kind, e.object.GetName(), controller)
}

// mutatedByAdmissionError reports that admission changed fields that the operator had written.
// Admission would change them again, so an immediate retry has no effect.
type mutatedByAdmissionError struct {
	kind string
	// patch contains the values that the operator had written.
	patch []byte
}

func (e *mutatedByAdmissionError) Error() string {
	return fmt.Sprintf("%s: an admission policy or webhook changed it; the operator had written %s", e.kind, e.patch)
}

// desiredState returns a mutated copy of the live object, and whether the two differ. Usually they
// do not: comparing the encodings shows that in an eighth of the time of reflection. Encodings
// of equal objects may differ in notation, for example 1 and 1000m, so reflection decides then.
func (r *EchoReconciler) desiredState(echo *echov1.Echo, c children.Kind, live client.Object) (desired client.Object, changed bool) {
	desired = live.DeepCopyObject().(client.Object)
	before := encode(desired)
	c.Mutate(desired, echo, r.ServerImage)
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

// mutatedByAdmission returns an error if the object that a write returned differs from the
// desired state.
func (r *EchoReconciler) mutatedByAdmission(echo *echov1.Echo, c children.Kind, written client.Object) error {
	desired, changed := r.desiredState(echo, c, written)
	if !changed {
		return nil
	}
	patch, err := client.StrategicMergeFrom(written).Data(desired)
	if err != nil {
		return fmt.Errorf("compare %s with its desired state: %w", c.Name, err)
	}
	return &mutatedByAdmissionError{kind: c.Name, patch: patch}
}

// reconcileChild brings one child to its desired state with at most one write. It returns the
// child as the API server last returned it, possibly together with an error. The child is nil
// if the Echo controls none or the child is being deleted.
func (r *EchoReconciler) reconcileChild(ctx context.Context, echo *echov1.Echo, c children.Kind) (client.Object, error) {
	wanted := c.Wanted(echo)
	live := client.Object(c.New())
	key := client.ObjectKey{Namespace: echo.Namespace, Name: children.Name(echo)}
	err := r.Client.Get(ctx, key, live)
	if apierrors.IsNotFound(err) {
		if !wanted {
			return nil, nil
		}
		if previouslyReconciled(echo, c) { // The child may have been deleted together with its Echo.
			if err := r.checkNewest(ctx, echo); err != nil {
				return nil, err
			}
		}
		created, createErr := r.create(ctx, echo, c, key)
		if !apierrors.IsAlreadyExists(createErr) {
			return created, createErr
		}
		// The cache contains only objects with the operator's label. The existing object has
		// lost its label, or it is not controlled by this Echo.
		err = r.APIReader.Get(ctx, key, live)
	}
	switch {
	case err != nil:
		return nil, err
	case !metav1.IsControlledBy(live, echo):
		if !wanted {
			return nil, nil
		}
		r.Metrics.CountConflict(c.Name)
		return nil, &notControlledError{kind: c.Name, object: live}
	case !live.GetDeletionTimestamp().IsZero():
		return nil, nil // The event of the deletion requeues the Echo.
	case !wanted:
		return nil, r.remove(ctx, echo, c, live)
	}
	return r.update(ctx, echo, c, live)
}

// previouslyReconciled reports whether the status was written after the child had been created.
func previouslyReconciled(echo *echov1.Echo, c children.Kind) bool {
	observed := echo.Status.ObservedGeneration
	return observed == echo.Generation || observed > 0 && !c.Optional
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

func (r *EchoReconciler) create(ctx context.Context, echo *echov1.Echo, c children.Kind, key client.ObjectKey) (client.Object, error) {
	object := client.Object(c.New())
	object.SetNamespace(key.Namespace)
	object.SetName(key.Name)
	c.Mutate(object, echo, r.ServerImage)
	children.SetGeneration(object, echo.Generation)
	if err := r.Client.Create(ctx, object); err != nil {
		return nil, err
	}
	log.FromContext(ctx).Info("Created "+c.Name, "child", key.Name)
	if previouslyReconciled(echo, c) && !meta.IsStatusConditionTrue(echo.Status.Conditions, echov1.ConditionDegraded) {
		r.Metrics.CountCorrection(c.Name)
	}
	return object, r.mutatedByAdmission(echo, c, object)
}

// update writes the child if it differs from its desired state, with the resourceVersion that
// was read. It returns the live child if the write is rejected.
func (r *EchoReconciler) update(ctx context.Context, echo *echov1.Echo, c children.Kind, live client.Object) (client.Object, error) {
	desired, changed := r.desiredState(echo, c, live)
	if !changed {
		return live, nil
	}
	if err := r.checkNotNewer(ctx, echo, live); err != nil {
		return live, err
	}
	children.SetGeneration(desired, echo.Generation)
	if err := r.Client.Update(ctx, desired); err != nil {
		return live, err
	}
	log.FromContext(ctx).Info("Updated "+c.Name, "child", live.GetName())
	if children.Generation(live) == echo.Generation {
		r.Metrics.CountCorrection(c.Name)
	}
	return desired, r.mutatedByAdmission(echo, c, desired)
}

func (r *EchoReconciler) remove(ctx context.Context, echo *echov1.Echo, c children.Kind, live client.Object) error {
	if err := r.checkNotNewer(ctx, echo, live); err != nil {
		return err
	}
	uid, version := live.GetUID(), live.GetResourceVersion()
	err := r.Client.Delete(ctx, live, client.Preconditions{UID: &uid, ResourceVersion: &version})
	if err != nil {
		return client.IgnoreNotFound(err)
	}
	log.FromContext(ctx).Info("Deleted "+c.Name, "child", live.GetName())
	return nil
}
