package scenarios

import (
	"context"
	"errors"
	"fmt"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kkloud-io/echo-operator/internal/children"
	"github.com/kkloud-io/echo-operator/test/chaos/harness"
	"github.com/kkloud-io/echo-operator/test/chaos/kinds"
)

// mutates has a policy change what the operator writes for the Echo "one".
func mutates(name string, p policyCase) disturbance {
	return disturbance{name: name, probes: true, endless: p.unstable, start: func(ctx context.Context, e *harness.Environment) (undo, error) {
		remove, err := p.install(ctx, e)
		if err != nil {
			return nil, err
		}
		return func(ctx context.Context) error {
			err := errors.Join(remove(ctx), p.awaitEffect(ctx, e, false))
			if p.adds { // The operator keeps the fields of others.
				e.AllowCreation(p.kind(), one)
				err = errors.Join(err, client.IgnoreNotFound(e.Client.Delete(ctx, childOf(e, p.kind()))))
			}
			return err
		}, p.awaitEffect(ctx, e, true)
	}}
}

// probeAnnotation has a policy report whether it is in effect.
const probeAnnotation = "kkloud.io/chaos-probe"

// probeName is the name of an object that shows whether the policy is in effect.
func (p policyCase) probeName() string { return kinds.ChildName(p.kind(), one) + "-probe" }

// install puts the policy into effect.
func (p policyCase) install(ctx context.Context, e *harness.Environment) (undo, error) {
	object := fmt.Sprintf("object.metadata.name in [%q, %q]", kinds.ChildName(p.kind(), one), p.probeName())
	if p.ofPods() {
		object = fmt.Sprintf(`has(object.metadata.labels) && %q in object.metadata.labels && object.metadata.labels[%q] == %q`,
			children.EchoLabel, children.EchoLabel, one)
	}
	operations := p.operations
	if len(operations) == 0 {
		operations = []string{"CREATE", "UPDATE"}
	}
	expression := fmt.Sprintf(`has(object.metadata.annotations) && %q in object.metadata.annotations ? %s : request.operation in ["%s"] ? (%s) : []`,
		probeAnnotation, jsonPatch("add", "/metadata/annotations/seen", `"yes"`), strings.Join(operations, `", "`), p.patch)
	name := metav1.ObjectMeta{Name: e.Subject}
	return install(ctx, e,
		&admissionregistrationv1.MutatingAdmissionPolicy{ObjectMeta: name, Spec: admissionregistrationv1.MutatingAdmissionPolicySpec{
			FailurePolicy:      ptr.To(admissionregistrationv1.Fail),
			ReinvocationPolicy: admissionregistrationv1.NeverReinvocationPolicy,
			MatchConstraints:   matchWrites(p.resource, e.Subject),
			MatchConditions:    []admissionregistrationv1.MatchCondition{{Name: "object", Expression: object}},
			Mutations: []admissionregistrationv1.Mutation{{
				PatchType: admissionregistrationv1.PatchTypeJSONPatch,
				JSONPatch: &admissionregistrationv1.JSONPatch{Expression: expression},
			}},
		}},
		&admissionregistrationv1.MutatingAdmissionPolicyBinding{
			ObjectMeta: name, Spec: admissionregistrationv1.MutatingAdmissionPolicyBindingSpec{PolicyName: name.Name},
		})
}

// awaitEffect waits until the policy is in effect, or no longer.
func (p policyCase) awaitEffect(ctx context.Context, e *harness.Environment, want bool) error {
	return e.Await(ctx, harness.ConvergenceTimeout, fmt.Sprintf("policy %q is in effect: %v", p.name, want), func(ctx context.Context) error {
		var probe client.Object
		if p.ofPods() {
			template := uncontrolled(deployment, e.Subject).(*appsv1.Deployment).Spec.Template
			probe = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: e.Subject, Labels: map[string]string{children.EchoLabel: one}}, Spec: template.Spec}
		} else {
			probe = uncontrolled(p.kind(), e.Subject)
		}
		probe.SetName(p.probeName())
		probe.SetAnnotations(map[string]string{probeAnnotation: "yes"})
		if err := e.Client.Create(ctx, probe, client.DryRunAll); err != nil {
			return err
		}
		if (probe.GetAnnotations()["seen"] != "") != want {
			return errNotInEffect
		}
		return nil
	})
}
