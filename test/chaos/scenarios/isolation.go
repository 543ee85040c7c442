package scenarios

import (
	"context"
	"errors"
	"fmt"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/test/chaos/harness"
	"github.com/kkloud-io/echo-operator/test/chaos/kinds"
	"github.com/kkloud-io/echo-operator/test/chaos/oracle"
)

const (
	// isolatedEchoes is the number of Echoes in a namespace whose webhook does not answer, and
	// manyIsolatedEchoes one that exceeds the operator's workers.
	isolatedEchoes     = 40
	manyIsolatedEchoes = 260
	// namespaceShare is how many Echoes of a namespace wait for a webhook at a time.
	namespaceShare = 24
	// isolationLimit is how long a new Echo in another namespace may take meanwhile.
	isolationLimit = 5 * time.Second
	// isolationRounds is how many new Echoes are measured.
	isolationRounds = 4
	// webhookTimeout is the timeoutSeconds of the webhook.
	webhookTimeout = 10
)

// isolation has one namespace disturb the operator, and measures the others.
func isolation(o harness.Options) ([]harness.Scenario, error) {
	all := []harness.Scenario{
		{Name: "webhook for children hangs", Run: hangingChildren},
		{Name: "webhook for statuses hangs", Run: hangingStatuses},
		uncontrolledMemory("large Deployments with forged owner references", (*memoryRun).create),
		uncontrolledMemory("large annotations on Echoes and children", (*memoryRun).annotate),
	}
	if o.Short {
		all = all[:1]
	}
	return all, nil
}

// hangingChildren has a webhook for the creation of children not answer. Every Echo reports it, and
// no Echo elsewhere waits for it.
func hangingChildren(ctx context.Context, e *harness.Environment) error {
	var resources []schema.GroupVersionResource
	for _, kind := range kinds.Servers() {
		resources = append(resources, kind.Resource)
	}
	hook := &webhook{resources: resources, operation: admissionregistrationv1.Create, timeout: webhookTimeout, answer: hang}
	named := func(echo *echov1.Echo) error {
		return errors.Join(oracle.CheckDegraded(echo, echov1.ReasonRejected, hook.name(e.Subject)), checkTimedOut(echo))
	}
	return isolate(ctx, e, hook, isolatedEchoes, 0, probeCreation(e, deployment), func(ctx context.Context, start time.Time) error {
		// Only namespaceShare Echoes wait for the webhook at a time, and some of them retry.
		const limit = time.Minute + 4*webhookTimeout*time.Second
		return measure(ctx, e, e.AllEchoes(e.Subject, named), fmt.Sprintf("%d Echoes report a webhook that hangs", isolatedEchoes), start, limit)
	})
}

// hangingStatuses has a webhook for the status of many Echoes not answer. No Echo elsewhere waits for it.
func hangingStatuses(ctx context.Context, e *harness.Environment) error {
	if err := createReady(ctx, e); err != nil {
		return err
	}
	hook := &webhook{
		resources: []schema.GroupVersionResource{echov1.GroupVersion.WithResource(kinds.EchoStatus)},
		operation: admissionregistrationv1.Update, timeout: webhookTimeout, answer: hang,
	}
	// The API server itself is busy until the pods of these Echoes run.
	return isolate(ctx, e, hook, manyIsolatedEchoes, namespaceShare, probeStatus(e, one), func(context.Context, time.Time) error { return nil })
}

// checkTimedOut returns an error unless the Echo reports what the API server says about a webhook that
// does not answer. After 30 s, that is a time-out of its HTTP client.
func checkTimedOut(echo *echov1.Echo) error {
	if oracle.CheckDegraded(echo, echov1.ReasonRejected, "deadline exceeded") == nil {
		return nil
	}
	return oracle.CheckDegraded(echo, echov1.ReasonRejected, "Client.Timeout exceeded")
}

