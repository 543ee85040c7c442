package scenarios

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/children"
	"github.com/kkloud-io/echo-operator/test/chaos/harness"
	"github.com/kkloud-io/echo-operator/test/chaos/kinds"
	"github.com/kkloud-io/echo-operator/test/chaos/oracle"
	"github.com/kkloud-io/echo-operator/test/chaos/proxy"
)

const (
	// observationPeriod is how long writes are counted. There are few attempts to observe an Echo
	// that makes none, because a write that is in progress may still complete.
	observationPeriod   = 3 * time.Second
	observationAttempts = 4

	// annotations is how often an Echo that is not ready is annotated during the observation. Each
	// annotation is an event.
	annotations = 15
)

// policyRun is a scenario of policies.
type policyRun struct {
	*harness.Environment
	policies []*appliedPolicy
}

// policyScenario runs policies at the same time.
func policyScenario(name string, cases []policyCase) harness.Scenario {
	return harness.Scenario{Name: name, Run: func(ctx context.Context, e *harness.Environment) error {
		s := &policyRun{Environment: e}
		for i, c := range cases {
			s.policies = append(s.policies, &appliedPolicy{policyCase: c, echo: fmt.Sprintf("p%d", i)})
		}
		defer func() { _ = s.removeAll(context.WithoutCancel(ctx)) }() // If the scenario fails before.
		return s.run(ctx)
	}}
}

// run creates an Echo for each policy, edits it, restarts the operator, removes the policies, and
// edits the Echoes again. Each step has to leave every status accurate, and to end without writes.
func (s *policyRun) run(ctx context.Context) error {
	err := s.forEach(func(p *appliedPolicy) error { return p.install(ctx, s.Environment) })
	if err != nil {
		return err
	}
	for _, step := range []func(context.Context) error{s.create, s.edit, s.expectFewWrites, s.restart, s.recover, s.restore} {
		if err = step(ctx); err != nil {
			break
		}
	}
	for _, p := range s.policies {
		if p.finding != nil {
			err = errors.Join(err, fmt.Errorf("policy %q: %w", p.name, p.finding))
		}
	}
	return err
}

// forEach does something for each policy, several at a time.
func (s *policyRun) forEach(do func(*appliedPolicy) error) error {
	var group errgroup.Group
	group.SetLimit(8)
	for _, p := range s.policies {
		group.Go(func() error {
			if err := do(p); err != nil {
				return fmt.Errorf("policy %q: %w", p.name, err)
			}
			return nil
		})
	}
	return group.Wait()
}

// await waits until each Echo without findings, whose policy the filter accepts, passes the check.
func (s *policyRun) await(ctx context.Context, step string, filter func(*appliedPolicy) bool, check func(context.Context, oracle.Workload) error) error {
	var names []string
	for _, p := range s.policies {
		if p.finding == nil && filter(p) {
			names = append(names, p.echo)
		}
	}
	findings, err := awaitWorkloads(ctx, s.Environment, s.Convergence, names, check)
	s.report(step, findings)
	return err
}

func (s *policyRun) awaitStatus(ctx context.Context, step string) error {
	stable := func(p *appliedPolicy) bool { return !p.unstable }
	return s.await(ctx, step, stable, func(ctx context.Context, w oracle.Workload) error { return checkStatus(ctx, s.Environment, w) })
}

func everyPolicy(*appliedPolicy) bool { return true }

// report records the findings by Echo.
func (s *policyRun) report(step string, findings map[string]error) {
	for _, p := range s.policies {
		if finding := findings[p.echo]; finding != nil {
			p.finding = fmt.Errorf("%s: %w", step, finding)
		}
	}
}

func (s *policyRun) create(ctx context.Context) error {
	if err := s.forEach(func(p *appliedPolicy) error {
		spec := withChild(p.kind())
		spec.Pod = podSettings()
		return s.Client.Create(ctx, &echov1.Echo{ObjectMeta: metav1.ObjectMeta{Namespace: s.Subject, Name: p.echo}, Spec: spec})
	}); err != nil {
		return err
	}
	return s.awaitStatus(ctx, "created")
}

// edit changes each Echo, and adds to the child that the policy is about.
func (s *policyRun) edit(ctx context.Context) error {
	if err := s.editEchoes(ctx, "n"); err != nil {
		return err
	}
	if err := s.awaitStatus(ctx, "edited"); err != nil {
		return err
	}
	if err := s.forEach(func(p *appliedPolicy) error {
		if !p.ofPods() {
			child := kinds.New(p.kind())
			child.SetNamespace(s.Subject)
			child.SetName(kinds.ChildName(p.kind(), p.echo))
			// The policy may cause the API server to reject it.
			_ = s.Client.Patch(ctx, child, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"example.com/of":"another owner"}}}`)))
		}
		return nil
	}); err != nil {
		return err
	}
	return s.awaitStatus(ctx, "a child was written by another client")
}

func (s *policyRun) editEchoes(ctx context.Context, message string) error {
	return s.forEach(func(p *appliedPolicy) error {
		return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
			echo, err := s.GetEcho(ctx, s.Subject, p.echo)
			if err != nil {
				return err
			}
			echo.Spec.Message = message
			echo.Spec.Port++
			return s.Client.Update(ctx, echo)
		})
	})
}

// expectFewWrites expects Echoes that are ready to cause no writes, and others few, whatever events
// arrive.
func (s *policyRun) expectFewWrites(ctx context.Context) error {
	var findings map[string]error
	for range observationAttempts {
		before := len(s.Proxy.Writes())
		took, err := s.disturb(ctx)
		if err != nil {
			return err
		}
		if findings, err = s.checkWrites(ctx, before, took); err != nil || len(findings) == 0 {
			return err
		}
	}
	s.report("settled", findings)
	return nil
}

// disturb annotates the Echoes that are retried, repeatedly. It returns how long that took: the observation
// period, or longer on a busy machine.
func (s *policyRun) disturb(ctx context.Context) (took time.Duration, err error) {
	all, err := workloads(ctx, s.Environment, s.Subject)
	if err != nil {
		return 0, err
	}
	start := time.Now()
	for i := range annotations {
		if err := s.forEach(func(p *appliedPolicy) error {
			w, exists := all[p.echo]
			if !exists || !p.retried(w.Echo) {
				return nil
			}
			patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"example.com/event":"%d"}}}`, i)
			return s.Client.Patch(ctx, w.Echo.DeepCopy(), client.RawPatch(types.MergePatchType, patch))
		}); err != nil {
			return 0, err
		}
		harness.Pause(ctx, observationPeriod/annotations)
	}
	return time.Since(start), ctx.Err()
}

