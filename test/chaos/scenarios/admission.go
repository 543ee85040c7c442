package scenarios

import (
	"context"
	"errors"
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kkloud-io/echo-operator/test/chaos/harness"
)

// undo removes what a scenario has installed.
type undo func(context.Context) error

// install creates objects, and returns how to delete them.
func install(ctx context.Context, e *harness.Environment, objects ...client.Object) (undo, error) {
	remove := func(ctx context.Context) error {
		var errs []error
		for _, object := range objects {
			errs = append(errs, client.IgnoreNotFound(e.Client.Delete(ctx, object)))
		}
		return errors.Join(errs...)
	}
	for _, object := range objects {
		if err := e.Client.Create(ctx, object); err != nil {
			return nil, errors.Join(err, remove(ctx))
		}
	}
	return remove, nil
}

// matchWrites matches creations and updates of the resource in the namespaces.
func matchWrites(resource schema.GroupVersionResource, namespaces ...string) *admissionregistrationv1.MatchResources {
	return &admissionregistrationv1.MatchResources{
		NamespaceSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{
			Key: "kubernetes.io/metadata.name", Operator: metav1.LabelSelectorOpIn, Values: namespaces,
		}}},
		ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: admissionregistrationv1.RuleWithOperations{
			Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update},
			Rule: admissionregistrationv1.Rule{
				APIGroups: []string{resource.Group}, APIVersions: []string{resource.Version}, Resources: []string{resource.Resource},
			},
		}}},
	}
}

var (
	errExists      = errors.New("the object exists")
	errNotInEffect = errors.New("the policy is not in effect")
)

// installValidatingPolicy has a policy reject what the expression does not allow, with the message,
// and waits until the policy rejects the probe.
func installValidatingPolicy(
	ctx context.Context, e *harness.Environment, resource schema.GroupVersionResource, allowed, message string, probe func(context.Context) error,
) (undo, error) {
	name := metav1.ObjectMeta{Name: e.Subject}
	remove, err := install(ctx, e,
		&admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: name, Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			FailurePolicy:    ptr.To(admissionregistrationv1.Fail),
			MatchConstraints: matchWrites(resource, e.Subject),
			Validations:      []admissionregistrationv1.Validation{{Expression: allowed, Message: message}},
		}},
		&admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: name, Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: name.Name, ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
		}})
	if err != nil {
		return nil, err
	}
	err = e.Await(ctx, harness.ConvergenceTimeout, "policy is in effect", func(ctx context.Context) error {
		if err := probe(ctx); !apierrors.IsInvalid(err) && !apierrors.IsForbidden(err) {
			return fmt.Errorf("write that the policy forbids: want a rejection, got %w", orAccepted(err))
		}
		return nil
	})
	if err != nil {
		return nil, errors.Join(err, remove(ctx))
	}
	return remove, nil
}
