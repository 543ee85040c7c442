package scenarios

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/children"
	"github.com/kkloud-io/echo-operator/test/chaos/harness"
	"github.com/kkloud-io/echo-operator/test/chaos/kinds"
	"github.com/kkloud-io/echo-operator/test/chaos/oracle"
)

// lifecycles deletes, recreates and restores Echoes together with their children.
func lifecycles(o harness.Options) ([]harness.Scenario, error) {
	all := []harness.Scenario{
		{Name: "Echo is replaced by force", Run: replaceByForce},
		{Name: "children are orphaned and the Echo is recreated", Run: orphanAndRecreate},
		{Name: "backup without owner references is restored", Run: func(ctx context.Context, e *harness.Environment) error { return restore(ctx, e, false) }},
		{Name: "backup with owner references is restored", Run: func(ctx context.Context, e *harness.Environment) error { return restore(ctx, e, true) }},
	}
	if o.Short {
		all = all[:1]
	}
	return all, nil
}

// awaitDeleted waits until the Echo is deleted in both namespaces.
func awaitDeleted(ctx context.Context, e *harness.Environment) error {
	return e.InBoth(ctx, func(ctx context.Context, namespace string) error {
		return e.Await(ctx, harness.ConvergenceTimeout, "Echo one is deleted", func(ctx context.Context) error {
			_, err := e.GetEcho(ctx, namespace, one)
			return expectNotFound(err)
		})
	})
}

// expectNotFound returns nil if the error of a read is that the object does not exist.
func expectNotFound(err error) error {
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err == nil:
		return errExists
	}
	return err
}

// recreate creates the Echo again, and expects it to be ready without a conflict.
func recreate(ctx context.Context, e *harness.Environment, spec echov1.EchoSpec) error {
	if err := e.CreateEcho(ctx, one, spec); err != nil {
		return err
	}
	if err := e.AwaitReady(ctx, one); err != nil {
		return err
	}
	return errors.Join(append(e.History.CheckNoReason(echov1.ReasonConflict), e.Verify(ctx))...)
}

// orphanAndRecreate deletes the Echo as `kubectl delete --cascade=orphan` does, and recreates it. It
// adopts the orphans without a restart of the pods.
func orphanAndRecreate(ctx context.Context, e *harness.Environment) error {
	if err := createReadyWith(ctx, e, verifier); err != nil {
		return err
	}
	before, err := uids(ctx, e)
	if err != nil {
		return err
	}
	if err := e.InBoth(ctx, func(ctx context.Context, namespace string) error {
		echo := &echov1.Echo{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: one}}
		return e.Client.Delete(ctx, echo, client.PropagationPolicy(metav1.DeletePropagationOrphan))
	}); err != nil {
		return err
	}
	if err := errors.Join(awaitDeleted(ctx, e), recreate(ctx, e, withChild(verifier))); err != nil {
		return err
	}
	after, err := uids(ctx, e)
	if err == nil && !maps.Equal(before, after) {
		err = fmt.Errorf("children and pods: want the same objects, were %v, are %v", before, after)
	}
	return err
}

// uids returns the UIDs of the subject's children and pods.
func uids(ctx context.Context, e *harness.Environment) (map[types.UID]string, error) {
	objects, err := e.Objects(ctx, append(kinds.ChildLists(), &corev1.PodList{}), e.Subject)
	found := map[types.UID]string{}
	for _, object := range objects {
		found[object.GetUID()] = kinds.Of(object) + " " + object.GetName()
	}
	return found, err
}

// replaceByForce deletes the Echo and creates it again at once, as `kubectl replace --force` does.
// The garbage collector has not deleted the children of the earlier Echo by then.
func replaceByForce(ctx context.Context, e *harness.Environment) error {
	if err := createReady(ctx, e); err != nil {
		return err
	}
	return errors.Join(e.DeleteEcho(ctx, one), awaitDeleted(ctx, e), recreate(ctx, e, everyChild()))
}

// restore restores a backup of an Echo and its children after all were deleted, the children first. The
// backup may keep the owner references, which name the UID of an Echo that does not exist any more.
func restore(ctx context.Context, e *harness.Environment, owners bool) error {
	if err := createReadyWith(ctx, e, verifier); err != nil {
		return err
	}
	backups := map[string][]client.Object{}
	if err := e.InBoth(ctx, func(ctx context.Context, namespace string) (err error) {
		backups[namespace], err = backUp(ctx, e, namespace, owners)
		return err
	}); err != nil {
		return err
	}
	if err := errors.Join(e.DeleteEcho(ctx, one), awaitDeleted(ctx, e), e.InBoth(ctx, func(ctx context.Context, namespace string) error {
		return e.Clear(ctx, namespace)
	})); err != nil {
		return err
	}
	for range 2 { // The restored children, and those that the operator creates in place of collected ones.
		for _, kind := range children.Kinds {
			e.AllowCreation(kind, one)
		}
	}
	if err := e.InBoth(ctx, func(ctx context.Context, namespace string) error {
		for _, object := range backups[namespace] {
			if err := client.IgnoreAlreadyExists(e.Client.Create(ctx, object)); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		return err
	}
	if err := e.AwaitReady(ctx, one); err != nil {
		return err
	}
	findings := e.History.CheckNoReason(echov1.ReasonConflict)
	after, err := uids(ctx, e)
	for _, object := range backups[e.Subject] {
		if _, isEcho := object.(*echov1.Echo); !isEcho && !owners && after[object.GetUID()] == "" {
			findings = append(findings, oracle.Findingf(object, "restored without owner references, want it adopted, but it was replaced"))
		}
	}
	return errors.Join(append(findings, err, e.Verify(ctx))...)
}

// backUp returns the objects in the order in which they are restored, without what the API server
// assigns and without their status.
func backUp(ctx context.Context, e *harness.Environment, namespace string, owners bool) ([]client.Object, error) {
	objects, err := e.Objects(ctx, kinds.Lists(), namespace)
	for _, object := range objects {
		object.SetUID("")
		object.SetResourceVersion("")
		object.SetGeneration(0)
		object.SetCreationTimestamp(metav1.Time{})
		object.SetManagedFields(nil)
		if !owners {
			object.SetOwnerReferences(nil)
		}
		switch o := object.(type) {
		case *echov1.Echo:
			o.Status = echov1.EchoStatus{}
		case *corev1.Service:
			o.Spec.ClusterIP, o.Spec.ClusterIPs = "", nil
		}
	}
	slices.Reverse(objects)
	return objects, err
}
