package main

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/testing/controlplane"
)

// failure is an image whose pods fail, and what the status has to tell.
type failure struct {
	name, image, reason, words string
	within                     time.Duration
}

// failingPods makes pods fail in every way, from the start and in a rollout, and then lets
// them recover.
func failingPods(_ context.Context, o options) (all []scenario, err error) {
	failures := []failure{
		{"an absent image", "docker.io/library/server:absent", echov1.ReasonImagePullFailed, "server:absent: not found", convergence},
		{"a crash loop", "docker.io/library/server:crash", echov1.ReasonCrashLooping, "exited with code 127: out of tune", convergence},
		{"no node with room", "docker.io/library/server:huge", echov1.ReasonUnschedulable, "Insufficient memory", convergence},
		{"an image that no pod may have", " a", echov1.ReasonPodsRejected, "must not have leading or trailing whitespace", convergence},
	}
	if !o.short {
		failures = append(failures, failure{"never ready", controlplane.NeverReady, echov1.ReasonProgressDeadlineExceeded, "has timed out progressing", rolloutDeadline})
	}
	for _, f := range failures {
		all = append(all,
			scenario{f.name + " from the start", func(ctx context.Context, w *world) error { return failFromTheStart(ctx, w, f) }},
			scenario{f.name + " in a rollout", func(ctx context.Context, w *world) error { return failInRollout(ctx, w, f) }},
		)
	}
	return append(all,
		scenario{"pods become unready and ready again", unready},
		scenario{"pods are deleted", deletePods},
	), nil
}

// rolloutDeadline is longer than the Deployment's progress deadline.
const rolloutDeadline = 3 * convergence

func failFromTheStart(ctx context.Context, w *world, f failure) error {
	if err := w.createEcho(ctx, one, echov1.EchoSpec{Message: "m", Replicas: 2, Image: f.image}); err != nil {
		return err
	}
	return w.failAndRecover(ctx, f, echov1.ReasonNotServing)
}

func failInRollout(ctx context.Context, w *world, f failure) error {
	if err := w.begin(ctx); err != nil {
		return err
	}
	if err := w.editEcho(ctx, one, func(s *echov1.EchoSpec) { s.Message, s.Image = "n", f.image }); err != nil {
		return err
	}
	return w.failAndRecover(ctx, f, echov1.ReasonServing) // The old pods serve on.
}

func (w *world) failAndRecover(ctx context.Context, f failure, available string) error {
	for _, namespace := range []string{w.fire, w.peaceful} {
		if err := w.tells(ctx, f.within, namespace, f.reason, f.words); err != nil {
			return err
		}
	}
	if err := w.has(ctx, one, echov1.ConditionAvailable, available); err != nil {
		return err
	}
	if err := w.settle(ctx); err != nil {
		return err
	}
	if err := w.staysSilent(ctx); err != nil {
		return err
	}
	if err := w.editEcho(ctx, one, func(s *echov1.EchoSpec) { s.Image = "" }); err != nil {
		return err
	}
	if err := w.isReady(ctx, one); err != nil {
		return err
	}
	return w.verify(ctx)
}

// begin makes the Echo "one", which has every child.
func (w *world) begin(ctx context.Context) error {
	if err := w.createEcho(ctx, one, echov1.EchoSpec{Message: "m", Replicas: 2}); err != nil {
		return err
	}
	if err := w.isReady(ctx, one); err != nil {
		return err
	}
	return w.settle(ctx)
}

func unready(ctx context.Context, w *world) error {
	if err := w.begin(ctx); err != nil {
		return err
	}
	for _, step := range []struct {
		ready             corev1.ConditionStatus
		pods              int
		available, reason string
	}{
		{corev1.ConditionFalse, 1, echov1.ReasonServing, echov1.ReasonPodsNotReady},
		{corev1.ConditionFalse, 2, echov1.ReasonNotServing, echov1.ReasonPodsNotReady},
		{corev1.ConditionTrue, 1, echov1.ReasonServing, echov1.ReasonPodsNotReady},
		{corev1.ConditionTrue, 2, echov1.ReasonServing, echov1.ReasonReady},
	} {
		if err := w.onPods(ctx, step.pods, func(ctx context.Context, pod *corev1.Pod) error { return w.report(ctx, pod, step.ready) }); err != nil {
			return err
		}
		if err := w.has(ctx, one, echov1.ConditionAvailable, step.available); err != nil {
			return err
		}
		if err := w.has(ctx, one, echov1.ConditionReady, step.reason); err != nil {
			return err
		}
	}
	return w.verify(ctx)
}

// report says in the kubelet's place whether the pod is ready.
func (w *world) report(ctx context.Context, pod *corev1.Pod, ready corev1.ConditionStatus) error {
	before := pod.DeepCopy()
	pod.Status.ContainerStatuses[0].Ready = ready == corev1.ConditionTrue
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == corev1.PodReady {
			c.Status = ready
		}
	}
	return w.plane.Client.Status().Patch(ctx, pod, client.MergeFrom(before))
}

func deletePods(ctx context.Context, w *world) error {
	if err := w.begin(ctx); err != nil {
		return err
	}
	for _, pods := range []int{1, 2} {
		if err := w.onPods(ctx, pods, func(ctx context.Context, pod *corev1.Pod) error { return w.plane.Client.Delete(ctx, pod) }); err != nil {
			return err
		}
		if err := w.settle(ctx); err != nil {
			return err
		}
		if err := w.isReady(ctx, one); err != nil {
			return err
		}
	}
	return w.verify(ctx)
}

// onPods does something to so many pods in both namespaces.
func (w *world) onPods(ctx context.Context, most int, do func(context.Context, *corev1.Pod) error) error {
	return w.both(ctx, func(ctx context.Context, namespace string) error {
		var pods corev1.PodList
		if err := w.plane.Client.List(ctx, &pods, client.InNamespace(namespace)); err != nil {
			return err
		}
		for i := range min(most, len(pods.Items)) {
			if err := do(ctx, &pods.Items[i]); err != nil {
				return err
			}
		}
		return nil
	})
}

// has waits until the condition of the Echo's newest spec has the reason, under fire.
func (w *world) has(ctx context.Context, name, condition, reason string) error {
	return w.await(ctx, convergence, condition+" has the reason "+reason, func(ctx context.Context) error {
		var echo echov1.Echo
		if err := w.plane.Client.Get(ctx, client.ObjectKey{Namespace: w.fire, Name: name}, &echo); err != nil {
			return err
		}
		c := meta.FindStatusCondition(echo.Status.Conditions, condition)
		if c == nil || c.Reason != reason || c.ObservedGeneration != echo.Generation {
			return fmt.Errorf("the status is %+v", echo.Status)
		}
		return nil
	})
}

// isReady waits until the Echo's newest spec is ready, under fire.
func (w *world) isReady(ctx context.Context, name string) error {
	return w.has(ctx, name, echov1.ConditionReady, echov1.ReasonReady)
}
