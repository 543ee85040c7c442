package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
)

// otherWriters do to children what is not theirs to do, and what is.
func otherWriters(context.Context, options) (all []scenario, err error) {
	each := map[string]func(context.Context, *world, func() client.Object) error{
		"drifts":                              undrift,
		"is deleted":                          deleteChild,
		"is orphaned and gets its owner back": orphanAndReturn,
		"is orphaned and deleted":             orphanAndDelete,
		"of somebody else is there before":    foreignBefore,
		"of somebody else comes after":        foreignAfter,
		"of an earlier Echo is there":         ofEarlierEcho,
		"bears labels of others":              labelled,
	}
	for _, empty := range []func() client.Object{service, deployment, budget} {
		for _, what := range slices.Sorted(maps.Keys(each)) {
			all = append(all, scenario{kindOf(empty()) + " " + what, func(ctx context.Context, w *world) error { return each[what](ctx, w, empty) }})
		}
	}
	return append(all,
		scenario{"a sidecar is injected", injected},
		scenario{"the Echo goes and its children stay", orphanAll},
		scenario{"an autoscaler scales the Echo", autoscaled},
		scenario{"a policy adds to every Deployment", policyAdds},
		scenario{"a policy overrules the operator", policyOverrules},
	), nil
}

// isAgain waits until everything under fire is as it was.
func (w *world) isAgain(ctx context.Context, before, what string) error {
	return w.await(ctx, convergence, what, func(ctx context.Context) error {
		now, err := stateOf(ctx, w.plane.Client, w.fire, takeNothing)
		if err == nil && now != before {
			err = fmt.Errorf("it is not as it was (-before +now):\n%s", cmp.Diff(strings.Split(before, "\n"), strings.Split(now, "\n")))
		}
		return err
	})
}

func deleteChild(ctx context.Context, w *world, empty func() client.Object) error {
	if err := w.begin(ctx); err != nil {
		return err
	}
	before, err := stateOf(ctx, w.plane.Client, w.fire, takeNothing)
	if err != nil {
		return err
	}
	w.expectedUIDs[kindOf(empty())+" echo-"+one]++
	if err := w.onChild(ctx, one, empty, func(ctx context.Context, child client.Object) error { return w.plane.Client.Delete(ctx, child) }); err != nil {
		return err
	}
	if err := w.isAgain(ctx, before, "the child is back"); err != nil {
		return err
	}
	return w.verify(ctx)
}

// onObject does something to what is under a child's name, whoever owns it.
func (w *world) onObject(ctx context.Context, empty func() client.Object, do func(context.Context, client.Object) error) error {
	return w.both(ctx, func(ctx context.Context, namespace string) error {
		return w.await(ctx, convergence, "the object is there", func(ctx context.Context) error {
			object := empty()
			if err := w.plane.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "echo-" + one}, object); err != nil {
				return err
			}
			return do(ctx, object)
		})
	})
}

// orphan takes the child's owner away, and waits until the Echo says so.
func orphan(ctx context.Context, w *world, empty func() client.Object) error {
	if err := w.begin(ctx); err != nil {
		return err
	}
	if err := w.onObject(ctx, empty, func(ctx context.Context, child client.Object) error {
		return w.change(ctx, child, func() { child.SetOwnerReferences(nil) })
	}); err != nil {
		return err
	}
	return w.conflicts(ctx, empty, "none")
}

// conflicts waits until the Echo names what is another's, in both namespaces.
func (w *world) conflicts(ctx context.Context, empty func() client.Object, owner string) error {
	words := fmt.Sprintf("%s echo-%s exists and is not controlled by this Echo (controller: %s", kindOf(empty()), one, owner)
	return w.both(ctx, func(ctx context.Context, namespace string) error {
		return w.tells(ctx, convergence, namespace, echov1.ReasonConflict, words)
	})
}

