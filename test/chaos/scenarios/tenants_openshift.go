package scenarios

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/test/chaos/harness"
	"github.com/kkloud-io/echo-operator/test/chaos/oracle"
	"github.com/kkloud-io/echo-operator/test/internal/openshift"
)

// openShift runs Echoes in a namespace that admits pods as OpenShift does by default. The control
// namespace only enforces the restricted Pod Security Standard: the same specs are ready in both.
func openShift(harness.Options) (all []harness.Scenario, err error) {
	for _, s := range []struct {
		name string
		spec echov1.EchoSpec
	}{
		{"default image", echov1.EchoSpec{Message: "m", Replicas: 2}},
		{"page on a port below 1024", echov1.EchoSpec{Message: "m", Page: &echov1.Page{}, TargetPort: 80}},
		{"image of the user's own", echov1.EchoSpec{Message: "m", Image: customImage}},
		{"server of the user's own", echov1.EchoSpec{Message: "m", Image: customImage, Command: []string{"serve"}}},
	} {
		all = append(all, harness.Scenario{Name: s.name, Run: func(ctx context.Context, e *harness.Environment) error {
			return underRestrictedV2(ctx, e, s.spec)
		}})
	}
	return all, nil
}

// underRestrictedV2 expects an Echo to be ready, and after an edit that replaces its pods.
func underRestrictedV2(ctx context.Context, e *harness.Environment, spec echov1.EchoSpec) error {
	remove, err := admitAsOpenShift(ctx, e)
	if err != nil {
		return err
	}
	defer func() { _ = remove(context.WithoutCancel(ctx)) }() // The next scenario installs them again.
	if err := e.CreateEcho(ctx, one, spec); err != nil {
		return err
	}
	if err := e.AwaitReady(ctx, one); err != nil {
		return err
	}
	if err := e.EditEcho(ctx, one, func(s *echov1.EchoSpec) { s.Message = "n" }); err != nil {
		return err
	}
	if err := e.AwaitReady(ctx, one); err != nil {
		return err
	}
	var pods corev1.PodList
	if err := e.Client.List(ctx, &pods, client.InNamespace(e.Subject)); err != nil {
		return err
	}
	for i := range pods.Items {
		if user := pods.Items[i].Spec.Containers[0].SecurityContext.RunAsUser; ptr.Deref(user, 0) != openshift.FirstUser {
			return oracle.Findingf(&pods.Items[i], "runAsUser = %v, want the user %d of the namespace", user, int64(openshift.FirstUser))
		}
	}
	return e.Verify(ctx)
}

// admitAsOpenShift installs the policies for the subject namespace.
func admitAsOpenShift(ctx context.Context, e *harness.Environment) (undo, error) {
	mark := func(labels, annotations map[string]string) func(context.Context) error {
		return func(ctx context.Context) error {
			namespace := &corev1.Namespace{}
			if err := e.Client.Get(ctx, client.ObjectKey{Name: e.Subject}, namespace); err != nil {
				return err
			}
			return e.Update(ctx, namespace, func() {
				for name := range openshift.Labels {
					delete(namespace.Labels, name)
				}
				maps.Copy(namespace.Labels, labels)
				namespace.Annotations = annotations
			})
		}
	}
	objects, err := openshift.Objects()
	if err != nil {
		return nil, err
	}
	for _, object := range objects { // They are cluster-wide, and other scenarios may use them, too.
		if err := client.IgnoreAlreadyExists(e.Client.Create(ctx, object)); err != nil {
			return nil, err
		}
	}
	if err := mark(openshift.Labels, openshift.Annotations)(ctx); err != nil {
		return nil, err
	}
	remove := mark(nil, nil)
	err = e.Await(ctx, harness.ConvergenceTimeout, "policies are in effect", func(ctx context.Context) error {
		admitted, outside := restrictedPod(e.Subject), restrictedPod(e.Subject)
		if err := e.Client.Create(ctx, admitted, client.DryRunAll); err != nil {
			return err
		}
		if user := admitted.Spec.Containers[0].SecurityContext.RunAsUser; ptr.Deref(user, 0) != openshift.FirstUser {
			return fmt.Errorf("runAsUser = %v, want that of the namespace: %w", user, errNotInEffect)
		}
		outside.Spec.SecurityContext.RunAsUser = new(int64(65532))
		if err := e.Client.Create(ctx, outside, client.DryRunAll); err == nil || !strings.Contains(err.Error(), "runAsUser must be in the range") {
			return fmt.Errorf("pod with a user outside of the range: want a rejection, got %w", orAccepted(err))
		}
		return nil
	})
	if err != nil {
		return nil, errors.Join(err, remove(ctx))
	}
	return remove, nil
}

// restrictedPod returns a pod that meets the restricted Pod Security Standard and sets no user.
func restrictedPod(namespace string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "probe"}, Spec: corev1.PodSpec{
		SecurityContext: &corev1.PodSecurityContext{
			RunAsNonRoot: new(true), SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
		Containers: []corev1.Container{{Name: "probe", Image: customImage, SecurityContext: &corev1.SecurityContext{
			AllowPrivilegeEscalation: new(false), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		}}},
	}}
}
