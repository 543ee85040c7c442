package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
)

// staleTime is how long an operator sees the past.
const staleTime = time.Second

// staleReads restart the operator, after each operation, on a view from before it: of the
// Echoes, of the Deployments, or of everything. An API server replica that lags shows such a one.
func staleReads(_ context.Context, o options) (all []scenario, err error) {
	all = append(all, scenario{name: "an Echo goes before its status is seen", run: goesUnseen})
	for _, s := range append(steps(), labelAndEdit) {
		for _, resources := range frozen {
			if s.before != nil && (!o.short || len(resources) == 1) {
				all = append(all, staleRead(s, resources))
			}
		}
	}
	return all, nil
}

// labelAndEdit is an edit after which the Deployment holds something of another's, too.
var labelAndEdit = step{name: "edit what others have labelled", before: &echov1.EchoSpec{Message: "m"},
	do: func(ctx context.Context, w *world) error {
		if err := w.onChild(ctx, one, deployment, func(ctx context.Context, child client.Object) error {
			return w.change(ctx, child, func() { child.GetLabels()["team"] = "blue" })
		}); err != nil {
			return err
		}
		return w.editEcho(ctx, one, func(s *echov1.EchoSpec) { s.Message = "n" })
	}}

func staleRead(s step, resources []string) scenario {
	name := fmt.Sprintf("%s, on an old view of %s", s.name, strings.Join(resources, ", "))
	return scenario{name: name, run: func(ctx context.Context, w *world) error {
		if err := w.createEcho(ctx, one, *s.before); err != nil {
			return err
		}
		if err := w.settle(ctx); err != nil {
			return err
		}
		past, err := w.version(ctx)
		if err != nil {
			return err
		}
		if err := s.do(ctx, w); err != nil {
			return err
		}
		if err := w.settle(ctx); err != nil {
			return err
		}
		w.history.viewLags = true
		if err := w.freezeView(past, resources); err != nil {
			return err
		}
		if err := w.restart(); err != nil {
			return err
		}
		if err := w.awaitStart(ctx); err != nil {
			return err
		}
		pause(ctx, staleTime)
		return w.verify(ctx)
	}}
}

// goesUnseen deletes an Echo while the operator sees it as it was before its first status. Each
// second it makes the children again, as they may never have been there, until it sees the end.
func goesUnseen(ctx context.Context, w *world) error {
	w.operator.Kill()
	if err := w.createEcho(ctx, one, echov1.EchoSpec{Message: "m"}); err != nil {
		return err
	}
	past, err := w.version(ctx)
	if err != nil {
		return err
	}
	w.history.viewLags = true
	if err := w.freezeView(past, frozen[0]); err != nil {
		return err
	}
	if err := w.restart(); err != nil {
		return err
	}
	if err := w.await(ctx, w.convergence, "the Echo has a status", w.converged()); err != nil {
		return err
	}
	if err := w.deleteEcho(ctx, one); err != nil {
		return err
	}
	pause(ctx, 3*staleTime)
	return w.verify(ctx)
}

// version returns the API server's newest resource version.
func (w *world) version(ctx context.Context) (string, error) {
	var now echov1.EchoList
	err := w.plane.Client.List(ctx, &now, client.InNamespace(w.fire), client.Limit(1))
	return now.ResourceVersion, err
}
