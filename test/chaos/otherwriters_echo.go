package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/children"
)

func injected(ctx context.Context, w *world) error {
	if err := w.begin(ctx); err != nil {
		return err
	}
	if err := w.onChild(ctx, one, deployment, func(ctx context.Context, child client.Object) error {
		return w.change(ctx, child, func() {
			template := &child.(*appsv1.Deployment).Spec.Template
			template.Annotations = map[string]string{"kubectl.kubernetes.io/restartedAt": "today"}
			template.Spec.Tolerations = []corev1.Toleration{{Key: "spot", Operator: corev1.TolerationOpExists}}
			server := &template.Spec.Containers[0]
			server.Env = append(server.Env, corev1.EnvVar{Name: "TEAM", Value: "blue"})
			template.Spec.Containers = slices.Insert(template.Spec.Containers, 0, corev1.Container{
				Name: "sidecar", Image: ownImage, SecurityContext: server.SecurityContext.DeepCopy(),
			})
		})
	}); err != nil {
		return err
	}
	return w.keeps(ctx, deployment, func(child client.Object) bool {
		template := child.(*appsv1.Deployment).Spec.Template
		return len(template.Annotations) == 1 && len(template.Spec.Tolerations) == 1 && len(template.Spec.Containers) == 2 &&
			template.Spec.Containers[0].Name == "sidecar" && len(template.Spec.Containers[1].Env) == 1
	})
}

// orphanAll deletes the Echo as `kubectl delete --cascade=orphan` does. The next one of that
// name does not adopt what it left.
func orphanAll(ctx context.Context, w *world) error {
	if err := w.begin(ctx); err != nil {
		return err
	}
	all := []func() client.Object{service, deployment, budget}
	if err := w.both(ctx, func(ctx context.Context, namespace string) error {
		echo := &echov1.Echo{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: one}}
		if err := w.plane.Client.Delete(ctx, echo, client.PropagationPolicy(metav1.DeletePropagationOrphan)); err != nil {
			return err
		}
		return w.await(ctx, convergence, "the Echo is gone", func(ctx context.Context) error {
			if err := w.plane.Client.Get(ctx, client.ObjectKeyFromObject(echo), echo); !apierrors.IsNotFound(err) {
				return orNone(err)
			}
			return nil
		})
	}); err != nil {
		return err
	}
	if err := w.createEcho(ctx, one, echov1.EchoSpec{Message: "m", Replicas: 2}); err != nil {
		return err
	}
	for _, empty := range all {
		if err := w.conflicts(ctx, empty, "none"); err != nil {
			return err
		}
	}
	for _, empty := range all {
		if err := w.onObject(ctx, empty, func(ctx context.Context, child client.Object) error { return w.plane.Client.Delete(ctx, child) }); err != nil {
			return err
		}
	}
	if err := w.isReady(ctx, one); err != nil {
		return err
	}
	return w.verify(ctx)
}

// autoscaled scales as a HorizontalPodAutoscaler does.
func autoscaled(ctx context.Context, w *world) error {
	if err := w.begin(ctx); err != nil {
		return err
	}
	w.expectedUIDs["PodDisruptionBudget echo-"+one]++ // One pod needs none.
	for _, replicas := range []int32{5, 1, 3} {
		if err := w.both(ctx, func(ctx context.Context, namespace string) error {
			echo := &echov1.Echo{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: one}}
			var scale autoscalingv1.Scale
			if err := w.plane.Client.SubResource("scale").Get(ctx, echo, &scale); err != nil {
				return err
			}
			if scale.Status.Selector != children.Selector(echo).String() || scale.Status.Replicas != scale.Spec.Replicas {
				return fmt.Errorf("an autoscaler reads %+v", scale)
			}
			scale.Spec.Replicas = replicas
			return w.plane.Client.SubResource("scale").Update(ctx, echo, client.WithSubResourceBody(&scale))
		}); err != nil {
			return err
		}
		if err := w.isReady(ctx, one); err != nil {
			return err
		}
		if err := w.settle(ctx); err != nil {
			return err
		}
		if err := w.staysSilent(ctx); err != nil {
			return err
		}
	}
	return w.verify(ctx)
}

func policyAdds(ctx context.Context, w *world) error {
	if err := w.begin(ctx); err != nil {
		return err
	}
	end, err := w.mutate(ctx, `Object{spec: Object.spec{template: Object.spec.template{
		metadata: Object.spec.template.metadata{labels: {"team": "blue"}, annotations: {"example.com/of": "a policy"}},
		spec: Object.spec.template.spec{containers: object.spec.template.spec.containers.map(c, Object.spec.template.spec.containers{
			name: c.name, env: [Object.spec.template.spec.containers.env{name: "TEAM", value: "blue"}]})}}}}`, w.fire, w.peaceful)
	if err != nil {
		return err
	}
	defer func() { _ = end(context.WithoutCancel(ctx)) }() // The next world of that number would tell.
	if err := w.staysSilent(ctx); err != nil {
		return err
	}
	if err := w.editEcho(ctx, one, func(s *echov1.EchoSpec) { s.Message = "policy" }); err != nil {
		return err
	}
	if err := w.isReady(ctx, one); err != nil {
		return err
	}
	return w.keeps(ctx, deployment, func(child client.Object) bool {
		template := child.(*appsv1.Deployment).Spec.Template
		return template.Labels["team"] == "blue" && len(template.Annotations) == 1 && len(template.Spec.Containers[0].Env) == 1
	})
}

// policyOverrules has a policy change what the operator writes: the operator says so and
// tries again, but at a bounded pace.
func policyOverrules(ctx context.Context, w *world) error {
	if err := w.begin(ctx); err != nil {
		return err
	}
	end, err := w.mutate(ctx, `Object{spec: Object.spec{template: Object.spec.template{spec: Object.spec.template.spec{
		containers: object.spec.template.spec.containers.map(c, Object.spec.template.spec.containers{
			name: c.name, image: "docker.io/library/mirror:1"})}}}}`, w.fire)
	if err != nil {
		return err
	}
	defer func() { _ = end(context.WithoutCancel(ctx)) }() // Mostly it is gone by then.
	if err := w.editEcho(ctx, one, func(s *echov1.EchoSpec) { s.Message = "n" }); err != nil {
		return err
	}
	const words = "Deployment: an admission policy or webhook changed it; the operator had written {"
	if err := w.tells(ctx, convergence, w.fire, echov1.ReasonRejected, words); err != nil {
		return err
	}
	if err := w.has(ctx, one, echov1.ConditionAvailable, echov1.ReasonServing); err != nil {
		return err
	}
	pause(ctx, silence) // The rollout ends, each of whose events is a reason to look again.
	before := len(w.proxy.Writes())
	pause(ctx, refusalWatch)
	if more := w.proxy.Writes()[before:]; len(more) > refusalsBound || len(more) == 0 {
		return fmt.Errorf("%d writes in %s, allowed are 1 to %d: %v", len(more), refusalWatch, refusalsBound, more)
	}
	start := time.Now()
	if err := end(ctx); err != nil {
		return err
	}
	if err := w.isReady(ctx, one); err != nil {
		return err
	}
	w.figures = append(w.figures, figure{What: "Recovery from a policy that overrules", Seconds: time.Since(start).Seconds(), Allowed: convergence.Seconds()})
	return w.verify(ctx)
}
