package harness

import (
	"context"
	"errors"
	"slices"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/test/chaos/kinds"
	"github.com/kkloud-io/echo-operator/test/chaos/oracle"
	"github.com/kkloud-io/echo-operator/test/chaos/proxy"
)

const (
	// controllerTimeout is how long kube-controller-manager may take for the pods, and how long the
	// control namespace may take to settle. The operator guarantees neither.
	controllerTimeout = 5 * time.Minute
	// steadyTimeout is how long writes may continue that were in progress when the operator converged.
	steadyTimeout = 10 * time.Second
)

// Verify ends all faults and checks every guarantee: the subject converges to the state of the
// control, no child was recreated or went back to an earlier spec without need, each status was
// accurate, the number of writes is bounded, and the operator makes no writes in steady state, also
// after a restart.
func (e *Environment) Verify(ctx context.Context) error {
	for _, p := range e.Proxies() {
		p.SetPlan(nil)
		p.Resume()
	}
	if err := e.Settle(ctx); err != nil {
		return err
	}
	if err := e.ExpectNoWrites(ctx); err != nil {
		return err
	}
	findings := slices.Concat(e.checkCreations(), e.History.CheckOrder(), e.History.CheckReady(), e.History.CheckVerified(), e.History.CheckKstatus())
	// The control operator has no counterpart of what happened in further namespaces.
	writes := slices.DeleteFunc(e.writes(), func(w proxy.Write) bool { return w.Namespace != e.Subject })
	findings = append(findings, oracle.CheckWriteBound(writes, e.writeBound()))
	if err := e.Restart(); err != nil {
		return err
	}
	if err := e.AwaitStart(ctx); err != nil {
		return err
	}
	findings = append(findings, e.ExpectNoWrites(ctx), e.Compare(ctx))
	return errors.Join(findings...)
}

func (e *Environment) checkCreations() []error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.History.CheckCreations(e.allowed)
}

func (e *Environment) writeBound() int {
	faults := e.Restarts
	for _, p := range e.Proxies() {
		for _, count := range p.Faults() {
			faults += count
		}
	}
	controlWrites := writesIn(e.controlProxy, e.Control) - e.earlierControlWrites
	return oracle.WriteBound(len(e.Proxies()), controlWrites, faults) + e.allowedWrites
}

// Settle waits until the subject is in the state of the control. The operator has its convergence
// time for the children, and again for the statuses once kube-controller-manager has updated the
// pods, which may take a minute for a Deployment that was deleted and recreated.
func (e *Environment) Settle(ctx context.Context) error {
	// The convergence time starts when the control has settled, which may take longer on a busy machine.
	if err := e.Await(ctx, controllerTimeout, "control namespace is settled", e.controlSettled); err != nil {
		return err
	}
	if err := e.Await(ctx, e.Convergence, "children equal those of the control namespace", e.compare(oracle.IgnoreStatus)); err != nil {
		return err
	}
	if err := e.Await(ctx, controllerTimeout, "statuses of children equal those of the control namespace", e.compare(oracle.IgnoreEchoStatus)); err != nil {
		return err
	}
	return e.Await(ctx, e.Convergence, "state equals that of the control namespace", e.Compare)
}

// ExpectNoWrites checks that the operator makes no writes for SteadyPeriod. Writes that are in
// progress when everything has converged may complete before.
func (e *Environment) ExpectNoWrites(ctx context.Context) error {
	deadline := time.Now().Add(steadyTimeout)
	for {
		before := len(e.writes())
		Pause(ctx, SteadyPeriod)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		err := oracle.CheckNoWrites(e.writes()[before:])
		switch {
		case err == nil:
			return e.Operator.Failed()
		case time.Now().After(deadline):
			return err
		}
	}
}

// controlSettled checks that the control operator has nothing left to do.
func (e *Environment) controlSettled(ctx context.Context) error {
	var echoes echov1.EchoList
	if err := e.Client.List(ctx, &echoes, client.InNamespace(e.Control)); err != nil {
		return err
	}
	return oracle.CheckSettled(echoes.Items)
}

// Compare checks that the subject is in the state of the control, which must be settled.
func (e *Environment) Compare(ctx context.Context) error { return e.compare(oracle.CompareAll)(ctx) }

func (e *Environment) compare(mask oracle.Mask) func(context.Context) error {
	return func(ctx context.Context) error {
		if err := e.controlSettled(ctx); err != nil {
			return err
		}
		control, err := e.state(ctx, e.Control, mask)
		if err != nil {
			return err
		}
		subject, err := e.state(ctx, e.Subject, mask)
		if err != nil {
			return err
		}
		return oracle.CheckEqual("namespaces", "control", control, "subject", subject)
	}
}

func (h *Harness) state(ctx context.Context, namespace string, mask oracle.Mask) (string, error) {
	objects, err := h.Objects(ctx, kinds.Lists(), namespace)
	if err != nil {
		return "", err
	}
	return oracle.State(objects, namespace, mask)
}

// SubjectState returns the state of the subject namespace, for AwaitSubjectState.
func (e *Environment) SubjectState(ctx context.Context) (string, error) {
	return e.state(ctx, e.Subject, oracle.CompareAll)
}

// AwaitSubjectState waits until the subject namespace is in the state that it had before.
func (e *Environment) AwaitSubjectState(ctx context.Context, before, condition string) error {
	return e.Await(ctx, ConvergenceTimeout, condition, func(ctx context.Context) error {
		now, err := e.SubjectState(ctx)
		if err != nil {
			return err
		}
		return oracle.CheckEqual("states of the subject namespace", "before", before, "now", now)
	})
}

// ChildGenerations returns the generations of the subject's children, by kind and UID.
func (e *Environment) ChildGenerations(ctx context.Context) (map[string]int64, error) {
	objects, err := e.Objects(ctx, kinds.ChildLists(), e.Subject)
	generations := map[string]int64{}
	for _, child := range objects {
		generations[kinds.Of(child)+" "+string(child.GetUID())] = child.GetGeneration()
	}
	return generations, err
}
