package main

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/children"
	"github.com/kkloud-io/echo-operator/internal/status"
	"github.com/kkloud-io/echo-operator/internal/testing/controlplane"
)

// kinds are those of an Echo's children.
func kinds() []client.Object {
	return []client.Object{&corev1.Service{}, &appsv1.Deployment{}, &policyv1.PodDisruptionBudget{}}
}

// written is what the plain client has written for one Echo.
type written struct {
	echo       *echov1.Echo
	deployment *appsv1.Deployment
}

// createAll writes what an operator has to write for new Echoes, and nothing else: each child
// by a POST, and the status.
func (s *server) createAll(ctx context.Context, echoes []*echov1.Echo, workers int) ([]written, error) {
	all := make([]written, len(echoes))
	return all, each(ctx, len(echoes), workers, func(ctx context.Context, i int) error {
		echo := echoes[i].DeepCopy()
		service, deployment, budget := &corev1.Service{}, &appsv1.Deployment{}, &policyv1.PodDisruptionBudget{}
		children.Service(service, echo)
		children.Deployment(deployment, echo, controlplane.ServerImage)
		children.PodDisruptionBudget(budget, echo)
		for _, child := range []client.Object{service, deployment, budget} {
			child.SetNamespace(echo.Namespace)
			child.SetName(children.Name(echo))
			children.SetGeneration(child, echo.Generation)
			if err := s.ceiling.Create(ctx, child); err != nil {
				return err
			}
		}
		all[i] = written{echo: echo, deployment: deployment}
		return s.writeStatus(ctx, all[i])
	})
}

// editAll writes what an operator has to write for Echoes whose message has changed: the
// Deployment by a PUT, and the status.
func (s *server) editAll(ctx context.Context, all []written, edited []*echov1.Echo, workers int) error {
	return each(ctx, len(all), workers, func(ctx context.Context, i int) error {
		w := all[i]
		w.echo = edited[i].DeepCopy()
		children.Deployment(w.deployment, w.echo, controlplane.ServerImage)
		children.SetGeneration(w.deployment, w.echo.Generation)
		w.deployment.ManagedFields = nil
		if err := s.ceiling.Update(ctx, w.deployment); err != nil {
			return err
		}
		return s.writeStatus(ctx, w)
	})
}

func (s *server) writeStatus(ctx context.Context, w written) error {
	before := w.echo.Status
	w.echo.Status = status.Of(w.echo, status.Observation{Deployment: w.deployment, HasService: true})
	for i := range w.echo.Status.Conditions {
		w.echo.Status.Conditions[i].LastTransitionTime = w.echo.CreationTimestamp
		if i < len(before.Conditions) {
			w.echo.Status.Conditions[i].LastTransitionTime = before.Conditions[i].LastTransitionTime
		}
	}
	return s.ceiling.Status().Update(ctx, w.echo)
}
