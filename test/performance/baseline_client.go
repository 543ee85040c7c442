package main

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/client"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/children"
	"github.com/kkloud-io/echo-operator/internal/status"
	"github.com/kkloud-io/echo-operator/internal/testing/controlplane"
)

// writtenObjects are the objects that the baseline client has written for one Echo: child i is of
// children.Kinds[i], and nil if the Echo has no such child.
type writtenObjects struct {
	echo     *echov1.Echo
	children []client.Object
}

// inputs are those of the operator's process.
var inputs = children.Inputs{ServerImage: controlplane.ServerImage, VerifierImage: controlplane.VerifierImage}

// createChildren writes what the operator has to write for new Echoes: a POST of each child, and
// a PUT of the status.
func (e *environment) createChildren(ctx context.Context, echoes []*echov1.Echo, concurrency int) ([]writtenObjects, error) {
	written := make([]writtenObjects, len(echoes))
	return written, forEach(ctx, len(echoes), concurrency, func(ctx context.Context, i int) error {
		echo := echoes[i].DeepCopy()
		written[i] = writtenObjects{echo: echo, children: make([]client.Object, len(children.Kinds))}
		for k, kind := range children.Kinds {
			if !kind.Wanted(echo) {
				continue
			}
			child := kind.New()
			kind.Mutate(child, echo, inputs)
			child.SetNamespace(echo.Namespace)
			child.SetName(kind.ChildName(echo))
			children.SetEchoGeneration(child, echo.Generation)
			if err := e.baselineClient.Create(ctx, child); err != nil {
				return err
			}
			written[i].children[k] = child
		}
		return e.writeStatus(ctx, written[i])
	})
}

// updateChildren writes what the operator has to write after an edit of all Echoes: a PUT of each
// child that the edit changes, and a PUT of the status.
func (e *environment) updateChildren(ctx context.Context, written []writtenObjects, edited []*echov1.Echo, concurrency int) error {
	changed := changedKinds(written[0], edited[0])
	return forEach(ctx, len(written), concurrency, func(ctx context.Context, i int) error {
		w := written[i]
		w.echo = edited[i].DeepCopy()
		for _, k := range changed {
			child := w.children[k]
			children.Kinds[k].Mutate(child, w.echo, inputs)
			children.SetEchoGeneration(child, w.echo.Generation)
			child.SetManagedFields(nil)
			if err := e.baselineClient.Update(ctx, child); err != nil {
				return err
			}
		}
		return e.writeStatus(ctx, w)
	})
}

// changedKinds returns the indexes of the kinds whose child the edit changes. The benchmark edits
// all Echoes alike, so the baseline client compares only the children of one Echo.
func changedKinds(written writtenObjects, edited *echov1.Echo) (changed []int) {
	for k, kind := range children.Kinds {
		if written.children[k] == nil {
			continue
		}
		child := written.children[k].DeepCopyObject().(children.Object)
		kind.Mutate(child, edited, inputs)
		if !equality.Semantic.DeepEqual(written.children[k], child) {
			changed = append(changed, k)
		}
	}
	return changed
}

func (e *environment) writeStatus(ctx context.Context, w writtenObjects) error {
	var observation status.Observation
	for _, child := range w.children {
		switch o := child.(type) {
		case *appsv1.Deployment:
			observation.Deployment = o
		case *corev1.Service:
			observation.Service = o
		}
	}
	before := w.echo.Status
	w.echo.Status, _ = status.Assess(w.echo, observation).Status()
	for i := range w.echo.Status.Conditions {
		w.echo.Status.Conditions[i].LastTransitionTime = w.echo.CreationTimestamp
		if i < len(before.Conditions) {
			w.echo.Status.Conditions[i].LastTransitionTime = before.Conditions[i].LastTransitionTime
		}
	}
	return e.baselineClient.Status().Update(ctx, w.echo)
}
