package scenarios

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/children"
	"github.com/kkloud-io/echo-operator/test/chaos/harness"
	"github.com/kkloud-io/echo-operator/test/chaos/kinds"
	"github.com/kkloud-io/echo-operator/test/chaos/oracle"
)

const (
	noController = "none)"
	ofAnnotation = "example.com/of"
)

// externalWriters has external writers change children: fields that the operator owns, and others.
func externalWriters(harness.Options) (all []harness.Scenario, err error) {
	ofEachKind := map[string]func(context.Context, *harness.Environment, children.Kind) error{
		"drifts":                               revertDrift,
		"is deleted":                           deleteChild,
		"is orphaned":                          orphan,
		"gets another owner and is deleted":    takeOver,
		"of another owner exists before":       uncontrolledBefore,
		"of another owner is created later":    uncontrolledAfter,
		"of an earlier Echo exists":            ofEarlierEcho,
		"has labels and annotations of others": labeled,
	}
	for _, kind := range children.Kinds {
		for _, name := range slices.Sorted(maps.Keys(ofEachKind)) {
			all = append(all, harness.Scenario{Name: kind.Name + " " + name, Run: func(ctx context.Context, e *harness.Environment) error {
				return ofEachKind[name](ctx, e, kind)
			}})
		}
	}
	return append(append(all, podWriters()...),
		harness.Scenario{Name: "sidecar is injected", Run: injectSidecar},
		harness.Scenario{Name: "Echo is deleted and its children are orphaned", Run: orphanAll},
		harness.Scenario{Name: "autoscaler scales the Echo", Run: autoscale},
		harness.Scenario{Name: "admission policy adds to every Deployment", Run: policyAdds},
		harness.Scenario{Name: "admission policy changes what the operator writes", Run: policyOverrides},
	), nil
}

func deleteChild(ctx context.Context, e *harness.Environment, kind children.Kind) error {
	if err := createReadyWith(ctx, e, kind); err != nil {
		return err
	}
	before, err := e.SubjectState(ctx)
	if err != nil {
		return err
	}
	e.AllowCreation(kind, one)
	if err := e.OnChild(ctx, one, kind, func(ctx context.Context, child client.Object) error { return e.Client.Delete(ctx, child) }); err != nil {
		return err
	}
	if err := e.AwaitSubjectState(ctx, before, kind.Name+" is recreated"); err != nil {
		return err
	}
	return e.Verify(ctx)
}

// orphan removes the child's owner. The operator adopts the child.
func orphan(ctx context.Context, e *harness.Environment, kind children.Kind) error {
	if err := createReadyWith(ctx, e, kind); err != nil {
		return err
	}
	before, err := e.SubjectState(ctx)
	if err != nil {
		return err
	}
	if err := e.OnObject(ctx, one, kind, func(ctx context.Context, child client.Object) error {
		return e.Update(ctx, child, func() { child.SetOwnerReferences(nil) })
	}); err != nil {
		return err
	}
	if err := e.AwaitSubjectState(ctx, before, kind.Name+" is adopted"); err != nil {
		return err
	}
	return e.Verify(ctx)
}

// awaitConflict waits until the Echo reports, in both namespaces, which object it does not control.
func awaitConflict(ctx context.Context, e *harness.Environment, kind children.Kind, owner string) error {
	return e.InBoth(ctx, func(ctx context.Context, namespace string) error {
		return e.AwaitDegraded(ctx, harness.ConvergenceTimeout, namespace, one, echov1.ReasonConflict, conflictMessage(kind, owner))
	})
}

func conflictMessage(kind children.Kind, owner string) string {
	return fmt.Sprintf("%s %s exists and is not controlled by this Echo (controller: %s", kind.Name, kinds.ChildName(kind, one), owner)
}