// checkAvailable returns an error unless at least so many Deployments are available.
func checkAvailable(ctx context.Context, e *harness.Environment, count int) error {
	var list appsv1.DeploymentList
	if err := e.Client.List(ctx, &list, client.InNamespace(e.Subject)); err != nil {
		return err
	}
	available := 0
	for i := range list.Items {
		if d := &list.Items[i]; d.Spec.Replicas != nil && d.Status.AvailableReplicas == *d.Spec.Replicas {
			available++
		}
	}
	if available < count {
		return fmt.Errorf("%d Deployments are available, want %d", available, count)
	}
	return nil
}

// isolate disturbs one namespace by the webhook, and measures new Echoes in another one.
func isolate(ctx context.Context, e *harness.Environment, hook *webhook, echoes, available int, probe func(context.Context) error, check func(context.Context, time.Time) error) error {
	neighbor, err := startWithNeighbor(ctx, e)
	if err != nil {
		return err
	}
	defer func() { _ = e.Clear(context.WithoutCancel(ctx), neighbor) }()
	remove, err := hook.install(ctx, e, probe)
	if err != nil {
		return err
	}
	defer func() { _ = remove(context.WithoutCancel(ctx)) }() // If the scenario fails before it removes the webhook.
	// The control operator would need the same cores for as many Echoes.
	e.KillControlOperator()
	measured := measureIsolation(ctx, e, neighbor, echoes, available, check, remove)
	if err := errors.Join(measured, e.RestartControlOperator()); err != nil {
		return err
	}
	return e.Verify(ctx)
}

// measureIsolation creates Echoes behind the webhook, waits until some of their Deployments are available,
// measures new Echoes in another namespace, checks the Echoes behind the webhook, and expects all to recover
// without it.
func measureIsolation(ctx context.Context, e *harness.Environment, neighbor string, echoes, available int, check func(context.Context, time.Time) error, remove func(context.Context) error) error {
	start := time.Now()
	size := outage{echoes: echoes}
	if err := size.forEach(ctx, 0, echoes, func(ctx context.Context, name string) error {
		return e.CreateEcho(ctx, name, everyChild())
	}); err != nil {
		return err
	}
	if err := e.Await(ctx, harness.ConvergenceTimeout, "Deployments are available", func(ctx context.Context) error {
		return checkAvailable(ctx, e, available)
	}); err != nil {
		return err
	}
	var findings []error
	for round := range isolationRounds {
		harness.Pause(ctx, time.Second)
		took, err := timeToReady(ctx, e, neighbor, echoName(round))
		findings = append(findings, err, e.Measure("New Echo beside a namespace whose webhook hangs", took, isolationLimit))
	}
	if err := errors.Join(append(findings, check(ctx, start))...); err != nil {
		return err
	}
	start = time.Now()
	if err := remove(ctx); err != nil {
		return err
	}
	return measureReady(ctx, e, fmt.Sprintf("%d Echoes are ready after their webhook was removed", echoes), start, harness.ConvergenceTimeout)
}

// startWithNeighbor restarts the operator for the subject namespace and a neighbor of it.
func startWithNeighbor(ctx context.Context, e *harness.Environment) (neighbor string, err error) {
	neighbor = e.Subject + "-neighbor"
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: neighbor}}
	if err := client.IgnoreAlreadyExists(e.Client.Create(ctx, namespace)); err != nil {
		return "", err
	}
	e.Operator.Kill()
	return neighbor, e.StartOperatorFor(e.Subject, neighbor)
}

// timeToReady creates an Echo, and returns how long it takes to become ready.
func timeToReady(ctx context.Context, e *harness.Environment, namespace, name string) (time.Duration, error) {
	start := time.Now()
	echo := &echov1.Echo{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: echov1.EchoSpec{Message: "neighbor"}}
	if err := e.Client.Create(ctx, echo); err != nil {
		return 0, err
	}
	err := e.AwaitEcho(ctx, harness.ConvergenceTimeout, namespace, name, "is ready", oracle.CheckReadyNow)
	return time.Since(start), err
}
