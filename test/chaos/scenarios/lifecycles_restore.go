package scenarios

import (
	"context"
	"errors"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/children"
	"github.com/kkloud-io/echo-operator/test/chaos/harness"
	"github.com/kkloud-io/echo-operator/test/chaos/kinds"
)

// restore is a way to back up a namespace and to restore it after all of it was deleted.
type restore struct {
	// children is true if the backup contains the children, too, childrenFirst if they are restored
	// before the Echoes.
	children, childrenFirst bool
	// owners is true if the backup keeps the owner references, which name the UID of an Echo that
	// does not exist any more.
	owners bool
}

func (r restore) run(ctx context.Context, e *harness.Environment) error {
	if err := createReadyWith(ctx, e, verifier); err != nil {
		return err
	}
	backups := map[string][]client.Object{}
	if err := e.InBoth(ctx, func(ctx context.Context, namespace string) (err error) {
		backups[namespace], err = r.backup(ctx, e, namespace)
		return err
	}); err != nil {
		return err
	}
	if err := errors.Join(e.DeleteEcho(ctx, one), awaitDeleted(ctx, e), awaitNoChildren(ctx, e)); err != nil {
		return err
	}
	for range 2 { // The restored children, and those that the operator creates in place of collected ones.
		for _, kind := range children.Kinds {
			e.AllowCreation(kind, one)
		}
	}
	start := time.Now()
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
	e.Record("Restored Echo is ready", time.Since(start), harness.ConvergenceTimeout)
	return errors.Join(append(e.History.CheckNoReason(echov1.ReasonConflict), r.expectAdoption(ctx, e, backups[e.Subject]), e.Verify(ctx))...)
}

// backup returns the objects in the order in which they are restored, without what the API server
// assigns and without their status.
func (r restore) backup(ctx context.Context, e *harness.Environment, namespace string) (objects []client.Object, err error) {
	lists := kinds.Lists()
	if !r.children {
		lists = lists[:1]
	}
	for _, list := range lists {
		if err := e.Client.List(ctx, list, client.InNamespace(namespace)); err != nil {
			return nil, err
		}
		items, err := kinds.Items(list)
		if err != nil {
			return nil, err
		}
		for _, object := range items {
			object.SetUID("")
			object.SetResourceVersion("")
			object.SetGeneration(0)
			object.SetCreationTimestamp(metav1.Time{})
			object.SetManagedFields(nil)
			if !r.owners {
				object.SetOwnerReferences(nil)
			}
			switch o := object.(type) {
			case *echov1.Echo:
				o.Status = echov1.EchoStatus{}
			case *corev1.Service:
				o.Spec.ClusterIP, o.Spec.ClusterIPs = "", nil
			}
		}
		objects = append(objects, items...)
	}
	if r.childrenFirst {
		slices.Reverse(objects)
	}
	return objects, nil
}

// awaitNoChildren waits until the children of the deleted Echo are deleted in both namespaces.
func awaitNoChildren(ctx context.Context, e *harness.Environment) error {
	return e.InBoth(ctx, func(ctx context.Context, namespace string) error {
		return e.Await(ctx, harness.ConvergenceTimeout, "children are deleted", func(ctx context.Context) error {
			for _, list := range kinds.ChildLists() {
				if err := e.Client.List(ctx, list, client.InNamespace(namespace)); err != nil {
					return err
				}
				if objects, err := kinds.Items(list); err != nil || len(objects) > 0 {
					return errors.Join(err, errExists)
				}
			}
			return nil
		})
	})
}

// expectAdoption expects the restored children without owner references to be those of the Echo.
func (r restore) expectAdoption(ctx context.Context, e *harness.Environment, restored []client.Object) error {
	if !r.childrenFirst || r.owners {
		return nil
	}
	after, err := uids(ctx, e)
	if err != nil {
		return err
	}
	var errs []error
	for _, object := range restored {
		if _, isEcho := object.(*echov1.Echo); !isEcho && after[object.GetUID()] == "" {
			errs = append(errs, notAdopted(object))
		}
	}
	return errors.Join(errs...)
}