// takeOver gives the child to another controller, and deletes it.
func takeOver(ctx context.Context, e *harness.Environment, kind children.Kind) error {
	if err := createReadyWith(ctx, e, kind); err != nil {
		return err
	}
	if err := e.OnObject(ctx, one, kind, func(ctx context.Context, child client.Object) error {
		var namespace corev1.Namespace
		if err := e.Client.Get(ctx, client.ObjectKey{Name: child.GetNamespace()}, &namespace); err != nil {
			return err
		}
		return e.Update(ctx, child, func() {
			child.SetOwnerReferences([]metav1.OwnerReference{*metav1.NewControllerRef(&namespace, corev1.SchemeGroupVersion.WithKind("Namespace"))})
		})
	}); err != nil {
		return err
	}
	if err := awaitConflict(ctx, e, kind, "Namespace "); err != nil {
		return err
	}
	e.AllowCreation(kind, one)
	if err := e.OnObject(ctx, one, kind, func(ctx context.Context, child client.Object) error { return e.Client.Delete(ctx, child) }); err != nil {
		return err
	}
	if err := e.AwaitReady(ctx, one); err != nil {
		return err
	}
	return e.Verify(ctx)
}

// uncontrolled returns an object with the name of the child, but without an owner and without the
// operator's labels.
func uncontrolled(kind children.Kind, namespace string) client.Object {
	object := kinds.New(kind)
	other := &echov1.Echo{Spec: echov1.EchoSpec{Message: "other", Port: 1, TargetPort: 1}}
	other.Name = "other"
	kind.Mutate(object, other, children.Inputs{ServerImage: otherImage, VerifierImage: otherImage})
	object.SetNamespace(namespace)
	object.SetName(kinds.ChildName(kind, one))
	object.SetOwnerReferences(nil)
	object.SetLabels(nil)
	object.SetAnnotations(map[string]string{ofAnnotation: "another owner"})
	return object
}

// expectUntouched expects the Echo to report the objects, and the operator to leave them unchanged,
// also when the Echo changes. Then it deletes them, and the operator has to recover.
func expectUntouched(ctx context.Context, e *harness.Environment, kind children.Kind, objects ...client.Object) error {
	for _, object := range objects {
		if err := e.AwaitDegraded(ctx, harness.ConvergenceTimeout, object.GetNamespace(), one, echov1.ReasonConflict, conflictMessage(kind, noController)); err != nil {
			return err
		}
	}
	if err := e.EditEcho(ctx, one, func(s *echov1.EchoSpec) { s.Message, s.Port, s.Replicas = "n", 81, 3 }); err != nil {
		return err
	}
	for _, object := range objects {
		if err := e.AwaitDegraded(ctx, harness.ConvergenceTimeout, object.GetNamespace(), one, echov1.ReasonConflict, kind.Name); err != nil {
			return err
		}
		now := kinds.New(kind)
		if err := e.Client.Get(ctx, client.ObjectKeyFromObject(object), now); err != nil {
			return err
		}
		if err := oracle.CheckUntouched(object, now); err != nil {
			return err
		}
	}
	for _, object := range objects {
		if err := e.Client.Delete(ctx, object); err != nil {
			return err
		}
	}
	start := time.Now()
	if err := e.AwaitReady(ctx, one); err != nil {
		return err
	}
	e.Record("Recovery after an uncontrolled "+kind.Name+" was deleted", time.Since(start), harness.ConvergenceTimeout)
	return e.Verify(ctx)
}

func uncontrolledBefore(ctx context.Context, e *harness.Environment, kind children.Kind) error {
	var objects []client.Object
	for _, namespace := range []string{e.Subject, e.Control} {
		object := uncontrolled(kind, namespace)
		if err := e.Client.Create(ctx, object); err != nil {
			return err
		}
		objects = append(objects, object)
	}
	e.AllowCreation(kind, one)
	if err := e.CreateEcho(ctx, one, withChild(kind)); err != nil {
		return err
	}
	return expectUntouched(ctx, e, kind, objects...)
}

