package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
)

// responds checks that an Echo becomes Ready and returns its message byte for byte.
func responds(ctx context.Context, t *fixture) error {
	return t.serve(ctx, "\"two\" 'quotes', \\ a backslash,\ntwo lines, $(HOME), <b>markup</b>, ü and 😀 ", 1)
}

// scales checks that the scale subresource scales an Echo up and down, and that its
// PodDisruptionBudget follows.
func scales(ctx context.Context, t *fixture) error {
	if err := t.serve(ctx, "to be scaled", 1); err != nil {
		return err
	}
	for _, replicas := range []int32{3, 1} {
		scale := &autoscalingv1.Scale{}
		patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas))
		if err := t.SubResource("scale").Patch(ctx, t.echo, patch, client.WithSubResourceBody(scale)); err != nil {
			return fmt.Errorf("scale the Echo to %d replicas: %w", replicas, err)
		}
		err := t.eventually(ctx, fmt.Sprintf("the Echo to be scaled to %d pods, with a PodDisruptionBudget for several pods", replicas), func(ctx context.Context) error {
			return scaled(ctx, t, replicas)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// scaled returns an error until the Echo is scaled.
func scaled(ctx context.Context, t *fixture, replicas int32) error {
	if err := t.rolledOut(ctx); err != nil {
		return err
	}
	if t.echo.Spec.Replicas != replicas {
		return fmt.Errorf("spec.replicas = %d", t.echo.Spec.Replicas)
	}
	scale := &autoscalingv1.Scale{}
	if err := t.SubResource("scale").Get(ctx, t.echo, scale); err != nil {
		return err
	}
	if scale.Status.Replicas != replicas || scale.Status.Selector == "" {
		return fmt.Errorf("the scale subresource has status.replicas %d and status.selector %q", scale.Status.Replicas, scale.Status.Selector)
	}
	found, err := t.childrenByKind(ctx)
	if err != nil {
		return err
	}
	if budgets := found["PodDisruptionBudget"]; (len(budgets) == 1) != (replicas > 1) {
		return fmt.Errorf("the Echo has the PodDisruptionBudgets %q", budgets)
	}
	return nil
}

// rolls checks that every request during the rollout of a new message returns the old or the new
// message, until the last old pod is deleted.
func rolls(ctx context.Context, t *fixture) error {
	const replicas = 2
	if err := t.serve(ctx, "old", replicas); err != nil {
		return err
	}
	stop := sendRequests(ctx, t.echo.Status.URL, "old\n", "new\n")
	return errors.Join(roll(ctx, t, "new", replicas), stop())
}

func roll(ctx context.Context, t *fixture, message string, replicas int) error {
	before := t.echo.DeepCopy()
	t.echo.Spec.Message = message
	if err := t.Patch(ctx, t.echo, client.MergeFrom(before)); err != nil {
		return fmt.Errorf("update the message: %w", err)
	}
	if err := t.served(ctx, "the changed Echo"); err != nil {
		return err
	}
	return t.eventually(ctx, "the pods with the old message to be deleted", func(ctx context.Context) error {
		found, err := t.childrenByKind(ctx)
		if pods := found["Pod"]; err == nil && len(pods) != replicas {
			err = fmt.Errorf("the pods %s", strings.Join(pods, ", "))
		}
		return err
	})
}

// verifies checks that the response of an Echo is verified, also after a change of the message.
func verifies(ctx context.Context, t *fixture) error {
	t.echo.Spec.Verify = &echov1.Verify{PeriodSeconds: 1, TimeoutSeconds: 1}
	if err := t.serve(ctx, "to be verified", 1); err != nil {
		return err
	}
	if err := t.eventually(ctx, "the new Echo to be verified", t.verified); err != nil {
		return err
	}
	before := t.echo.DeepCopy()
	t.echo.Spec.Message = "to be verified again"
	if err := t.Patch(ctx, t.echo, client.MergeFrom(before)); err != nil {
		return fmt.Errorf("update the message: %w", err)
	}
	if err := t.served(ctx, "the changed Echo"); err != nil {
		return err
	}
	return t.eventually(ctx, "the changed Echo to be verified", t.verified)
}

// sendRequests sends requests until stop is called. The error contains the number of requests
// that failed or returned another response than those allowed.
func sendRequests(ctx context.Context, url string, allowed ...string) (stop func() error) {
	ctx, cancel := context.WithCancel(ctx)
	result := make(chan error)
	go func() {
		var sent, wrong int
		var first string
		for ; ctx.Err() == nil; time.Sleep(20 * time.Millisecond) {
			seen, err := get(ctx, url)
			if ctx.Err() != nil {
				break
			}
			sent++
			if err == nil && slices.Contains(allowed, seen) {
				continue
			}
			if wrong++; wrong == 1 {
				first = fmt.Sprintf("%q", seen)
				if err != nil {
					first = err.Error()
				}
			}
		}
		if wrong > 0 {
			result <- fmt.Errorf("expected every response of %s to be one of %q; observed: %d of %d requests failed or returned another response, first %s",
				url, allowed, wrong, sent, first)
		}
		close(result)
	}()
	return func() error {
		cancel()
		return <-result
	}
}

// cleanup checks that the deletion of an Echo deletes its children.
func cleanup(ctx context.Context, t *fixture) error {
	if err := t.serve(ctx, "to be deleted", 2); err != nil {
		return err
	}
	found, err := t.childrenByKind(ctx)
	if err != nil {
		return err
	}
	for _, kind := range expectedKinds {
		if len(found[kind.Kind]) == 0 {
			return fmt.Errorf("expected the Echo to have a %s with the label kkloud.io/echo=%s; observed: %v", kind.Kind, t.echo.Name, found)
		}
	}
	if err := t.Delete(ctx, t.echo); err != nil {
		return fmt.Errorf("delete the Echo: %w", err)
	}
	return t.eventually(ctx, "the Echo and every object with the label kkloud.io/echo="+t.echo.Name+" to be deleted", func(ctx context.Context) error {
		if err := t.Get(ctx, client.ObjectKeyFromObject(t.echo), t.echo); !apierrors.IsNotFound(err) {
			return cmp.Or(err, fmt.Errorf("the Echo still exists, with the finalizers %q", t.echo.Finalizers))
		}
		left, err := t.childrenByKind(ctx)
		if err == nil && len(left) > 0 {
			err = fmt.Errorf("these objects still exist and have to be deleted manually: %v", left)
		}
		return err
	})
}

// violations are a few invalid specs, and a text that the API server's message must contain. The integration
// tests cover every rule.
var violations = map[string]map[string]any{
	"spec.message: Required value":          {},
	"spec.replicas":                         {"message": "m", "replicas": int64(6)},
	"spec.page.color":                       {"message": "m", "page": map[string]any{"color": "red"}},
	"set image, too":                        {"message": "m", "command": []any{"/bin/sh"}},
	"spec.pod.labels: Invalid value":        {"message": "m", "pod": map[string]any{"labels": map[string]any{"kkloud.io/echo": "v"}}},
	"spec.route.parentRefs: Required value": {"message": "m", "route": map[string]any{}},
}

// rejects checks in a dry run that the API server rejects invalid Echoes with messages that name the field:
// that it has the CRD of this version.
func rejects(ctx context.Context, t *fixture) error {
	var problems []error
	for text, spec := range violations {
		echo := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
		echo.SetGroupVersionKind(echov1.GroupVersion.WithKind("Echo"))
		echo.SetNamespace(t.echo.Namespace)
		echo.SetGenerateName("rules-")
		switch err := t.Create(ctx, echo, client.DryRunAll); {
		case err == nil:
			problems = append(problems, fmt.Errorf("expected the spec %v to be rejected with %q; observed: it was accepted", spec, text))
		case !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), text):
			problems = append(problems, fmt.Errorf("expected the spec %v to be rejected with %q; observed: %w", spec, text, err))
		}
	}
	return errors.Join(problems...)
}