func orphanAndReturn(ctx context.Context, w *world, empty func() client.Object) error {
	if err := orphan(ctx, w, empty); err != nil {
		return err
	}
	if err := w.onObject(ctx, empty, func(ctx context.Context, child client.Object) error {
		var echo echov1.Echo
		if err := w.plane.Client.Get(ctx, client.ObjectKey{Namespace: child.GetNamespace(), Name: one}, &echo); err != nil {
			return err
		}
		return w.change(ctx, child, func() {
			child.SetOwnerReferences([]metav1.OwnerReference{*metav1.NewControllerRef(&echo, echov1.GroupVersion.WithKind("Echo"))})
		})
	}); err != nil {
		return err
	}
	if err := w.isReady(ctx, one); err != nil {
		return err
	}
	return w.verify(ctx)
}

func orphanAndDelete(ctx context.Context, w *world, empty func() client.Object) error {
	if err := orphan(ctx, w, empty); err != nil {
		return err
	}
	w.expectedUIDs[kindOf(empty())+" echo-"+one]++
	if err := w.onObject(ctx, empty, func(ctx context.Context, child client.Object) error { return w.plane.Client.Delete(ctx, child) }); err != nil {
		return err
	}
	if err := w.isReady(ctx, one); err != nil {
		return err
	}
	return w.verify(ctx)
}

// foreign makes of an empty object somebody else's, under the child's name.
func foreign(object client.Object, namespace string) client.Object {
	object.SetNamespace(namespace)
	object.SetName("echo-" + one)
	object.SetAnnotations(map[string]string{"example.com/of": "somebody else"})
	labels := map[string]string{"app": "other"}
	switch o := object.(type) {
	case *corev1.Service:
		o.Spec.Ports = []corev1.ServicePort{{Port: 1}}
	case *appsv1.Deployment:
		o.Spec = appsv1.DeploymentSpec{
			Replicas: ptr.To[int32](0),
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "other", Image: ownImage}}},
			},
		}
	}
	return object
}

// staysForeign sees the Echo complain of the object, and leave it as it was, also when the
// Echo changes; and go on when it is gone.
func (w *world) staysForeign(ctx context.Context, objects ...client.Object) error {
	for _, object := range objects {
		words := fmt.Sprintf("%s echo-%s exists and is not controlled by this Echo (controller: none)", kindOf(object), one)
		if err := w.tells(ctx, convergence, object.GetNamespace(), echov1.ReasonConflict, words); err != nil {
			return err
		}
	}
	if err := w.editEcho(ctx, one, func(s *echov1.EchoSpec) { s.Message, s.Port, s.Replicas = "n", 81, 3 }); err != nil {
		return err
	}
	for _, object := range objects {
		if err := w.tells(ctx, convergence, object.GetNamespace(), echov1.ReasonConflict, kindOf(object)); err != nil {
			return err
		}
		now := object.DeepCopyObject().(client.Object)
		if err := w.plane.Client.Get(ctx, client.ObjectKeyFromObject(object), now); err != nil {
			return err
		}
		if !isAsItWas(object, now) {
			return fmt.Errorf("somebody else's object was %+v and is %+v", object, now)
		}
	}
	for _, object := range objects {
		if err := w.plane.Client.Delete(ctx, object); err != nil {
			return err
		}
	}
	start := time.Now()
	if err := w.isReady(ctx, one); err != nil {
		return err
	}
	w.figures = append(w.figures, figure{What: "Recovery from a foreign " + kindOf(objects[0]), Seconds: time.Since(start).Seconds(), Allowed: convergence.Seconds()})
	return w.verify(ctx)
}

// isAsItWas tells whether nobody wrote the object but the controllers of its kind, which
// fill in the status of a Deployment or a budget.
func isAsItWas(before, now client.Object) bool {
	if before.GetResourceVersion() == now.GetResourceVersion() {
		return true
	}
	for _, entry := range now.GetManagedFields() {
		if strings.HasPrefix(entry.Manager, "manager") { // The operator's program.
			return false
		}
	}
	before = before.DeepCopyObject().(client.Object)
	for _, object := range []client.Object{before, now} {
		normalise(object, nil)
		if d, ok := object.(*appsv1.Deployment); ok {
			d.Status = appsv1.DeploymentStatus{}
		}
	}
	_, isService := now.(*corev1.Service)
	return !isService && equality.Semantic.DeepEqual(before, now)
}

