package scenarios

import (
	"context"
	"errors"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/children"
	"github.com/kkloud-io/echo-operator/test/chaos/harness"
	"github.com/kkloud-io/echo-operator/test/chaos/kinds"
	"github.com/kkloud-io/echo-operator/test/chaos/oracle"
)

const ofAnnotation = "example.com/of"

// externalWriters has external writers change children: fields that the operator owns, and others. Some
// react to each write of the operator.
func externalWriters(o harness.Options) (all []harness.Scenario, err error) {
	for _, kind := range children.Kinds {
		for _, way := range []struct {
			name string
			run  func(context.Context, *harness.Environment, children.Kind) error
		}{
			{"drifts", revertDrift},
			{"is deleted", deleteChild},
			{"is orphaned", orphan},
			{"of another owner exists before", uncontrolledBefore},
			{"of another owner is created later", uncontrolledAfter},
			{"of an earlier Echo exists", ofEarlierEcho},
			{"has labels and annotations of others", labeled},
			{"drifts after each write", persistentDrift},
		} {
			all = append(all, harness.Scenario{Name: kind.Name + " " + way.name, Run: func(ctx context.Context, e *harness.Environment) error {
				return way.run(ctx, e, kind)
			}})
		}
	}
	all = append(all, harness.Scenario{Name: "sidecar is injected", Run: injectSidecar})
	if o.Short {
		all = slices.DeleteFunc(all, func(s harness.Scenario) bool {
			return !slices.Contains([]string{
				"Service drifts", "Service is deleted", "Deployment is orphaned", "Service of another owner exists before",
				"Deployment drifts after each write", "sidecar is injected",
			}, s.Name)
		})
	}
	return all, nil
}

func deleteChild(ctx context.Context, e *harness.Environment, kind children.Kind) error {
	return restored(ctx, e, kind, func(ctx context.Context, child client.Object) error {
		e.AllowCreation(kind, one)
		return e.Client.Delete(ctx, child)
	})
}

// orphan removes the child's owner. The operator adopts the child.
func orphan(ctx context.Context, e *harness.Environment, kind children.Kind) error {
	return restored(ctx, e, kind, func(ctx context.Context, child client.Object) error {
		return e.Update(ctx, child, func() { child.SetOwnerReferences(nil) })
	})
}

// restored disturbs a child, and expects the operator to restore the state before.
func restored(ctx context.Context, e *harness.Environment, kind children.Kind, disturb func(context.Context, client.Object) error) error {
	if err := createReadyWith(ctx, e, kind); err != nil {
		return err
	}
	before, err := e.SubjectState(ctx)
	if err != nil {
		return err
	}
	if err := e.OnObject(ctx, one, kind, disturb); err != nil {
		return err
	}
	if err := e.AwaitSubjectState(ctx, before, kind.Name+" is restored"); err != nil {
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
	conflict := fmt.Sprintf("%s %s exists and is not controlled by this Echo (controller: none)", kind.Name, kinds.ChildName(kind, one))
	for _, object := range objects {
		if err := e.AwaitDegraded(ctx, harness.ConvergenceTimeout, object.GetNamespace(), one, echov1.ReasonConflict, conflict); err != nil {
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
	if err := e.AwaitReady(ctx, one); err != nil {
		return err
	}
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

// ofEarlierEcho prevents with a finalizer that a child is deleted with its Echo, until the next
// Echo of that name exists.
func ofEarlierEcho(ctx context.Context, e *harness.Environment, kind children.Kind) error {
	if err := createReadyWith(ctx, e, kind); err != nil {
		return err
	}
	awaitReport := func(ctx context.Context, namespace string) error {
		return e.AwaitEcho(ctx, harness.ConvergenceTimeout, namespace, one, "waits for the deletion", func(echo *echov1.Echo) error {
			return oracle.CheckWaiting(echo, fmt.Sprintf("%s %s of an earlier Echo (UID ", kind.Name, kinds.ChildName(kind, one)))
		})
	}
	if err := withFinalizer(ctx, e, kind, func() error {
		if err := e.DeleteEcho(ctx, one); err != nil {
			return err
		}
		if err := e.CreateEcho(ctx, one, withChild(kind)); err != nil {
			return err
		}
		return e.InBoth(ctx, awaitReport)
	}); err != nil {
		return err
	}
	if err := e.AwaitReady(ctx, one); err != nil {
		return err
	}
	return e.Verify(ctx)
}

const finalizer = "kkloud.io/chaos"

// withFinalizer does something while a finalizer keeps the child in both namespaces.
func withFinalizer(ctx context.Context, e *harness.Environment, kind children.Kind, do func() error) error {
	update := func(change func(client.Object, string) bool) error {
		return e.OnObject(ctx, one, kind, func(ctx context.Context, child client.Object) error {
			return e.Update(ctx, child, func() { change(child, finalizer) })
		})
	}
	if err := update(controllerutil.AddFinalizer); err != nil {
		return err
	}
	return errors.Join(do(), update(controllerutil.RemoveFinalizer))
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

func injectSidecar(ctx context.Context, e *harness.Environment) error {
	if err := createReady(ctx, e); err != nil {
		return err
	}
	if err := e.OnChild(ctx, one, deployment, func(ctx context.Context, child client.Object) error {
		return e.Update(ctx, child, func() {
			template := &child.(*appsv1.Deployment).Spec.Template
			template.Annotations = map[string]string{"kubectl.kubernetes.io/restartedAt": "today"}
			template.Spec.Tolerations = []corev1.Toleration{{Key: "spot", Operator: corev1.TolerationOpExists}}
			server := &template.Spec.Containers[0]
			server.Env = append(server.Env, corev1.EnvVar{Name: "TEAM", Value: "blue"})
			template.Spec.Containers = slices.Insert(template.Spec.Containers, 0, corev1.Container{
				Name: "sidecar", Image: customImage, SecurityContext: server.SecurityContext.DeepCopy(),
			})
		})
	}); err != nil {
		return err
	}
	return expectKept(ctx, e, deployment, func(child client.Object) bool {
		template := child.(*appsv1.Deployment).Spec.Template
		return len(template.Annotations) == 1 && len(template.Spec.Tolerations) == 1 && len(template.Spec.Containers) == 2 &&
			template.Spec.Containers[0].Name == "sidecar" && len(template.Spec.Containers[1].Env) == 1
	})
}
