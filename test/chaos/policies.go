package main

import (
	"context"
	"errors"
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// undo ends what a scenario has put in place.
type undo func(context.Context) error

// install creates objects, and returns how to remove them.
func (w *world) install(ctx context.Context, objects ...client.Object) (undo, error) {
	remove := func(ctx context.Context) error {
		var errs []error
		for _, object := range objects {
			errs = append(errs, client.IgnoreNotFound(w.plane.Client.Delete(ctx, object)))
		}
		return errors.Join(errs...)
	}
	for _, object := range objects {
		if err := w.plane.Client.Create(ctx, object); err != nil {
			return nil, errors.Join(err, remove(ctx))
		}
	}
	return remove, nil
}

// matching selects what is written to the resource in the namespaces.
func matching(group, resource string, namespaces ...string) *admissionregistrationv1.MatchResources {
	return &admissionregistrationv1.MatchResources{
		NamespaceSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{
			Key: "kubernetes.io/metadata.name", Operator: metav1.LabelSelectorOpIn, Values: namespaces,
		}}},
		ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: admissionregistrationv1.RuleWithOperations{
			Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update},
			Rule:       admissionregistrationv1.Rule{APIGroups: []string{group}, APIVersions: []string{"v1"}, Resources: []string{resource}},
		}}},
	}
}

// forbid has a policy refuse what the expression does not allow, with the words given, and
// waits until it refuses the probe.
func (w *world) forbid(ctx context.Context, group, resource, allowed, words string, probe func(context.Context) error) (undo, error) {
	name := metav1.ObjectMeta{Name: w.fire}
	remove, err := w.install(ctx,
		&admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: name, Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			FailurePolicy:    ptr.To(admissionregistrationv1.Fail),
			MatchConstraints: matching(group, resource, w.fire),
			Validations:      []admissionregistrationv1.Validation{{Expression: allowed, Message: words}},
		}},
		&admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: name, Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: name.Name, ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
		}})
	if err != nil {
		return nil, err
	}
	err = w.await(ctx, convergence, "the policy is in force", func(ctx context.Context) error {
		if err := probe(ctx); !apierrors.IsInvalid(err) && !apierrors.IsForbidden(err) {
			return fmt.Errorf("it allowed what it should not: %w", orNone(err))
		}
		return nil
	})
	if err != nil {
		return nil, errors.Join(err, remove(ctx))
	}
	return remove, nil
}

// mutate has a policy change every Deployment in the namespaces as the apply configuration
// says, and waits until it does.
func (w *world) mutate(ctx context.Context, configuration string, namespaces ...string) (undo, error) {
	name := metav1.ObjectMeta{Name: w.fire}
	remove, err := w.install(ctx,
		&admissionregistrationv1.MutatingAdmissionPolicy{ObjectMeta: name, Spec: admissionregistrationv1.MutatingAdmissionPolicySpec{
			FailurePolicy:      ptr.To(admissionregistrationv1.Fail),
			ReinvocationPolicy: admissionregistrationv1.NeverReinvocationPolicy,
			MatchConstraints:   matching("apps", "deployments", namespaces...),
			Mutations: []admissionregistrationv1.Mutation{{
				PatchType:          admissionregistrationv1.PatchTypeApplyConfiguration,
				ApplyConfiguration: &admissionregistrationv1.ApplyConfiguration{Expression: configuration},
			}},
		}},
		&admissionregistrationv1.MutatingAdmissionPolicyBinding{ObjectMeta: name, Spec: admissionregistrationv1.MutatingAdmissionPolicyBindingSpec{PolicyName: name.Name}},
	)
	if err != nil {
		return nil, err
	}
	err = w.await(ctx, convergence, "the policy is in force", func(ctx context.Context) error {
		for _, namespace := range namespaces {
			probe := foreign(deployment(), namespace).(*appsv1.Deployment)
			probe.Name = "probe"
			plain := probe.DeepCopy()
			if err := w.plane.Client.Create(ctx, probe, client.DryRunAll); err != nil {
				return err
			}
			if len(probe.Spec.Template.Labels) == len(plain.Spec.Template.Labels) &&
				probe.Spec.Template.Spec.Containers[0].Image == plain.Spec.Template.Spec.Containers[0].Image {
				return errors.New("it changes nothing")
			}
		}
		return nil
	})
	if err != nil {
		return nil, errors.Join(err, remove(ctx))
	}
	return remove, nil
}