// checkWrites checks the writes since a number of them, in a period. An Echo that is not ready is retried.
func (s *policyRun) checkWrites(ctx context.Context, before int, period time.Duration) (map[string]error, error) {
	all, err := workloads(ctx, s.Environment, s.Subject)
	if err != nil {
		return nil, err
	}
	writes, findings := s.Proxy.Writes(), map[string]error{}
	for _, p := range s.policies {
		w, exists := all[p.echo]
		if p.finding != nil || !exists {
			continue
		}
		bound := 0
		var pace error
		if p.retried(w.Echo) {
			bound = oracle.RejectedWriteBound(period)
			child := client.ObjectKey{Namespace: s.Subject, Name: kinds.ChildName(p.kind(), p.echo)}
			updates := oracle.Effective(oracle.WritesOf(writes[before:], p.resource.Resource, child))
			updates = slices.DeleteFunc(updates, func(w proxy.Write) bool { return w.Verb == "create" })
			pace = oracle.CheckPace("updates of "+child.Name, len(updates), period)
		}
		if err := errors.Join(pace, oracle.CheckWritesOf(p.echo, writes[before:], bound), oracle.CheckWritesOf(p.echo, writes, oracle.PolicyWriteBound)); err != nil {
			findings[p.echo] = err
		}
	}
	return findings, nil
}

// restart restarts the operator, which has to remember what it accepted.
func (s *policyRun) restart(ctx context.Context) error {
	before := len(s.Proxy.Writes())
	if err := errors.Join(s.Restart(), s.AwaitStart(ctx)); err != nil {
		return err
	}
	harness.Pause(ctx, observationPeriod)
	findings, err := s.checkWrites(ctx, before, observationPeriod)
	if err != nil {
		return err
	}
	s.report("restarted", findings)
	return s.awaitStatus(ctx, "restarted")
}

// recover removes the policies. Every Echo has to recover.
func (s *policyRun) recover(ctx context.Context) error {
	if err := s.removeAll(ctx); err != nil {
		return err
	}
	return s.await(ctx, "policy removed", everyPolicy, func(_ context.Context, w oracle.Workload) error { return w.CheckRecovered() })
}

func (s *policyRun) removeAll(ctx context.Context) error {
	return s.forEach(func(p *appliedPolicy) error {
		if p.remove == nil {
			return nil
		}
		return p.remove(ctx)
	})
}

// restore edits the Echoes. Every field has to become as declared.
func (s *policyRun) restore(ctx context.Context) error {
	if err := s.editEchoes(ctx, "o"); err != nil {
		return err
	}
	asDeclared := func(_ context.Context, w oracle.Workload) error { return w.CheckAsDeclared() }
	if err := s.await(ctx, "edited without the policy", everyPolicy, asDeclared); err != nil {
		return err
	}
	return s.expectFewWrites(ctx)
}

// appliedPolicy is a policy for an Echo of its own.
type appliedPolicy struct {
	policyCase
	echo string
	// remove removes the policy, and waits until it is no longer in effect.
	remove undo
	// finding is the first violation of a guarantee.
	finding error
}

// retried reports whether the operator writes the child again without an edit of the Echo.
func (p *appliedPolicy) retried(echo *echov1.Echo) bool {
	return p.unstable || oracle.CheckReadyNow(echo) != nil
}

// probeName is the name of an object that shows whether the policy is in effect.
func (p *appliedPolicy) probeName() string { return kinds.ChildName(p.kind(), p.echo) + "-probe" }

// probeAnnotation has a policy answer whether it is in effect.
const probeAnnotation = "kkloud.io/chaos-probe"

// install puts the policy into effect.
func (p *appliedPolicy) install(ctx context.Context, e *harness.Environment) error {
	object := fmt.Sprintf("object.metadata.name in [%q, %q]", kinds.ChildName(p.kind(), p.echo), p.probeName())
	if p.ofPods() {
		object = fmt.Sprintf(`has(object.metadata.labels) && %q in object.metadata.labels && object.metadata.labels[%q] == %q`,
			children.EchoLabel, children.EchoLabel, p.echo)
	}
	operations := p.operations
	if len(operations) == 0 {
		operations = []string{"CREATE", "UPDATE"}
	}
	expression := fmt.Sprintf(`has(object.metadata.annotations) && %q in object.metadata.annotations ? %s : request.operation in ["%s"] ? (%s) : []`,
		probeAnnotation, jsonPatch("add", "/metadata/annotations/seen", `"yes"`), strings.Join(operations, `", "`), p.patch)
	name := metav1.ObjectMeta{Name: e.Subject + "-" + p.echo}
	remove, err := install(ctx, e,
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
	if err != nil {
		return err
	}
	p.remove = func(ctx context.Context) error { return errors.Join(remove(ctx), p.awaitEffect(ctx, e, false)) }
	return p.awaitEffect(ctx, e, true)
}

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
