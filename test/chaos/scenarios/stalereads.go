package scenarios

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/test/chaos/harness"
	"github.com/kkloud-io/echo-operator/test/chaos/kinds"
)

// staleTime is how long an operator is served stale reads.
const staleTime = time.Second

// staleResources are the sets of resources that are served stale together.
var staleResources = [][]string{{kinds.Echoes}, {deployment.Resource.Resource}, kinds.Watched()}

// staleReads restarts the operator after each operation, and serves it the state from before the
// operation, as an API server replica that lags does: of Echoes, of Deployments, or of everything.
func staleReads(o harness.Options) (all []harness.Scenario, err error) {
	all = append(all, harness.Scenario{Name: "delete an Echo before its status is observed", Run: deleteUnobserved})
	for _, op := range append(operationsOnOne(), sidecarAndEdit) {
		core := slices.Contains([]string{"edit the message", "delete", sidecarAndEdit.name}, op.name)
		for _, resources := range staleResources {
			if op.before != nil && (!o.Short || core && len(resources) == 1) {
				all = append(all, staleRead(op, resources))
			}
		}
	}
	return all, nil
}

// sidecarAndEdit is an edit after which the Deployment also has a label and a container of an external
// writer. The container is like the server's, and at its index: a patch for an earlier version of the
// Deployment would apply to it.
var sidecarAndEdit = operation{name: "edit after an external writer added a label and a container", before: &echov1.EchoSpec{Message: "m"},
	run: func(ctx context.Context, e *harness.Environment) error {
		if err := e.OnChild(ctx, one, deployment, func(ctx context.Context, child client.Object) error {
			return e.Update(ctx, child, func() {
				child.GetLabels()["team"] = "blue"
				pod := &child.(*appsv1.Deployment).Spec.Template.Spec
				sidecar := pod.Containers[0].DeepCopy()
				sidecar.Name, sidecar.Args = "sidecar", []string{"-text=of another owner"}
				pod.Containers = slices.Insert(pod.Containers, 0, *sidecar)
			})
		}); err != nil {
			return err
		}
		return e.EditEcho(ctx, one, func(s *echov1.EchoSpec) { s.Message = "n" })
	}}

func staleRead(op operation, resources []string) harness.Scenario {
	name := fmt.Sprintf("%s, stale reads of %s", op.name, strings.Join(resources, ", "))
	return harness.Scenario{Name: name, Run: func(ctx context.Context, e *harness.Environment) error {
		if err := e.CreateEcho(ctx, one, *op.before); err != nil {
			return err
		}
		if err := e.Settle(ctx); err != nil {
			return err
		}
		before, err := e.ResourceVersion(ctx)
		if err != nil {
			return err
		}
		if err := op.run(ctx, e); err != nil {
			return err
		}
		if err := e.Settle(ctx); err != nil {
			return err
		}
		e.History.AllowLag()
		if err := e.ServeStale(before, resources); err != nil {
			return err
		}
		if err := e.Restart(); err != nil {
			return err
		}
		if err := e.AwaitStart(ctx); err != nil {
			return err
		}
		harness.Pause(ctx, staleTime)
		return e.Verify(ctx)
	}}
}

// deleteUnobserved deletes an Echo while the operator is served the Echo without a status. The
// operator recreates the children every second, because they may never have existed, until it
// observes the deletion.
func deleteUnobserved(ctx context.Context, e *harness.Environment) error {
	e.Operator.Kill()
	if err := e.CreateEcho(ctx, one, echov1.EchoSpec{Message: "m"}); err != nil {
		return err
	}
	before, err := e.ResourceVersion(ctx)
	if err != nil {
		return err
	}
	e.History.AllowLag()
	if err := e.ServeStale(before, []string{kinds.Echoes}); err != nil {
		return err
	}
	if err := e.Restart(); err != nil {
		return err
	}
	if err := e.Await(ctx, e.Convergence, "every Echo has a status", e.AllObserved(e.Subject)); err != nil {
		return err
	}
	if err := e.DeleteEcho(ctx, one); err != nil {
		return err
	}
	harness.Pause(ctx, 6*staleTime) // Long enough for several creations on a busy machine, too.
	return e.Verify(ctx)
}
