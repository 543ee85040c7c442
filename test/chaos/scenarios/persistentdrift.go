package scenarios

import (
	"context"
	"fmt"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/children"
	"github.com/kkloud-io/echo-operator/test/chaos/harness"
	"github.com/kkloud-io/echo-operator/test/chaos/kinds"
	"github.com/kkloud-io/echo-operator/test/chaos/oracle"
)

// driftPeriod is how long the writes of a child are counted that drifts repeatedly.
const driftPeriod = 20 * time.Second

// persistentDrift has an external writer change a child again after each write of the operator, which may
// not correct it more often than the pace allows, and reports it.
func persistentDrift(ctx context.Context, e *harness.Environment, kind children.Kind) error {
	if err := createReadyWith(ctx, e, kind); err != nil {
		return err
	}
	drifts, err := driftsOf(ctx, e, kind)
	if err != nil {
		return err
	}
	e.History.AllowLag() // The operator waits before it reverts the drift, and reports drift that is repeated.
	stop := repeatDrift(ctx, e, kind, drifts[0])
	defer stop()
	before, start := len(e.Proxy.Writes()), time.Now()
	harness.Pause(ctx, driftPeriod)
	took := time.Since(start)
	child := client.ObjectKey{Namespace: e.Subject, Name: kinds.ChildName(kind, one)}
	writes := oracle.WritesOf(e.Proxy.Writes()[before:], kind.Resource.Resource, child)
	if err := oracle.CheckPace("writes of "+child.Name, len(oracle.Effective(writes)), took); err != nil {
		return err
	}
	if err := e.AwaitDegraded(ctx, harness.ConvergenceTimeout, e.Subject, one, echov1.ReasonRepeatedDrift, kind.Name); err != nil {
		return err
	}
	if writes := len(writes); writes < 2 {
		return fmt.Errorf("operator: made %d writes of the %s, want a correction of each change", writes, kind.Name)
	}
	stop()
	// Every paced write may have caused a status.
	e.AllowWrites(2 * oracle.PaceBound(time.Minute))
	return e.Verify(ctx)
}

// repeatDrift changes the child of the subject's Echo "one" whenever it is as the operator wants it.
func repeatDrift(ctx context.Context, e *harness.Environment, kind children.Kind, d drift) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var writer sync.WaitGroup
	writer.Go(func() {
		for ctx.Err() == nil {
			child := childOf(e, kind)
			echo, err := e.GetEcho(ctx, e.Subject, one)
			if err == nil && e.Client.Get(ctx, client.ObjectKeyFromObject(child), child) == nil && len(oracle.Differences(child, echo)) == 0 {
				_ = e.Update(ctx, child, func() { d.change(child) }) // It tries again after a conflict.
			}
			harness.Pause(ctx, time.Second/20)
		}
	})
	return func() { cancel(); writer.Wait() }
}
