package scenarios

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/children"
	"github.com/kkloud-io/echo-operator/test/chaos/harness"
	"github.com/kkloud-io/echo-operator/test/chaos/kinds"
	"github.com/kkloud-io/echo-operator/test/chaos/oracle"
)

// terminatingLimit is how long the status of an Echo that is being deleted may say Ready.
const terminatingLimit = 10 * time.Second

// lifecycles deletes, recreates, restores and upgrades Echoes together with their children.
func lifecycles(o harness.Options) (all []harness.Scenario, err error) {
	replacements := 5
	if o.Short {
		replacements = 2
	}
	for _, kind := range children.Kinds {
		all = append(all, harness.Scenario{Name: "foreground deletion waits for a finalizer of the " + kind.Name, Run: func(ctx context.Context, e *harness.Environment) error {
			return terminating(ctx, e, kind)
		}})
	}
	return append(all,
		harness.Scenario{Name: "children are orphaned and the Echo is recreated", Run: orphanAndRecreate},
		harness.Scenario{Name: "Echo is replaced by force", Run: func(ctx context.Context, e *harness.Environment) error { return replaceByForce(ctx, e, replacements) }},
		harness.Scenario{Name: "backup of Echoes only is restored", Run: restore{}.run},
		harness.Scenario{Name: "backup without owner references is restored, children first", Run: restore{children: true, childrenFirst: true}.run},
		harness.Scenario{Name: "backup without owner references is restored, Echoes first", Run: restore{children: true}.run},
		harness.Scenario{Name: "backup with owner references is restored, children first", Run: restore{children: true, childrenFirst: true, owners: true}.run},
		harness.Scenario{Name: "backup with owner references is restored, Echoes first", Run: restore{children: true, owners: true}.run},
		harness.Scenario{Name: "children of version 0.4.0 are upgraded", Run: upgradeChildren},
		harness.Scenario{Name: "image whose user is root is upgraded from version 0.4.0", Run: upgradeRootImage},
		harness.Scenario{Name: "targetPort is edited after the upgrade of children of version 0.4.0", Run: upgradeAndEditPort},
		harness.Scenario{Name: "pod settings are lost by a downgrade to version 0.4.0, and declared again after the upgrade", Run: downgradeAndUpgrade},
	), nil
}

// terminating deletes an Echo in the foreground while a finalizer keeps one of its children.
func terminating(ctx context.Context, e *harness.Environment, kind children.Kind) error {
	if err := createReadyWith(ctx, e, kind); err != nil {
		return err
	}
	if err := e.OnChild(ctx, one, kind, func(ctx context.Context, child client.Object) error {
		return e.Update(ctx, child, func() { controllerutil.AddFinalizer(child, finalizer) })
	}); err != nil {
		return err
	}
	release := func(ctx context.Context) error {
		return e.OnObject(ctx, one, kind, func(ctx context.Context, child client.Object) error {
			return e.Update(ctx, child, func() { controllerutil.RemoveFinalizer(child, finalizer) })
		})
	}
	if err := deleteEcho(ctx, e, metav1.DeletePropagationForeground); err != nil {
		return errors.Join(err, release(ctx))
	}
	err := e.AwaitEcho(ctx, terminatingLimit, e.Subject, one, "is not ready while it is being deleted", func(echo *echov1.Echo) error {
		return oracle.CheckCondition(echo, echov1.ConditionReady, echov1.ReasonTerminating)
	})
	if err == nil {
		err = e.ExpectNoWrites(ctx)
	}
	if err := errors.Join(err, release(ctx), awaitDeleted(ctx, e)); err != nil {
		return err
	}
	return recreate(ctx, e, withChild(kind))
}

// deleteEcho deletes the Echo in both namespaces with the propagation policy.
func deleteEcho(ctx context.Context, e *harness.Environment, propagation metav1.DeletionPropagation) error {
	return e.InBoth(ctx, func(ctx context.Context, namespace string) error {
		echo := &echov1.Echo{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: one}}
		return e.Client.Delete(ctx, echo, client.PropagationPolicy(propagation))
	})
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

// recreate creates the Echo again, and expects it to be ready without a conflict.
func recreate(ctx context.Context, e *harness.Environment, spec echov1.EchoSpec) error {
	if err := e.CreateEcho(ctx, one, spec); err != nil {
		return err
	}
	start := time.Now()
	if err := e.AwaitReady(ctx, one); err != nil {
		return err
	}
	e.Record("Recreated Echo is ready", time.Since(start), harness.ConvergenceTimeout)
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
	if err := deleteEcho(ctx, e, metav1.DeletePropagationOrphan); err != nil {
		return err
	}
	if err := awaitDeleted(ctx, e); err != nil {
		return err
	}
	if err := recreate(ctx, e, withChild(verifier)); err != nil {
		return err
	}
	return expectUIDs(ctx, e, before)
}

// uids returns the UIDs of the subject's children and pods.
func uids(ctx context.Context, e *harness.Environment) (map[types.UID]string, error) {
	found := map[types.UID]string{}
	for _, list := range append(kinds.ChildLists(), &corev1.PodList{}) {
		if err := e.Client.List(ctx, list, client.InNamespace(e.Subject)); err != nil {
			return nil, err
		}
		objects, err := kinds.Items(list)
		if err != nil {
			return nil, err
		}
		for _, object := range objects {
			found[object.GetUID()] = kinds.Of(object) + " " + object.GetName()
		}
	}
	return found, nil
}

// expectUIDs expects the subject's children and pods to be the same objects as before.
func expectUIDs(ctx context.Context, e *harness.Environment, before map[types.UID]string) error {
	after, err := uids(ctx, e)
	if err != nil {
		return err
	}
	if !maps.Equal(before, after) {
		return fmt.Errorf("children and pods: want the same objects, were %v, are %v", before, after)
	}
	return nil
}

// replaceByForce deletes the Echo and creates it again at once, as `kubectl replace --force` does.
// The garbage collector has not deleted the children of the earlier Echo by then.
func replaceByForce(ctx context.Context, e *harness.Environment, times int) error {
	if err := createReady(ctx, e); err != nil {
		return err
	}
	for range times - 1 {
		if err := replace(ctx, e); err != nil {
			return err
		}
		if err := e.AwaitReady(ctx, one); err != nil {
			return err
		}
	}
	if err := e.DeleteEcho(ctx, one); err != nil {
		return err
	}
	return errors.Join(awaitDeleted(ctx, e), recreate(ctx, e, everyChild()))
}

func replace(ctx context.Context, e *harness.Environment) error {
	if err := e.DeleteEcho(ctx, one); err != nil {
		return err
	}
	if err := awaitDeleted(ctx, e); err != nil {
		return err
	}
	return e.CreateEcho(ctx, one, everyChild())
}
