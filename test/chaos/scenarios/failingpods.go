package scenarios

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/children"
	"github.com/kkloud-io/echo-operator/internal/testing/controlplane"
	"github.com/kkloud-io/echo-operator/test/chaos/harness"
)

// failure is an image, or pod settings, whose pods fail, and what the status has to report.
type failure struct {
	name, image     string
	pod             *echov1.PodSettings
	reason, message string
	within          time.Duration
}

// failingPods makes pods fail in every way, from the start and in a rollout, and then lets
// them recover.
func failingPods(o harness.Options) (all []harness.Scenario, err error) {
	failures := []failure{
		{"image cannot be pulled", "docker.io/library/server:absent", nil, echov1.ReasonImagePullFailed, "server:absent: not found", harness.ConvergenceTimeout},
		{"crash loop", "docker.io/library/server:crash", nil, echov1.ReasonCrashLooping, "exited with code 127: out of tune", harness.ConvergenceTimeout},
		{"unschedulable", "docker.io/library/server:huge", nil, echov1.ReasonUnschedulable, "Insufficient memory", harness.ConvergenceTimeout},
		{"invalid image name", " a", nil, echov1.ReasonPodsRejected, "must not have leading or trailing whitespace", harness.ConvergenceTimeout},
		{"absent priority class", "", &echov1.PodSettings{PriorityClassName: "absent"}, echov1.ReasonPodsRejected, "no PriorityClass with name absent was found", harness.ConvergenceTimeout},
	}
	if !o.Short {
		failures = append(failures, failure{"never ready", controlplane.NeverReady, nil, echov1.ReasonProgressDeadlineExceeded, "has timed out progressing", rolloutTimeout})
	}
	for _, f := range failures {
		all = append(all,
			harness.Scenario{Name: f.name + " from the start", Run: func(ctx context.Context, e *harness.Environment) error { return failFromTheStart(ctx, e, f) }},
			harness.Scenario{Name: f.name + " in a rollout", Run: func(ctx context.Context, e *harness.Environment) error { return failInRollout(ctx, e, f) }},
		)
	}
	return append(all,
		harness.Scenario{Name: "pods become unready and ready again", Run: unreadyPods},
		harness.Scenario{Name: "pods are deleted", Run: deletePods},
	), nil
}

// rolloutTimeout is longer than the Deployment's progress deadline.
const rolloutTimeout = 3 * harness.ConvergenceTimeout

func failFromTheStart(ctx context.Context, e *harness.Environment, f failure) error {
	if err := e.CreateEcho(ctx, one, echov1.EchoSpec{Message: "m", Replicas: 2, Image: f.image, Pod: f.pod}); err != nil {
		return err
	}
	return failAndRecover(ctx, e, f, echov1.ReasonNotServing)
}

func failInRollout(ctx context.Context, e *harness.Environment, f failure) error {
	if err := createReady(ctx, e); err != nil {
		return err
	}
	if err := e.EditEcho(ctx, one, func(s *echov1.EchoSpec) { s.Message, s.Image, s.Pod = "n", f.image, f.pod }); err != nil {
		return err
	}
	return failAndRecover(ctx, e, f, echov1.ReasonServing) // The old pods continue to serve.
}

func failAndRecover(ctx context.Context, e *harness.Environment, f failure, available string) error {
	for _, namespace := range []string{e.Subject, e.Control} {
		if err := e.AwaitDegraded(ctx, f.within, namespace, one, f.reason, f.message); err != nil {
			return err
		}
	}
	if err := e.AwaitCondition(ctx, one, echov1.ConditionAvailable, available); err != nil {
		return err
	}
	if err := e.Settle(ctx); err != nil {
		return err
	}
	if err := e.ExpectNoWrites(ctx); err != nil {
		return err
	}
	if err := e.EditEcho(ctx, one, func(s *echov1.EchoSpec) { s.Image, s.Pod = "", nil }); err != nil {
		return err
	}
	if err := e.AwaitReady(ctx, one); err != nil {
		return err
	}
	return e.Verify(ctx)
}

// createReady creates the Echo "one" with every child, and waits until it is ready.
func createReady(ctx context.Context, e *harness.Environment) error {
	return createReadyWith(ctx, e, deployment)
}

// createReadyWith does the same for an Echo that also has a child of the kind.
func createReadyWith(ctx context.Context, e *harness.Environment, kind children.Kind) error {
	if err := e.CreateEcho(ctx, one, withChild(kind)); err != nil {
		return err
	}
	if err := e.AwaitReady(ctx, one); err != nil {
		return err
	}
	return e.Settle(ctx)
}

func unreadyPods(ctx context.Context, e *harness.Environment) error {
	if err := createReady(ctx, e); err != nil {
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
		if err := e.OnPods(ctx, step.pods, func(ctx context.Context, pod *corev1.Pod) error { return reportPod(ctx, e, pod, step.ready) }); err != nil {
			return err
		}
		if err := e.AwaitCondition(ctx, one, echov1.ConditionAvailable, step.available); err != nil {
			return err
		}
		if err := e.AwaitCondition(ctx, one, echov1.ConditionReady, step.reason); err != nil {
			return err
		}
	}
	return e.Verify(ctx)
}

// reportPod reports whether the pod is ready, as the kubelet does.
func reportPod(ctx context.Context, e *harness.Environment, pod *corev1.Pod, ready corev1.ConditionStatus) error {
	before := pod.DeepCopy()
	pod.Status.ContainerStatuses[0].Ready = ready == corev1.ConditionTrue
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == corev1.PodReady {
			c.Status = ready
		}
	}
	return e.Client.Status().Patch(ctx, pod, client.MergeFrom(before))
}

func deletePods(ctx context.Context, e *harness.Environment) error {
	if err := createReady(ctx, e); err != nil {
		return err
	}
	for _, pods := range []int{1, 2} {
		if err := e.OnPods(ctx, pods, func(ctx context.Context, pod *corev1.Pod) error { return e.Client.Delete(ctx, pod) }); err != nil {
			return err
		}
		if err := e.Settle(ctx); err != nil {
			return err
		}
		if err := e.AwaitReady(ctx, one); err != nil {
			return err
		}
	}
	return e.Verify(ctx)
}