func foreignBefore(ctx context.Context, w *world, empty func() client.Object) error {
	var objects []client.Object
	for _, namespace := range []string{w.fire, w.peaceful} {
		object := foreign(empty(), namespace)
		if err := w.plane.Client.Create(ctx, object); err != nil {
			return err
		}
		objects = append(objects, object)
	}
	w.expectedUIDs[kindOf(empty())+" echo-"+one]++
	if err := w.createEcho(ctx, one, echov1.EchoSpec{Message: "m", Replicas: 2}); err != nil {
		return err
	}
	return w.staysForeign(ctx, objects...)
}

func foreignAfter(ctx context.Context, w *world, empty func() client.Object) error {
	if err := w.begin(ctx); err != nil {
		return err
	}
	// The operator would be faster, were it there.
	w.operator.Kill()
	object := foreign(empty(), w.fire)
	if err := w.plane.Client.Delete(ctx, object); err != nil {
		return err
	}
	if err := w.await(ctx, convergence, "the name is free", func(ctx context.Context) error { return w.plane.Client.Create(ctx, object) }); err != nil {
		return err
	}
	w.expectedUIDs[kindOf(empty())+" echo-"+one] += 2
	if err := w.restart(); err != nil {
		return err
	}
	return w.staysForeign(ctx, object)
}

const finalizer = "kkloud.io/chaos"

// ofEarlierEcho keeps a child from going with its Echo, until the next Echo of that name is there.
func ofEarlierEcho(ctx context.Context, w *world, empty func() client.Object) error {
	if err := w.begin(ctx); err != nil {
		return err
	}
	if err := w.onObject(ctx, empty, func(ctx context.Context, child client.Object) error {
		return w.change(ctx, child, func() { controllerutil.AddFinalizer(child, finalizer) })
	}); err != nil {
		return err
	}
	release := func(ctx context.Context) error {
		return w.onObject(ctx, empty, func(ctx context.Context, child client.Object) error {
			return w.change(ctx, child, func() { controllerutil.RemoveFinalizer(child, finalizer) })
		})
	}
	if err := w.deleteEcho(ctx, one); err != nil {
		return errors.Join(err, release(ctx))
	}
	if err := w.createEcho(ctx, one, echov1.EchoSpec{Message: "m", Replicas: 2}); err != nil {
		return errors.Join(err, release(ctx))
	}
	if err := errors.Join(w.conflicts(ctx, empty, "Echo one, UID "), release(ctx)); err != nil {
		return err
	}
	if err := w.isReady(ctx, one); err != nil {
		return err
	}
	return w.verify(ctx)
}

func labelled(ctx context.Context, w *world, empty func() client.Object) error {
	if err := w.begin(ctx); err != nil {
		return err
	}
	if err := w.onChild(ctx, one, empty, func(ctx context.Context, child client.Object) error {
		return w.change(ctx, child, func() {
			child.GetLabels()["team"] = "blue"
			child.GetOwnerReferences()[0].BlockOwnerDeletion = nil // The operator has no right to change it back.
			child.SetAnnotations(map[string]string{"example.com/of": "somebody else"})
		})
	}); err != nil {
		return err
	}
	return w.keeps(ctx, empty, func(child client.Object) bool {
		return child.GetLabels()["team"] == "blue" && child.GetAnnotations()["example.com/of"] == "somebody else"
	})
}

// keeps sees the child keep what is another's, also when the operator writes it.
func (w *world) keeps(ctx context.Context, empty func() client.Object, has func(client.Object) bool) error {
	check := func(ctx context.Context) error {
		return w.onChild(ctx, one, empty, func(_ context.Context, child client.Object) error {
			if !has(child) {
				return fmt.Errorf("it is gone: %+v", child)
			}
			return nil
		})
	}
	if err := check(ctx); err != nil {
		return err
	}
	if err := w.staysSilent(ctx); err != nil {
		return err
	}
	// This writes every child.
	if err := w.editEcho(ctx, one, func(s *echov1.EchoSpec) { s.Message, s.Port = "n", 81 }); err != nil {
		return err
	}
	if err := w.isReady(ctx, one); err != nil {
		return err
	}
	if err := check(ctx); err != nil {
		return err
	}
	return w.verify(ctx)
}
