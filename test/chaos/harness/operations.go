package harness

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/children"
	"github.com/kkloud-io/echo-operator/test/chaos/kinds"
	"github.com/kkloud-io/echo-operator/test/chaos/oracle"
)

// InBoth does the same in both namespaces, first in the subject.
func (e *Environment) InBoth(ctx context.Context, do func(ctx context.Context, namespace string) error) error {
	for _, namespace := range []string{e.Subject, e.Control} {
		if err := do(ctx, namespace); err != nil {
			return fmt.Errorf("namespace %s: %w", namespace, err)
		}
	}
	return nil
}

// CreateEcho creates an Echo in both namespaces.
func (e *Environment) CreateEcho(ctx context.Context, name string, spec echov1.EchoSpec) error {
	e.allowCreations(name)
	return e.InBoth(ctx, func(ctx context.Context, namespace string) error {
		return e.Client.Create(ctx, &echov1.Echo{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: spec})
	})
}

// EditEcho changes an Echo's spec in both namespaces, as `kubectl edit` does.
func (e *Environment) EditEcho(ctx context.Context, name string, change func(*echov1.EchoSpec)) error {
	for _, kind := range children.Kinds {
		if kind.Conditional { // The new spec may ask for it again.
			e.AllowCreation(kind, name)
		}
	}
	return e.InBoth(ctx, func(ctx context.Context, namespace string) error {
		return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
			echo, err := e.GetEcho(ctx, namespace, name)
			if err != nil {
				return err
			}
			change(&echo.Spec)
			return e.Client.Update(ctx, echo)
		})
	})
}

// DeleteEcho deletes an Echo in both namespaces. An operator that has not observed the Echo's first
// status may create its children once more before it observes the deletion.
func (e *Environment) DeleteEcho(ctx context.Context, name string) error {
	e.allowCreations(name)
	return e.InBoth(ctx, func(ctx context.Context, namespace string) error {
		return e.Client.Delete(ctx, &echov1.Echo{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}})
	})
}

// GetEcho returns an Echo.
func (h *Harness) GetEcho(ctx context.Context, namespace, name string) (*echov1.Echo, error) {
	echo := &echov1.Echo{}
	return echo, h.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, echo)
}

// OnChild does something to an Echo's child in both namespaces, once the child exists.
func (e *Environment) OnChild(ctx context.Context, echo string, kind children.Kind, do func(context.Context, client.Object) error) error {
	return e.InBoth(ctx, func(ctx context.Context, namespace string) error {
		return e.Await(ctx, e.Convergence, kind.Name+" "+kinds.ChildName(kind, echo)+" exists", func(ctx context.Context) error {
			owner, err := e.GetEcho(ctx, namespace, echo)
			if err != nil {
				return err
			}
			child := kinds.New(kind)
			if err := e.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: kind.ChildName(owner)}, child); err != nil {
				return err
			}
			if !metav1.IsControlledBy(child, owner) {
				return oracle.Findingf(child, "not controlled by Echo %s", echo)
			}
			return do(ctx, child)
		})
	})
}

// OnObject does something to the object with the name of the Echo's child in both namespaces,
// whether the Echo controls it or not.
func (e *Environment) OnObject(ctx context.Context, echo string, kind children.Kind, do func(context.Context, client.Object) error) error {
	return e.InBoth(ctx, func(ctx context.Context, namespace string) error {
		return e.Await(ctx, ConvergenceTimeout, kind.Name+" "+kinds.ChildName(kind, echo)+" exists", func(ctx context.Context) error {
			object := kinds.New(kind)
			if err := e.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: kinds.ChildName(kind, echo)}, object); err != nil {
				return err
			}
			return do(ctx, object)
		})
	})
}

// Update writes an object as an external writer does.
func (h *Harness) Update(ctx context.Context, object client.Object, change func()) error {
	change()
	return h.Client.Update(ctx, object)
}
