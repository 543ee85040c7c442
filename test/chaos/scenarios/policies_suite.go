package scenarios

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/children"
	"github.com/kkloud-io/echo-operator/test/chaos/harness"
	"github.com/kkloud-io/echo-operator/test/chaos/kinds"
)

// generatedScenarios is the number of scenarios that share the generated policies.
const generatedScenarios = 64

// listedPolicies are the policies that are not generated.
var listedPolicies = []struct {
	name     string
	cases    func() []policyCase
	longOnly bool
}{
	{name: "policies of real life", cases: policiesOfRealLife},
	{name: "policies that remove metadata", cases: policiesThatRemove},
	{name: "policies whose result alternates", cases: policiesThatAlternate},
	{name: "policies that stop rollouts", cases: policiesThatStop, longOnly: true},
}

// policies has admission policies change what the operator writes: one for each change of each leaf
// field of each child, and those of real life. Each policy has an Echo of its own. Their Echoes share
// a namespace. The short form has one scenario of the generated policies, which the seed chooses.
func policies(o harness.Options) (all []harness.Scenario, err error) {
	for _, list := range listedPolicies {
		if o.Short && list.longOnly {
			continue
		}
		all = append(all, policyScenario(list.name, func(context.Context, *harness.Environment) ([]policyCase, error) { return list.cases(), nil }))
	}
	for i := range uint64(generatedScenarios) {
		if o.Short && i != o.Seed%generatedScenarios {
			continue
		}
		all = append(all, policyScenario(fmt.Sprintf("generated policies %d of %d", i+1, generatedScenarios),
			func(ctx context.Context, e *harness.Environment) (share []policyCase, err error) {
				cases, err := allGenerated(ctx, e)
				for n := i; n < uint64(len(cases)); n += generatedScenarios {
					share = append(share, cases[n])
				}
				return share, err
			}))
	}
	if slices.ContainsFunc(all, func(s harness.Scenario) bool { return strings.Contains(s.Name, o.Scenario) }) {
		return all, nil
	}
	// Any other text selects policies by their name.
	return []harness.Scenario{policyScenario(o.Scenario, func(ctx context.Context, e *harness.Environment) (selected []policyCase, err error) {
		cases, err := allGenerated(ctx, e)
		for _, list := range listedPolicies {
			cases = append(cases, list.cases()...)
		}
		for _, c := range cases {
			if strings.Contains(c.name, o.Scenario) {
				selected = append(selected, c)
			}
		}
		return selected, err
	})}, nil
}

// allGenerated returns the policies for all children of the Echo "two".
func allGenerated(ctx context.Context, e *harness.Environment) (all []policyCase, err error) {
	for _, kind := range children.DifferentObjectKinds() {
		child := kinds.New(kind)
		if err := e.Client.Get(ctx, client.ObjectKey{Namespace: e.Control, Name: kinds.ChildName(kind, two)}, child); err != nil {
			return nil, err
		}
		cases, err := generatedPolicies(kind, child)
		if err != nil {
			return nil, err
		}
		all = append(all, cases...)
	}
	return all, nil
}

// policySpec is the spec of an Echo that has the kind of child. Its pod settings have the generated
// policies change each of them.
func policySpec(kind children.Kind) echov1.EchoSpec {
	spec := withChild(kind)
	spec.StatusCode, spec.Pod = 503, podSettings()
	return spec
}

// policyScenario runs policies. The Echo "two" exists in both namespaces, and has no policy.
func policyScenario(name string, cases func(context.Context, *harness.Environment) ([]policyCase, error)) harness.Scenario {
	return harness.Scenario{Name: name, Run: func(ctx context.Context, e *harness.Environment) error {
		if err := e.CreateEcho(ctx, two, policySpec(kinds.ByName("VerifierDaemonSet"))); err != nil {
			return err
		}
		if err := errors.Join(e.AwaitReady(ctx, two), e.Await(ctx, harness.ConvergenceTimeout, "control Echo is ready", e.AllReady(e.Control))); err != nil {
			return err
		}
		chosen, err := cases(ctx, e)
		if err != nil {
			return err
		}
		s := &policyRun{Environment: e}
		for i, c := range chosen {
			s.policies = append(s.policies, &appliedPolicy{policyCase: c, echo: fmt.Sprintf("p%d", i)})
		}
		defer func() { _ = s.removeAll(context.WithoutCancel(ctx)) }() // If the scenario fails before.
		return s.run(ctx)
	}}
}

// appliedPolicy is a policy for an Echo of its own.
type appliedPolicy struct {
	policyCase
	echo   string
	remove undo
	// finding is the first violation of a guarantee.
	finding error
}

// probeName is the name of an object that shows whether the policy is in effect.
func (p *appliedPolicy) probeName() string { return kinds.ChildName(p.kind(), p.echo) + "-probe" }

// probeAnnotation has a policy answer whether it is in effect.
const probeAnnotation = "kkloud.io/chaos-probe"

// install puts the policy into effect.
func (p *appliedPolicy) install(ctx context.Context, e *harness.Environment) (err error) {
	object := fmt.Sprintf("object.metadata.name in [%q, %q]", kinds.ChildName(p.kind(), p.echo), p.probeName())
	if p.ofPods() {
		object = fmt.Sprintf(`has(object.metadata.labels) && %q in object.metadata.labels && object.metadata.labels[%q] == %q`,
			children.EchoLabel, children.EchoLabel, p.echo)
	}
	var operations []string
	if p.create {
		operations = append(operations, `"CREATE"`)
	}
	if p.update {
		operations = append(operations, `"UPDATE"`)
	}
	expression := fmt.Sprintf(`has(object.metadata.annotations) && %q in object.metadata.annotations ? %s : request.operation in [%s] ? (%s) : []`,
		probeAnnotation, jsonPatch("add", "/metadata/annotations/seen", `"yes"`), strings.Join(operations, ", "), p.patch)
	name := metav1.ObjectMeta{Name: e.Subject + "-" + p.echo}
	p.remove, err = install(ctx, e,
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
		&admissionregistrationv1.MutatingAdmissionPolicyBinding{ObjectMeta: name, Spec: admissionregistrationv1.MutatingAdmissionPolicyBindingSpec{PolicyName: name.Name}})
	return err
}

func (p *appliedPolicy) ofPods() bool { return p.resource.Resource == "pods" }

// probe returns an object that the policy marks.
func (p *appliedPolicy) probe(namespace string) (probe client.Object) {
	if p.ofPods() {
		template := uncontrolled(deployment, namespace).(*appsv1.Deployment).Spec.Template
		probe = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Labels: map[string]string{children.EchoLabel: p.echo}}, Spec: template.Spec}
	} else {
		probe = uncontrolled(p.kind(), namespace)
	}
	probe.SetName(p.probeName())
	probe.SetAnnotations(map[string]string{probeAnnotation: "yes"})
	return probe
}

// awaitEffect waits until the policy is in effect, or no longer.
func (p *appliedPolicy) awaitEffect(ctx context.Context, e *harness.Environment, want bool) error {
	return e.Await(ctx, harness.ConvergenceTimeout, fmt.Sprintf("policy %q is in effect: %v", p.name, want), func(ctx context.Context) error {
		probe := p.probe(e.Subject)
		if err := e.Client.Create(ctx, probe, client.DryRunAll); err != nil {
			return err
		}
		if (probe.GetAnnotations()["seen"] != "") != want {
			return errNotInEffect
		}
		return nil
	})
}
