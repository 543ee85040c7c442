package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/children"
)

// fixture has a client and the Echo of one test.
type fixture struct {
	client.Client
	echo *echov1.Echo
}

// serve creates the Echo and waits until it returns the message.
func (t *fixture) serve(ctx context.Context, message string, replicas int32) error {
	t.echo.Spec.Message, t.echo.Spec.Replicas = message, replicas
	if err := t.Create(ctx, t.echo); err != nil {
		return fmt.Errorf("create an Echo in namespace %s: %w", t.echo.Namespace, err)
	}
	return t.served(ctx, "the new Echo")
}

// served waits until the newest spec of the Echo is rolled out and its endpoint returns the message.
func (t *fixture) served(ctx context.Context, what string) error {
	if err := t.eventually(ctx, what+" to become Ready", t.rolledOut); err != nil {
		return err
	}
	expected := t.echo.Spec.Message + "\n"
	return t.eventually(ctx, fmt.Sprintf("%s to return %q", what, expected), func(ctx context.Context) error {
		body, err := get(ctx, t.echo.Status.URL)
		if err == nil && body != expected {
			err = fmt.Errorf("%s returns %q", t.echo.Status.URL, body)
		}
		return err
	})
}

// rolledOut reads the Echo and returns an error until its newest spec is rolled out.
func (t *fixture) rolledOut(ctx context.Context) error {
	if err := t.Get(ctx, client.ObjectKeyFromObject(t.echo), t.echo); err != nil {
		return err
	}
	return missing(t.echo)
}

// verified reads the Echo and returns an error until the response of its newest spec is verified.
func (t *fixture) verified(ctx context.Context) error {
	if err := t.rolledOut(ctx); err != nil {
		return err
	}
	verified := meta.FindStatusCondition(t.echo.Status.Conditions, echov1.ConditionVerified)
	if verified == nil || verified.Status != metav1.ConditionTrue {
		return fmt.Errorf("the condition Verified is not True: %+v", verified)
	}
	return nil
}

// missing returns why the newest spec of the Echo is not rolled out, or nil.
func missing(echo *echov1.Echo) error {
	pods := fmt.Sprintf("%d/%[1]d", echo.Spec.Replicas)
	switch {
	case echo.Status.ObservedGeneration != echo.Generation:
		return fmt.Errorf("status.observedGeneration = %d, want metadata.generation %d", echo.Status.ObservedGeneration, echo.Generation)
	case !meta.IsStatusConditionTrue(echo.Status.Conditions, echov1.ConditionReady):
		return errors.New("the condition Ready is not True")
	case echo.Status.Ready != pods:
		return fmt.Errorf("status.ready = %q, want %q", echo.Status.Ready, pods)
	}
	return nil
}

// eventually waits until check returns nil. The error contains the expectation, the last error of
// check, and the last known condition Ready of the Echo.
func (t *fixture) eventually(ctx context.Context, expected string, check func(context.Context) error) error {
	last := errors.New("nothing before the timeout")
	err := wait.PollUntilContextCancel(ctx, 500*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		err := check(ctx)
		if apierrors.IsForbidden(err) {
			return false, err // A retry does not add a permission.
		}
		if ctx.Err() == nil {
			last = err
		}
		return err == nil, nil
	})
	switch {
	case err == nil:
		return nil
	case apierrors.IsForbidden(err):
		last = err
	}
	return fmt.Errorf("expected %s within %s; observed: %w; %s", expected, testTimeout, last, lastReady(t.echo))
}

// lastReady describes the last known condition Ready of the Echo.
func lastReady(echo *echov1.Echo) string {
	if ready := meta.FindStatusCondition(echo.Status.Conditions, echov1.ConditionReady); ready != nil {
		return fmt.Sprintf("the last known condition Ready of the Echo is %s, %s: %s", ready.Status, ready.Reason, ready.Message)
	}
	return "the Echo has no status: no operator has reconciled it"
}

// expectedKinds are the kinds of objects whose creation and deletion the tests check, for an Echo with several
// replicas: children, and what Kubernetes creates for them.
var expectedKinds = []schema.GroupVersionKind{
	{Group: "apps", Version: "v1", Kind: "Deployment"},
	{Group: "apps", Version: "v1", Kind: "ReplicaSet"},
	{Group: "policy", Version: "v1", Kind: "PodDisruptionBudget"},
	{Version: "v1", Kind: "Pod"},
	{Version: "v1", Kind: "Service"},
}

// childrenByKind returns the names of the Echo's objects by kind.
func (t *fixture) childrenByKind(ctx context.Context) (map[string][]string, error) {
	found := map[string][]string{}
	for _, kind := range expectedKinds {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(kind)
		err := t.List(ctx, list, client.InNamespace(t.echo.Namespace), client.MatchingLabels{children.EchoLabel: t.echo.Name})
		if err != nil {
			return nil, err
		}
		for _, item := range list.Items {
			found[kind.Kind] = append(found[kind.Kind], item.Name)
		}
	}
	return found, nil
}

// cleanUp deletes the Echo if it exists, also after the timeout of the test.
func (t *fixture) cleanUp(ctx context.Context) error {
	if t.echo.Name == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	if err := client.IgnoreNotFound(t.Delete(ctx, t.echo)); err != nil {
		return fmt.Errorf("delete the Echo %s: %w", t.echo.Name, err)
	}
	return nil
}

// httpClient opens a new connection for each request, so that each is load balanced separately.
var httpClient = http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}

// get returns the response body of the endpoint.
func get(ctx context.Context, url string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil) //nolint:gosec // The URL is that of the Echo of the test.
	if err != nil {
		return "", err
	}
	response, err := httpClient.Do(request) //nolint:gosec // As above.
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s returned status %s", url, response.Status)
	}
	return string(body), err
}
