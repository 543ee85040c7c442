package scenarios

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/test/chaos/harness"
)

const (
	// recoveryLimit is how long after the end of an outage the operator may take to do its part.
	recoveryLimit = time.Minute
	// rolloutPerEcho is what kube-controller-manager gets in addition, for each of hundreds of
	// Echoes, to replace the pods.
	rolloutPerEcho = recoveryLimit / 250
)

// outage is the size of an outage: how long things are unavailable, and how many Echoes there are.
type outage struct {
	short, long time.Duration
	echoes      int
}

// outages makes something unavailable that the operator needs.
func outages(o harness.Options) ([]harness.Scenario, error) {
	size := outage{short: 45 * time.Second, long: 3 * time.Minute, echoes: 500}
	if o.Short {
		size = outage{short: 6 * time.Second, long: 6 * time.Second, echoes: 20}
	}
	all := []harness.Scenario{
		{Name: "API server unavailable", Run: size.noServer},
		{Name: "CRD removed", Run: size.noCRD},
		{Name: "no permissions for Services", Run: size.noServicePermissions},
		{Name: "API server unavailable to an elected leader", Run: size.noServerForLeader},
		{Name: "API server unavailable at the start", Run: size.noServerAtStart},
		{Name: "CRD not installed at the start", Run: size.noCRDAtStart},
	}
	if o.Short {
		all = all[:2]
	}
	return all, nil
}

// createEchoes creates all Echoes, and waits until they are ready.
func (o outage) createEchoes(ctx context.Context, e *harness.Environment) error {
	if err := forEachEcho(ctx, 0, o.echoes, func(ctx context.Context, name string) error {
		return e.CreateEcho(ctx, name, echov1.EchoSpec{Message: "first"})
	}); err != nil {
		return err
	}
	return e.Await(ctx, 5*time.Minute, "every Echo is ready", e.AllReady(e.Subject))
}

// editEchoes edits the Echoes from one number to another.
func (o outage) editEchoes(ctx context.Context, e *harness.Environment, from, to int, message string) error {
	return forEachEcho(ctx, from, to, func(ctx context.Context, name string) error {
		return e.EditEcho(ctx, name, func(s *echov1.EchoSpec) { s.Message = message })
	})
}

// forEachEcho does something with each Echo of a number, several at a time.
func forEachEcho(ctx context.Context, from, to int, do func(context.Context, string) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(16)
	for i := from; i < to; i++ {
		group.Go(func() error { return do(ctx, echoName(i)) })
	}
	return group.Wait()
}

func echoName(i int) string { return fmt.Sprintf("echo-%d", i) }

// measureReady measures how long it takes until every Echo is ready.
func measureReady(ctx context.Context, e *harness.Environment, name string, since time.Time, limit time.Duration) error {
	return measure(ctx, e, e.AllReady(e.Subject), name, since, limit)
}

// measure measures how long it takes until the check passes.
func measure(ctx context.Context, e *harness.Environment, check func(context.Context) error, name string, since time.Time, limit time.Duration) error {
	if err := e.Await(ctx, 2*limit, name, check); err != nil {
		return err
	}
	return e.Measure(name, time.Since(since), limit)
}

// stopServer stops the API server for a while. The control operator does not run after that, so
// that it does not slow down the recovery, until RestartControlOperator.
func stopServer(ctx context.Context, e *harness.Environment, d time.Duration) (started time.Time, err error) {
	e.KillControlOperator()
	if err := e.Plane.StopAPIServer(ctx); err != nil {
		return started, err
	}
	harness.Pause(ctx, d)
	err = e.Plane.StartAPIServer(ctx)
	return time.Now(), err
}

// noServer stops the API server after a third of the Echoes was edited, edits the others when it is
// available again, and measures how soon all are converged and ready. The operator has to keep running.
func (o outage) noServer(ctx context.Context, e *harness.Environment) error {
	if err := o.createEchoes(ctx, e); err != nil {
		return err
	}
	third := o.echoes / 3
	if err := o.editEchoes(ctx, e, 0, third, "edited before"); err != nil {
		return err
	}
	started, err := stopServer(ctx, e, o.long)
	if err != nil {
		return err
	}
	if err := o.editEchoes(ctx, e, third, 2*third, "edited after"); err != nil {
		return err
	}
	// The oracle cannot evaluate statuses that are written until then.
	if err := e.AwaitRecording(ctx, recoveryLimit); err != nil {
		return err
	}
	if err := o.editEchoes(ctx, e, 2*third, o.echoes, "edited later"); err != nil {
		return err
	}
	name := fmt.Sprintf("%d Echoes after %s without API server: ", o.echoes, o.long)
	if err := errors.Join(
		measure(ctx, e, e.AllObserved(e.Subject), name+"converged", started, recoveryLimit),
		measureReady(ctx, e, name+"ready", started, recoveryLimit+time.Duration(o.echoes)*rolloutPerEcho),
		e.RestartControlOperator()); err != nil {
		return err
	}
	return e.Verify(ctx)
}

// noServerForLeader stops the API server of an operator with a lease. The operator loses its lease
// and exits, and the kubelet restarts it.
func (o outage) noServerForLeader(ctx context.Context, e *harness.Environment) error {
	leader, standby, err := elect(ctx, e)
	if err != nil {
		return err
	}
	defer func() { leader.Kill(); standby.Kill() }()
	if err := e.CreateEcho(ctx, one, everyChild()); err != nil {
		return err
	}
	if err := e.Settle(ctx); err != nil {
		return err
	}
	started, err := stopServer(ctx, e, o.long)
	if err != nil {
		return err
	}
	if !leader.Exited() {
		return fmt.Errorf("%w, want it to exit, because it has lost its lease", errStillRunning)
	}
	if err := errors.Join(e.Restart(), e.EditEcho(ctx, one, func(s *echov1.EchoSpec) { s.Message = "n" }), e.AwaitRecording(ctx, recoveryLimit)); err != nil {
		return err
	}
	name := fmt.Sprintf("Echo of an elected leader is ready after %s without API server", o.long)
	if err := errors.Join(measureReady(ctx, e, name, started, recoveryLimit), e.RestartControlOperator()); err != nil {
		return err
	}
	return e.Verify(ctx)
}

// noServerAtStart starts the operator before its API server.
func (o outage) noServerAtStart(ctx context.Context, e *harness.Environment) error {
	if err := e.CreateEcho(ctx, one, echov1.EchoSpec{Message: "m"}); err != nil {
		return err
	}
	if err := e.Settle(ctx); err != nil {
		return err
	}
	e.Operator.Kill()
	if err := e.EditEcho(ctx, one, func(s *echov1.EchoSpec) { s.Message = "n" }); err != nil {
		return err
	}
	if err := e.Plane.StopAPIServer(ctx); err != nil {
		return err
	}
	if err := e.Restart(); err != nil {
		return err
	}
	harness.Pause(ctx, o.long)
	failed := e.Operator.Failed()
	if err := errors.Join(e.Plane.StartAPIServer(ctx), failed); err != nil {
		return err
	}
	name := fmt.Sprintf("Echo is ready; the operator was started %s before its API server", o.long)
	if err := errors.Join(measureReady(ctx, e, name, time.Now(), recoveryLimit), e.RestartControlOperator()); err != nil {
		return err
	}
	return e.Verify(ctx)
}
