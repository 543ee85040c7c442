package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
)

// fixture has a client and the Echo of one test.
type fixture struct {
	client.Client
	echo *echov1.Echo
}

// responds checks that an Echo becomes Ready and returns its message byte for byte.
func responds(ctx context.Context, t *fixture) error {
	return t.serve(ctx, "\"two\" 'quotes', \\ a backslash,\ntwo lines, $(HOME), <b>markup</b>, ü and 😀 ", 1)
}

// rolls checks that every request returns the old or the new message while the Echo gets a new one and another pod.
func rolls(ctx context.Context, t *fixture) error {
	if err := t.serve(ctx, "old", 2); err != nil {
		return err
	}
	requesting, stop := context.WithCancel(ctx)
	result := make(chan error)
	go func() {
		var err error
		for err == nil && requesting.Err() == nil {
			var body string
			if body, err = get(ctx, t.echo.Status.URL); err == nil && body != "old\n" && body != "new\n" {
				err = fmt.Errorf("a request during the rollout returned %q", body)
			}
			time.Sleep(20 * time.Millisecond)
		}
		result <- err
	}()
	err := t.edit(ctx, func(spec *echov1.EchoSpec) { spec.Message, spec.Replicas = "new", 3 })
	stop()
	return errors.Join(err, <-result)
}

// verifies checks that the response of an Echo is verified, even after a change of the message.
func verifies(ctx context.Context, t *fixture) error {
	t.echo.Spec.Verify = &echov1.Verify{PeriodSeconds: 1, TimeoutSeconds: 1}
	if err := t.serve(ctx, "to be verified", 1); err != nil {
		return err
	}
	if err := t.await(ctx, echov1.ConditionVerified); err != nil {
		return err
	}
	if err := t.edit(ctx, func(spec *echov1.EchoSpec) { spec.Message = "to be verified again" }); err != nil {
		return err
	}
	return t.await(ctx, echov1.ConditionVerified)
}

// serve creates the Echo and waits until it returns the message.
func (t *fixture) serve(ctx context.Context, message string, replicas int32) error {
	t.echo.Spec.Message, t.echo.Spec.Replicas = message, replicas
	if err := t.Create(ctx, t.echo); err != nil {
		return fmt.Errorf("create an Echo in namespace %s: %w", t.echo.Namespace, err)
	}
	return t.awaitServed(ctx)
}

// edit changes the spec and waits until the Echo returns the message.
func (t *fixture) edit(ctx context.Context, change func(*echov1.EchoSpec)) error {
	before := t.echo.DeepCopy()
	change(&t.echo.Spec)
	if err := t.Patch(ctx, t.echo, client.MergeFrom(before)); err != nil {
		return fmt.Errorf("edit the Echo: %w", err)
	}
	return t.awaitServed(ctx)
}

func (t *fixture) awaitServed(ctx context.Context) error {
	if err := t.await(ctx, echov1.ConditionReady); err != nil {
		return err
	}
	if want, got := fmt.Sprintf("%d/%[1]d", t.echo.Spec.Replicas), t.echo.Status.Ready; got != want {
		return fmt.Errorf("status.ready of a Ready Echo = %q, want %q", got, want)
	}
	body, err := get(ctx, t.echo.Status.URL)
	if want := t.echo.Spec.Message + "\n"; err == nil && body != want {
		err = fmt.Errorf("%s returns %q, want %q", t.echo.Status.URL, body, want)
	}
	return err
}

// await waits until a condition of the newest spec is True. The error has what was last observed.
func (t *fixture) await(ctx context.Context, conditionType string) error {
	observed := errors.New("nothing before the timeout")
	err := wait.PollUntilContextCancel(ctx, 500*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		err := t.Get(ctx, client.ObjectKeyFromObject(t.echo), t.echo)
		if err != nil {
			if ctx.Err() == nil {
				observed = err
			}
			return false, nil
		}
		c := meta.FindStatusCondition(t.echo.Status.Conditions, conditionType)
		if c == nil {
			observed = errors.New("the Echo has no status: no operator has reconciled it")
			return false, nil
		}
		observed = fmt.Errorf("it is %s, %s: %s", c.Status, c.Reason, c.Message)
		return c.Status == metav1.ConditionTrue && c.ObservedGeneration == t.echo.Generation, nil
	})
	if err != nil {
		return fmt.Errorf("expected the condition %s of the newest spec to be True within %s; observed: %w", conditionType, testTimeout, observed)
	}
	return nil
}

// cleanUp deletes the Echo if it exists, even after the timeout of the test.
func (t *fixture) cleanUp(ctx context.Context) error {
	if t.echo.Name == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	return client.IgnoreNotFound(t.Delete(ctx, t.echo))
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
