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

// +kubebuilder:rbac:groups=apps,resources=deployments,verbs=get;list;watch;create;update
// +kubebuilder:rbac:groups="",resources=services,verbs=get;list;watch;create;update
// +kubebuilder:rbac:groups=policy,resources=poddisruptionbudgets,verbs=get;list;watch;create;update;delete

// foreignError says that an object of the child's name belongs to somebody else.
type foreignError struct {
	kind   string
	object client.Object
}

func (e *foreignError) Error() string {
	owner := "no controller"
	if ref := metav1.GetControllerOf(e.object); ref != nil {
		owner = fmt.Sprintf("%s %s (UID %s)", ref.Kind, ref.Name, ref.UID)
	}
	return fmt.Sprintf("%s %s exists and is not controlled by this Echo, but by %s: delete or rename it",
		e.kind, e.object.GetName(), owner)
}

// overruledError says that what was written was changed on its way in, by somebody who would
// change it again.
type overruledError struct {
	kind string
	// undone is what did not last, as a patch.
	undone []byte
}

func (e *overruledError) Error() string {
	return fmt.Sprintf("%s: an admission policy or webhook of the cluster changed it, against %s", e.kind, e.undone)
}

// shaped returns a copy of the live object in the shape that the Echo wants, and tells whether
// that is another one. It mostly is not, which encodings that are equal say in an eighth of the
// time that reflection takes; where they differ, it may be in form alone, as 1 and 1000m.
func (r *EchoReconciler) shaped(echo *echov1.Echo, c children.Kind, live client.Object) (wanted client.Object, changed bool) {
	wanted = live.DeepCopyObject().(client.Object)
	before := encoded(wanted) // Not of what is live: encoding writes into quantities, and others read them.
	c.Mutate(wanted, echo, r.ServerImage)
	if before != nil && bytes.Equal(before, encoded(wanted)) {
		return wanted, false
	}
	return wanted, !equality.Semantic.DeepEqual(live, wanted)
}

// encoded returns the object as it is sent, or nil for a type that has no such encoding.
func encoded(object client.Object) []byte {
	if o, is := object.(interface{ Marshal() ([]byte, error) }); is {
		encoding, _ := o.Marshal() // Where that fails, reflection decides.
		return encoding
	}
	return nil
}

// overruled compares what the API server returned from a write with what the Echo wants.
func (r *EchoReconciler) overruled(echo *echov1.Echo, c children.Kind, written client.Object) error {
	wanted, changed := r.shaped(echo, c, written)
	if !changed {
		return nil
	}
	undone, err := client.StrategicMergeFrom(written).Data(wanted)
	if err != nil {
		return fmt.Errorf("compare %s with what was written: %w", c.Name, err)
	}
	return &overruledError{kind: c.Name, undone: undone}
}

// apply brings one child to the shape that the Echo wants, with one write at the most, and
// returns it as the API server last did, also beside an error; nil where the Echo has no
// such child.
func (r *EchoReconciler) apply(ctx context.Context, echo *echov1.Echo, c children.Kind) (client.Object, error) {
	wanted := c.Wanted(echo)
	live := client.Object(c.New())
	key := client.ObjectKey{Namespace: echo.Namespace, Name: children.Name(echo)}
	err := r.Client.Get(ctx, key, live)
	if apierrors.IsNotFound(err) {
		if !wanted {
			return nil, nil
		}
		if wasThere(echo, c) { // It may have gone with its Echo.
			if err := r.checkNewest(ctx, echo); err != nil {
				return nil, err
			}
		}
		created, createErr := r.create(ctx, echo, c, key)
		if !apierrors.IsAlreadyExists(createErr) {
			return created, createErr
		}
		// The cache holds only what carries our label: the child may have lost it, or may
		// be somebody else's.
		err = r.APIReader.Get(ctx, key, live)
	}
	switch {
	case err != nil:
		return nil, err
	case !metav1.IsControlledBy(live, echo):
		if !wanted {
			return nil, nil
		}
		r.Metrics.InConflict(c.Name)
		return nil, &foreignError{kind: c.Name, object: live}
	case !live.GetDeletionTimestamp().IsZero():
		return nil, nil // Its end is an event that brings the Echo back.
	case !wanted:
		return nil, r.remove(ctx, echo, c, live)
	}
	return r.update(ctx, echo, c, live)
}

// wasThere tells whether the status was written when there was such a child.
func wasThere(echo *echov1.Echo, c children.Kind) bool {
	observed := echo.Status.ObservedGeneration
	return observed == echo.Generation || observed > 0 && !c.Optional
}

// errStaleEcho says that an Echo was read that has changed since, or is gone.
var errStaleEcho = errors.New("the cache lags behind the Echo")

// checkNewest asks the API server whether the Echo that was read is the newest. It is called
// where the children give reason to doubt it.
func (r *EchoReconciler) checkNewest(ctx context.Context, echo *echov1.Echo) error {
	var newest echov1.Echo
	err := r.APIReader.Get(ctx, client.ObjectKeyFromObject(echo), &newest)
	if apierrors.IsNotFound(err) || err == nil &&
		(newest.UID != echo.UID || newest.Generation != echo.Generation || newest.DeletionTimestamp != nil) {
		return errStaleEcho
	}
	return err
}

// checkNotNewer fails where the child was already written for a newer Echo than the one that
// was read: to write it now would put it back. Anybody can write such a number, so it only
// gives reason to doubt.
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
	if wasThere(echo, c) && !meta.IsStatusConditionTrue(echo.Status.Conditions, echov1.ConditionDegraded) {
		r.Metrics.Corrected(c.Name)
	}
	return object, r.overruled(echo, c, object)
}

// update writes only what differs, based on the version that was read. Where the write is
// refused, the child is still what it was.
func (r *EchoReconciler) update(ctx context.Context, echo *echov1.Echo, c children.Kind, live client.Object) (client.Object, error) {
	wanted, changed := r.shaped(echo, c, live)
	if !changed {
		return live, nil
	}
	if err := r.checkNotNewer(ctx, echo, live); err != nil {
		return live, err
	}
	children.SetGeneration(wanted, echo.Generation)
	if err := r.Client.Update(ctx, wanted); err != nil {
		return live, err
	}
	log.FromContext(ctx).Info("Updated "+c.Name, "child", live.GetName())
	if children.Generation(live) == echo.Generation {
		r.Metrics.Corrected(c.Name)
	}
	return wanted, r.overruled(echo, c, wanted)
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
