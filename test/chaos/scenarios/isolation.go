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
	// isolatedEchoes is the number of Echoes in a namespace whose webhook does not respond, and
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

// isolations have one namespace disturb the operator, and measure the others.
func isolations(o harness.Options) ([]harness.Scenario, error) {
	all := []harness.Scenario{
		{Name: "webhook for children hangs", Run: hangingChildren},
		{Name: "webhook for statuses hangs", Run: hangingStatuses},
		{Name: "large objects of another namespace", Run: largeObjects},
	}
	if o.Short {
		all = all[:1]
	}
	return all, nil
}

// hangingChildren has a webhook for the creation of children not respond. Every Echo reports it, and
// no Echo elsewhere waits for it.
func hangingChildren(ctx context.Context, e *harness.Environment) error {
	hook := &webhook{operation: admissionregistrationv1.Create, timeout: webhookTimeout, response: hang}
	for _, kind := range kinds.Servers() {
		hook.resources = append(hook.resources, kind.Resource)
	}
	named := func(echo *echov1.Echo) error {
		return errors.Join(oracle.CheckDegraded(echo, echov1.ReasonRejected, hook.name(e.Subject)), checkTimedOut(echo))
	}
	return isolation{hook: hook, probe: probeCreation(e, deployment), echoes: isolatedEchoes, before: nothing, after: e.AllEchoes(e.Subject, named)}.run(ctx, e)
}

// hangingStatuses has a webhook for the status of many Echoes not respond. No Echo elsewhere waits for it.
func hangingStatuses(ctx context.Context, e *harness.Environment) error {
	if err := createReady(ctx, e); err != nil {
		return err
	}
	hook := &webhook{
		resources: []schema.GroupVersionResource{echov1.GroupVersion.WithResource(kinds.EchoStatus)},
		operation: admissionregistrationv1.Update, timeout: webhookTimeout, response: hang,
	}
	// The API server itself is busy until the pods of these Echoes run.
	available := func(ctx context.Context) error { return checkAvailable(ctx, e, namespaceShare) }
	return isolation{hook: hook, probe: probeStatus(e, one), echoes: manyIsolatedEchoes, before: available, after: nothing}.run(ctx, e)
}

// checkTimedOut returns an error unless the Echo reports what the API server says about a webhook that
// does not respond. After 30 s, that is a time-out of its HTTP client.
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

// isolation disturbs one namespace by a webhook, and measures new Echoes in another one.
type isolation struct {
	hook  *webhook
	probe func(context.Context) error
	// echoes is the number of Echoes behind the webhook; before and after say what has to become true of them
	// before and after the others are measured.
	echoes        int
	before, after func(context.Context) error
}

func (i isolation) run(ctx context.Context, e *harness.Environment) error {
	neighbor, err := startWithNeighbor(ctx, e)
	if err != nil {
		return err
	}
	defer func() { _ = e.Clear(context.WithoutCancel(ctx), neighbor) }()
	remove, err := i.hook.install(ctx, e, i.probe)
	if err != nil {
		return err
	}
	defer func() { _ = remove(context.WithoutCancel(ctx)) }() // If the scenario fails before it removes the webhook.
	// The control operator would need the same cores for as many Echoes.
	e.KillControlOperator()
	if err := errors.Join(i.measure(ctx, e, neighbor, remove), e.RestartControlOperator()); err != nil {
		return err
	}
	return e.Verify(ctx)
}

// measure creates Echoes behind the webhook, measures new Echoes in another namespace, checks those behind
// the webhook, and expects all to recover without it.
func (i isolation) measure(ctx context.Context, e *harness.Environment, neighbor string, remove undo) error {
	if err := forEachEcho(ctx, 0, i.echoes, func(ctx context.Context, name string) error { return e.CreateEcho(ctx, name, everyChild()) }); err != nil {
		return err
	}
	if err := e.Await(ctx, harness.ConvergenceTimeout, "Echoes behind the webhook wait for it", i.before); err != nil {
		return err
	}
	var findings []error
	for round := range isolationRounds {
		harness.Pause(ctx, time.Second)
		took, err := timeToReady(ctx, e, neighbor, echoName(round))
		findings = append(findings, err, e.Measure("New Echo beside a namespace whose webhook hangs", took, isolationLimit))
	}
	// Only namespaceShare Echoes wait for the webhook at a time, and some of them retry.
	const limit = time.Minute + 4*webhookTimeout*time.Second
	if err := errors.Join(append(findings, e.Await(ctx, limit, "Echoes behind the webhook report it", i.after))...); err != nil {
		return err
	}
	start := time.Now()
	if err := remove(ctx); err != nil {
		return err
	}
	return measureReady(ctx, e, fmt.Sprintf("%d Echoes are ready after their webhook was removed", i.echoes), start, harness.ConvergenceTimeout)
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
