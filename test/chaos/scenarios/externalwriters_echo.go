package scenarios

import (
	"context"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/children"
	"github.com/kkloud-io/echo-operator/test/chaos/harness"
	"github.com/kkloud-io/echo-operator/test/chaos/kinds"
)

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

// orphanAll deletes the Echo as `kubectl delete --cascade=orphan` does. The next Echo of that name
// adopts the orphans.
func orphanAll(ctx context.Context, e *harness.Environment) error {
	if err := createReady(ctx, e); err != nil {
		return err
	}
	if err := e.InBoth(ctx, func(ctx context.Context, namespace string) error {
		echo := &echov1.Echo{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: one}}
		if err := e.Client.Delete(ctx, echo, client.PropagationPolicy(metav1.DeletePropagationOrphan)); err != nil {
			return err
		}
		return e.Await(ctx, harness.ConvergenceTimeout, "Echo one is deleted", func(ctx context.Context) error {
			return expectNotFound(e.Client.Get(ctx, client.ObjectKeyFromObject(echo), echo))
		})
	}); err != nil {
		return err
	}
	if err := e.CreateEcho(ctx, one, everyChild()); err != nil {
		return err
	}
	if err := e.AwaitReady(ctx, one); err != nil {
		return err
	}
	return e.Verify(ctx)
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

// autoscale scales the Echo as a HorizontalPodAutoscaler does.
func autoscale(ctx context.Context, e *harness.Environment) error {
	if err := createReady(ctx, e); err != nil {
		return err
	}
	for _, kind := range kinds.Servers() {
		if kind.Optional { // With one replica there is none.
			e.AllowCreation(kind, one)
		}
	}
	for _, replicas := range []int32{5, 1, 3} {
		if err := e.InBoth(ctx, func(ctx context.Context, namespace string) error {
			echo := &echov1.Echo{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: one}}
			var scale autoscalingv1.Scale
			if err := e.Client.SubResource("scale").Get(ctx, echo, &scale); err != nil {
				return err
			}
			if want := children.Selector(echo).String(); scale.Status.Selector != want || scale.Status.Replicas != scale.Spec.Replicas {
				return fmt.Errorf("scale of Echo %s: want selector %s and %d replicas, got %+v", one, want, scale.Spec.Replicas, scale.Status)
			}
			scale.Spec.Replicas = replicas
			return e.Client.SubResource("scale").Update(ctx, echo, client.WithSubResourceBody(&scale))
		}); err != nil {
			return err
		}
		if err := e.AwaitReady(ctx, one); err != nil {
			return err
		}
		if err := e.Settle(ctx); err != nil {
			return err
		}
		if err := e.ExpectNoWrites(ctx); err != nil {
			return err
		}
	}
	return e.Verify(ctx)
}

func policyAdds(ctx context.Context, e *harness.Environment) error {
	if err := createReady(ctx, e); err != nil {
		return err
	}
	remove, err := installMutatingPolicy(ctx, e, `Object{spec: Object.spec{template: Object.spec.template{
		metadata: Object.spec.template.metadata{labels: {"team": "blue"}, annotations: {"example.com/of": "a policy"}},
		spec: Object.spec.template.spec{containers: object.spec.template.spec.containers.map(c, Object.spec.template.spec.containers{
			name: c.name, env: [Object.spec.template.spec.containers.env{name: "TEAM", value: "blue"}]})}}}}`, e.Subject, e.Control)
	if err != nil {
		return err
	}
	defer func() { _ = remove(context.WithoutCancel(ctx)) }() // The next scenario would fail to install a policy.
	if err := e.ExpectNoWrites(ctx); err != nil {
		return err
	}
	if err := e.EditEcho(ctx, one, func(s *echov1.EchoSpec) { s.Message = "policy" }); err != nil {
		return err
	}
	if err := e.AwaitReady(ctx, one); err != nil {
		return err
	}
	return expectKept(ctx, e, deployment, func(child client.Object) bool {
		template := child.(*appsv1.Deployment).Spec.Template
		return template.Labels["team"] == "blue" && len(template.Annotations) == 1 && len(template.Spec.Containers[0].Env) == 1
	})
}

// policyOverrides has an admission policy change the image. The operator accepts and reports it.
func policyOverrides(ctx context.Context, e *harness.Environment) error {
	if err := createReady(ctx, e); err != nil {
		return err
	}
	remove, err := installMutatingPolicy(ctx, e, `Object{spec: Object.spec{template: Object.spec.template{spec: Object.spec.template.spec{
		containers: object.spec.template.spec.containers.map(c, Object.spec.template.spec.containers{
			name: c.name, image: "docker.io/library/mirror:1"})}}}}`, e.Subject)
	if err != nil {
		return err
	}
	defer func() { _ = remove(context.WithoutCancel(ctx)) }() // If the scenario fails before it removes the policy.
	if err := e.EditEcho(ctx, one, func(s *echov1.EchoSpec) { s.Message = "n" }); err != nil {
		return err
	}
	if err := e.AwaitCondition(ctx, one, echov1.ConditionOverridden, echov1.ReasonChangedByAdmission); err != nil {
		return err
	}
	if err := e.AwaitReady(ctx, one); err != nil {
		return err
	}
	if err := e.ExpectNoWrites(ctx); err != nil {
		return err
	}
	if err := remove(ctx); err != nil {
		return err
	}
	if err := e.EditEcho(ctx, one, func(s *echov1.EchoSpec) { s.Message = "o" }); err != nil {
		return err
	}
	if err := e.AwaitCondition(ctx, one, echov1.ConditionOverridden, echov1.ReasonAsExpected); err != nil {
		return err
	}
	if err := e.AwaitReady(ctx, one); err != nil {
		return err
	}
	return e.Verify(ctx)
}