func uncontrolledAfter(ctx context.Context, e *harness.Environment, kind children.Kind) error {
	if err := createReadyWith(ctx, e, kind); err != nil {
		return err
	}
	e.Operator.Kill() // It would recreate the child first.
	object := uncontrolled(kind, e.Subject)
	if err := e.Client.Delete(ctx, object); err != nil {
		return err
	}
	condition := fmt.Sprintf("%s %s is created by another owner", kind.Name, object.GetName())
	if err := e.Await(ctx, harness.ConvergenceTimeout, condition, func(ctx context.Context) error { return e.Client.Create(ctx, object) }); err != nil {
		return err
	}
	e.AllowCreation(kind, one)
	e.AllowCreation(kind, one)
	if err := e.Restart(); err != nil {
		return err
	}
	return expectUntouched(ctx, e, kind, object)
}

const finalizer = "kkloud.io/chaos"

// ofEarlierEcho prevents with a finalizer that a child is deleted with its Echo, until the next
// Echo of that name exists.
func ofEarlierEcho(ctx context.Context, e *harness.Environment, kind children.Kind) error {
	if err := createReadyWith(ctx, e, kind); err != nil {
		return err
	}
	if err := e.OnObject(ctx, one, kind, func(ctx context.Context, child client.Object) error {
		return e.Update(ctx, child, func() { controllerutil.AddFinalizer(child, finalizer) })
	}); err != nil {
		return err
	}
	release := func(ctx context.Context) error {
		return e.OnObject(ctx, one, kind, func(ctx context.Context, child client.Object) error {
			return e.Update(ctx, child, func() { controllerutil.RemoveFinalizer(child, finalizer) })
		})
	}
	if err := e.DeleteEcho(ctx, one); err != nil {
		return errors.Join(err, release(ctx))
	}
	if err := e.CreateEcho(ctx, one, withChild(kind)); err != nil {
		return errors.Join(err, release(ctx))
	}
	awaitReport := func(ctx context.Context, namespace string) error {
		return e.AwaitEcho(ctx, harness.ConvergenceTimeout, namespace, one, "waits for the deletion", func(echo *echov1.Echo) error {
			return oracle.CheckWaiting(echo, fmt.Sprintf("%s %s of an earlier Echo (UID ", kind.Name, kinds.ChildName(kind, one)))
		})
	}
	if err := errors.Join(e.InBoth(ctx, awaitReport), release(ctx)); err != nil {
		return err
	}
	if err := e.AwaitReady(ctx, one); err != nil {
		return err
	}
	return e.Verify(ctx)
}

func labeled(ctx context.Context, e *harness.Environment, kind children.Kind) error {
	if err := createReadyWith(ctx, e, kind); err != nil {
		return err
	}
	if err := e.OnChild(ctx, one, kind, func(ctx context.Context, child client.Object) error {
		return e.Update(ctx, child, func() {
			child.GetLabels()["team"] = "blue"
			child.GetOwnerReferences()[0].BlockOwnerDeletion = nil // The operator has no permission to change it back.
			child.SetAnnotations(map[string]string{ofAnnotation: "another owner"})
		})
	}); err != nil {
		return err
	}
	return expectKept(ctx, e, kind, func(child client.Object) bool {
		return child.GetLabels()["team"] == "blue" && child.GetAnnotations()[ofAnnotation] == "another owner"
	})
}

// expectKept expects the child to keep what external writers added, also when the operator writes it.
func expectKept(ctx context.Context, e *harness.Environment, kind children.Kind, kept func(client.Object) bool) error {
	check := func(ctx context.Context) error {
		return e.OnChild(ctx, one, kind, func(_ context.Context, child client.Object) error {
			if !kept(child) {
				return oracle.Findingf(child, "want the fields of external writers unchanged, got %+v", child)
			}
			return nil
		})
	}
	if err := check(ctx); err != nil {
		return err
	}
	if err := e.ExpectNoWrites(ctx); err != nil {
		return err
	}
	// The operator writes every child for this edit.
	if err := e.EditEcho(ctx, one, func(s *echov1.EchoSpec) { s.Message, s.Port = "n", 81 }); err != nil {
		return err
	}
	if err := e.AwaitReady(ctx, one); err != nil {
		return err
	}
	if err := check(ctx); err != nil {
		return err
	}
	return e.Verify(ctx)
}
