package scenarios

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
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
	// neighbor is what the policies did to an Echo that has none.
	neighbor error
}

// run creates an Echo for each policy, edits it, restarts the operator, removes the policies, and
// edits the Echoes again. Each step has to leave every status accurate, and to end without writes.
func (s *policyRun) run(ctx context.Context) error {
	if err := s.forEach(func(p *appliedPolicy) error { return p.install(ctx, s.Environment) }); err != nil {
		return err
	}
	if err := s.forEach(func(p *appliedPolicy) error { return p.awaitEffect(ctx, s.Environment, true) }); err != nil {
		return err
	}
	for _, step := range []func(context.Context) error{s.create, s.edit, s.editNeighbor, s.expectFewWrites, s.restart, s.recover, s.restore} {
		if err := step(ctx); err != nil {
			return errors.Join(err, s.findings())
		}
	}
	return s.findings()
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

func (s *policyRun) findings() error {
	err := s.neighbor
	for _, p := range s.policies {
		if p.finding != nil {
			err = errors.Join(err, fmt.Errorf("policy %q: %w", p.name, p.finding))
		}
	}
	return err
}

// chosen returns the Echoes without findings whose policies the filter accepts.
func (s *policyRun) chosen(filter func(*appliedPolicy) bool) (names []string) {
	for _, p := range s.policies {
		if p.finding == nil && filter(p) {
			names = append(names, p.echo)
		}
	}
	return names
}

func isStable(p *appliedPolicy) bool  { return !p.unstable }
func everyPolicy(*appliedPolicy) bool { return true }

// await waits until each named Echo passes the check, and records the findings.
func (s *policyRun) await(ctx context.Context, step string, names []string, check func(context.Context, oracle.Workload) error) error {
	findings, err := awaitWorkloads(ctx, s.Environment, s.Convergence, names, check)
	if err != nil {
		return err
	}
	s.report(step, findings)
	return nil
}

func (s *policyRun) awaitStatus(ctx context.Context, step string, names []string) error {
	return s.await(ctx, step, names, func(ctx context.Context, w oracle.Workload) error { return checkStatus(ctx, s.Environment, w) })
}

func (s *policyRun) create(ctx context.Context) error {
	if err := s.forEach(func(p *appliedPolicy) error {
		return s.Client.Create(ctx, &echov1.Echo{
			ObjectMeta: metav1.ObjectMeta{Namespace: s.Subject, Name: p.echo}, Spec: policySpec(p.kind()),
		})
	}); err != nil {
		return err
	}
	// A policy for updates also applies to those of kube-controller-manager, which may be unable to
	// start pods then. The operator cannot report the cause until it makes an update, too.
	return s.awaitStatus(ctx, "created", s.chosen(func(p *appliedPolicy) bool { return p.create && !p.unstable }))
}

// edit changes each Echo, and adds to the child that the policy is about.
func (s *policyRun) edit(ctx context.Context) error {
	if err := s.forEach(func(p *appliedPolicy) error { return s.editEcho(ctx, p, "n") }); err != nil {
		return err
	}
	if err := s.awaitStatus(ctx, "edited", s.chosen(isStable)); err != nil {
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
	return s.awaitStatus(ctx, "a child was written by another client", s.chosen(isStable))
}

func (s *policyRun) editEcho(ctx context.Context, p *appliedPolicy, message string) error {
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		echo, err := s.GetEcho(ctx, s.Subject, p.echo)
		if err != nil {
			return err
		}
		echo.Spec.Message = message
		echo.Spec.Port++
		return s.Client.Update(ctx, echo)
	})
}

// editNeighbor edits an Echo without a policy. The operator has to act on it in time; the pods depend on
// kube-controller-manager.
func (s *policyRun) editNeighbor(ctx context.Context) error {
	start := time.Now()
	if err := s.EditEcho(ctx, two, func(spec *echov1.EchoSpec) { spec.Message = "n" }); err != nil {
		return err
	}
	if err := s.AwaitEcho(ctx, harness.ConvergenceTimeout, s.Subject, two, "is observed", oracle.CheckObserved); err != nil {
		return err
	}
	s.neighbor = oracle.CheckDuration("edit of an Echo without a policy", time.Since(start), neighborLimit)
	return s.AwaitReady(ctx, two)
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

// retried reports whether the operator writes the child again without an edit of the Echo.
func (p *appliedPolicy) retried(echo *echov1.Echo) bool {
	return p.unstable || oracle.CheckReadyNow(echo) != nil
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
			pace = s.checkPace(p, writes[before:], period)
		}
		if err := errors.Join(pace, oracle.CheckWritesOf(p.echo, writes[before:], bound), oracle.CheckWritesOf(p.echo, writes, oracle.PolicyWriteBound)); err != nil {
			findings[p.echo] = err
		}
	}
	if err := oracle.CheckWritesOf(two, writes[before:], 0); err != nil {
		findings[two] = err
	}
	return findings, nil
}

// checkPace checks how often the operator updated the child that the policy changes.
func (s *policyRun) checkPace(p *appliedPolicy, writes []proxy.Write, period time.Duration) error {
	child := client.ObjectKey{Namespace: s.Subject, Name: kinds.ChildName(p.kind(), p.echo)}
	updates := slices.DeleteFunc(oracle.WritesOf(writes, p.resource.Resource, child), func(w proxy.Write) bool { return w.Verb == "create" })
	return oracle.CheckPace("updates of "+child.Name, len(oracle.Effective(updates)), period)
}

// report records findings, by Echo.
func (s *policyRun) report(step string, findings map[string]error) {
	if finding := findings[two]; finding != nil && s.neighbor == nil {
		s.neighbor = fmt.Errorf("%s: %w", step, finding)
	}
	for _, p := range s.policies {
		if finding := findings[p.echo]; finding != nil {
			p.finding = fmt.Errorf("%s: %w", step, finding)
		}
	}
}

// restart restarts the operator, which has to remember what it accepted.
func (s *policyRun) restart(ctx context.Context) error {
	before := len(s.Proxy.Writes())
	if err := s.Restart(); err != nil {
		return err
	}
	if err := s.AwaitStart(ctx); err != nil {
		return err
	}
	harness.Pause(ctx, observationPeriod)
	findings, err := s.checkWrites(ctx, before, observationPeriod)
	if err != nil {
		return err
	}
	s.report("restarted", findings)
	return s.awaitStatus(ctx, "restarted", s.chosen(isStable))
}

// recover removes the policies. Every Echo has to recover.
func (s *policyRun) recover(ctx context.Context) error {
	if err := s.removeAll(ctx); err != nil {
		return err
	}
	if err := s.forEach(func(p *appliedPolicy) error { return p.awaitEffect(ctx, s.Environment, false) }); err != nil {
		return err
	}
	return s.await(ctx, "policy removed", s.chosen(everyPolicy), func(_ context.Context, w oracle.Workload) error { return w.CheckRecovered() })
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
	if err := s.forEach(func(p *appliedPolicy) error { return s.editEcho(ctx, p, "o") }); err != nil {
		return err
	}
	if err := s.await(ctx, "edited without the policy", s.chosen(everyPolicy), func(_ context.Context, w oracle.Workload) error { return w.CheckAsDeclared() }); err != nil {
		return err
	}
	if err := s.expectFewWrites(ctx); err != nil {
		return err
	}
	return errors.Join(s.AllReady(s.Control)(ctx), s.AwaitReady(ctx, two))
}
