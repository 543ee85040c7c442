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
)

// trial is one run of a test, with the one Echo that the test makes.
type trial struct {
	client.Client
	echo *echov1.Echo
}

// serve creates the Echo and waits until it serves the message.
func (t *trial) serve(ctx context.Context, message string, replicas int32) error {
	t.echo.Spec = echov1.EchoSpec{Message: message, Replicas: replicas}
	if err := t.Create(ctx, t.echo); err != nil {
		return fmt.Errorf("create an Echo in namespace %s: %w", t.echo.Namespace, err)
	}
	return t.served(ctx, "the new Echo")
}

// served waits until the newest spec of the Echo is rolled out, and its message answered.
func (t *trial) served(ctx context.Context, what string) error {
	if err := t.eventually(ctx, what+" to become Ready", t.rolledOut); err != nil {
		return err
	}
	expected := t.echo.Spec.Message + "\n"
	return t.eventually(ctx, fmt.Sprintf("%s to answer %q", what, expected), func(ctx context.Context) error {
		seen, err := answer(ctx, t.echo.Status.URL)
		if err == nil && seen != expected {
			err = fmt.Errorf("%s answers %q", t.echo.Status.URL, seen)
		}
		return err
	})
}

// rolledOut looks at the Echo, and returns what its newest spec still lacks.
func (t *trial) rolledOut(ctx context.Context) error {
	if err := t.Get(ctx, client.ObjectKeyFromObject(t.echo), t.echo); err != nil {
		return err
	}
	return lack(t.echo)
}

func lack(echo *echov1.Echo) error {
	pods := fmt.Sprintf("%d/%[1]d", echo.Spec.Replicas)
	switch {
	case echo.Status.ObservedGeneration != echo.Generation:
		return fmt.Errorf("status.observedGeneration is %d, while metadata.generation is %d", echo.Status.ObservedGeneration, echo.Generation)
	case !meta.IsStatusConditionTrue(echo.Status.Conditions, echov1.ConditionReady):
		return errors.New("the condition Ready is not True")
	case echo.Status.Ready != pods:
		return fmt.Errorf("status.ready is %q instead of %q", echo.Status.Ready, pods)
	}
	return nil
}

// eventually waits until check returns nil. The error says what was expected, what was
// seen last, and what the Echo said of itself when it was looked at last.
func (t *trial) eventually(ctx context.Context, expected string, check func(context.Context) error) error {
	seen := errors.New("nothing, as the time was over")
	err := wait.PollUntilContextCancel(ctx, 500*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		err := check(ctx)
		if apierrors.IsForbidden(err) {
			return false, err // Time brings no permission.
		}
		if ctx.Err() == nil {
			seen = err
		}
		return err == nil, nil
	})
	switch {
	case err == nil:
		return nil
	case apierrors.IsForbidden(err):
		seen = err
	}
	return fmt.Errorf("expected %s; seen until the end of the test's %s: %w; %s", expected, testTime, seen, says(t.echo))
}

// says returns what the Echo says of itself.
func says(echo *echov1.Echo) string {
	if ready := meta.FindStatusCondition(echo.Status.Conditions, echov1.ConditionReady); ready != nil {
		return fmt.Sprintf("the Echo's last known condition Ready is %s, %s: %s", ready.Status, ready.Reason, ready.Message)
	}
	return "the Echo has no status, as if no operator had looked at it"
}

// children are the kinds of all that the operator, and Kubernetes for it, makes of an
// Echo with more than one replica.
var children = []schema.GroupVersionKind{
	{Group: "apps", Version: "v1", Kind: "Deployment"},
	{Version: "v1", Kind: "Service"},
	{Group: "policy", Version: "v1", Kind: "PodDisruptionBudget"},
	{Group: "apps", Version: "v1", Kind: "ReplicaSet"},
	{Version: "v1", Kind: "Pod"},
}

// children lists what belongs to the Echo, by kind.
func (t *trial) children(ctx context.Context) (map[string][]string, error) {
	found := map[string][]string{}
	for _, kind := range children {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(kind)
		err := t.List(ctx, list, client.InNamespace(t.echo.Namespace), client.MatchingLabels{"kkloud.io/echo": t.echo.Name})
		if err != nil {
			return nil, err
		}
		for _, item := range list.Items {
			found[kind.Kind] = append(found[kind.Kind], item.Name)
		}
	}
	return found, nil
}

// remove deletes the Echo, if there is one, also when the test's time is over.
func (t *trial) remove(ctx context.Context) error {
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

// Each request is a connection of its own, so that each is balanced anew.
var visitor = http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}

// answer returns what the endpoint answers.
func answer(ctx context.Context, url string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil) //nolint:gosec // The URL is that of the test's own Echo.
	if err != nil {
		return "", err
	}
	response, err := visitor.Do(request) //nolint:gosec // As above.
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s answered with status %s", url, response.Status)
	}
	return string(body), err
}
