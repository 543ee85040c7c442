package scenarios

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/children"
	"github.com/kkloud-io/echo-operator/test/chaos/harness"
	"github.com/kkloud-io/echo-operator/test/chaos/kinds"
	"github.com/kkloud-io/echo-operator/test/chaos/oracle"
)

const (
	// webhookSample is the number of scenarios of the short form, and webhookSampleTimeout the
	// longest timeout of a webhook in it.
	webhookSample        = 16
	webhookSampleTimeout = 2
	// reportLimit is how long after a webhook's timeout the status may take to report a failure.
	reportLimit = 30 * time.Second
	// sharedNeighborLimit is how long a new Echo in another namespace may take. Several scenarios share
	// the machine: the suite "isolation" measures the time.
	sharedNeighborLimit = 20 * time.Second
	// pacePeriod is how long the writes to a failing webhook are counted.
	pacePeriod = 8 * time.Second
)

// behavior is how a webhook behaves.
type behavior struct {
	name   string
	answer webhookAnswer
	// timeout is the webhook's timeoutSeconds, or 0 for 2 s.
	timeout int32
	// ignore and untrusted are those of the webhook.
	ignore, untrusted bool
	// converges is true if an Echo becomes ready while the webhook is in effect.
	converges bool
	// unnamed is true if the API server's error does not contain the name of the webhook.
	unnamed bool
	// mutating is true if only a mutating webhook can behave so.
	mutating bool
	// interferes is true if the child changes during each call, as other controllers may change it. Only a
	// validating webhook is called inside the transaction, which then has a conflict.
	interferes bool
}

// behaviors are those of webhooks that do not deny with a status code.
var behaviors = []behavior{
	{name: "answers just before its timeout", answer: slow(1500 * time.Millisecond), converges: true},
	{name: "answers just after its timeout", answer: slow(2500 * time.Millisecond)},
	{name: "hangs until its timeout of 10 s", answer: hang, timeout: 10},
	{name: "hangs until its timeout of 30 s", answer: hang, timeout: 30},
	{name: "hangs until its timeout of 10 s while the child changes", answer: hang, timeout: 10, interferes: true},
	{name: "hangs and is ignored", answer: hang, ignore: true, converges: true},
	{name: "denies every other request", answer: flap, converges: true},
	{name: "denies with 429 and a Retry-After of 20 s", answer: deny(http.StatusTooManyRequests, 20)},
	{name: "denies with 503 and a Retry-After of 20 s", answer: deny(http.StatusServiceUnavailable, 20)},
	{name: "denies with 429 after three seconds", timeout: 5, answer: func(w http.ResponseWriter, r *http.Request, c webhookCall) {
		c.wait(r.Context(), 3*time.Second)
		deny(http.StatusTooManyRequests, 0)(w, r, c)
	}},
	{name: "answers with text", answer: respond(http.StatusOK, "allowed")},
	{name: "answers with an empty object", answer: respond(http.StatusOK, "{}")},
	{name: "answers with HTTP status 404", answer: respond(http.StatusNotFound, "")},
	{name: "answers with HTTP status 503", answer: respond(http.StatusServiceUnavailable, "")},
	{name: "redirects", answer: respond(http.StatusFound, "")},
	{name: "closes the connection", answer: disconnect},
	{name: "has the certificate of another authority", answer: allow, untrusted: true},
	{name: "returns a patch that is not JSON", answer: patch(func(webhookCall) string { return "{" }), mutating: true, unnamed: true},
	{name: "returns a patch of an absent field", mutating: true, unnamed: true,
		answer: patch(func(webhookCall) string { return `[{"op":"remove","path":"/spec/absent"}]` })},
}

// denialCodes returns the status codes of the suite.
func denialCodes() (codes []int32) {
	for code := int32(400); code <= 511; code++ {
		if code <= 431 || code == 451 || code >= 500 {
			codes = append(codes, code)
		}
	}
	return codes
}

// webhooks has an admission webhook fail in each way, for each kind of write.
func webhooks(o harness.Options) (all []harness.Scenario, err error) {
	ways := slices.Clone(behaviors)
	for _, code := range denialCodes() {
		ways = append(ways, behavior{name: fmt.Sprint("denies with ", code), answer: deny(code, 0)})
	}
	var sample, always []harness.Scenario
	for i, way := range ways {
		var ofWay []harness.Scenario
		for j, kind := range children.DifferentObjectKinds() {
			for k, operation := range []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update} {
				mutating := way.mutating || !way.interferes && (i+j+k)%2 == 1
				w := webhookRun{behavior: way, kind: &kind, resource: kind.Resource, operation: operation, mutating: mutating}
				if !way.interferes || w.ofUpdate() { // What does not exist cannot change.
					ofWay = append(ofWay, w.scenario())
				}
			}
		}
		if way.interferes {
			always = append(always, ofWay[0])
		} else if !way.mutating {
			w := webhookRun{behavior: way, resource: echov1.GroupVersion.WithResource(kinds.EchoStatus), operation: admissionregistrationv1.Update, mutating: i%2 == 1}
			ofWay = append(ofWay, w.scenario())
		}
		all = append(all, ofWay...)
		if way.timeout <= webhookSampleTimeout {
			sample = append(sample, ofWay...)
		}
	}
	if !o.Short {
		return all, nil
	}
	random := rand.New(rand.NewPCG(o.Seed, 0)) //nolint:gosec // Not a secret.
	random.Shuffle(len(sample), func(i, j int) { sample[i], sample[j] = sample[j], sample[i] })
	return append(always, sample[:webhookSample]...), nil
}

// webhookRun is a webhook that fails in one way for one kind of write.
type webhookRun struct {
	behavior
	// kind is the kind of child, or nil for the status of Echoes.
	kind      *children.Kind
	resource  schema.GroupVersionResource
	operation admissionregistrationv1.OperationType
	mutating  bool
}

func (w webhookRun) scenario() harness.Scenario {
	configuration := "validating"
	if w.mutating {
		configuration = "mutating"
	}
	operation := "creations"
	if w.operation == admissionregistrationv1.Update {
		operation = "updates"
	}
	return harness.Scenario{Name: fmt.Sprintf("%s webhook for %s of %s %s", configuration, operation, w.resource.Resource, w.name), Run: w.run}
}

func (w webhookRun) run(ctx context.Context, e *harness.Environment) error {
	neighbor, err := startWithNeighbor(ctx, e)
	if err != nil {
		return err
	}
	defer func() { _ = e.Clear(context.WithoutCancel(ctx), neighbor) }()
	if w.ofUpdate() {
		if err := createReadyWith(ctx, e, *w.kind); err != nil {
			return err
		}
	} else if err := errors.Join(e.CreateEcho(ctx, two, echov1.EchoSpec{Message: "m"}), e.AwaitReady(ctx, two)); err != nil {
		return err
	}
	hook := &webhook{
		resources: []schema.GroupVersionResource{w.resource}, operation: w.operation, mutating: w.mutating,
		timeout: max(w.timeout, 2), ignore: w.ignore, untrusted: w.untrusted, answer: w.answer,
	}
	if w.interferes {
		hook.answer = w.interfere(e)
	}
	remove, err := hook.install(ctx, e, w.probe(e))
	if err != nil {
		return err
	}
	defer func() { _ = remove(context.WithoutCancel(ctx)) }() // If the scenario fails before it removes the webhook.
	if w.ofUpdate() {
		err = w.causeUpdate(ctx, e)
	} else {
		err = e.CreateEcho(ctx, one, w.spec())
	}
	if err != nil {
		return err
	}
	if err := w.expect(ctx, e, hook, neighbor); err != nil {
		return err
	}
	start := time.Now()
	if err := remove(ctx); err != nil {
		return err
	}
	if w.interferes {
		if err := w.annotate(ctx, e, "null"); err != nil {
			return err
		}
	}
	if err := e.Settle(ctx); err != nil {
		return err
	}
	e.Record("Recovery after webhook that "+w.name, time.Since(start), harness.ConvergenceTimeout)
	e.AllowWrites(hook.called()) // expect has bounded them.
	return e.Verify(ctx)
}

// expect expects what the operator guarantees while the webhook is in effect.
func (w webhookRun) expect(ctx context.Context, e *harness.Environment, hook *webhook, neighbor string) error {
	if w.converges {
		return errors.Join(expectNeighborReady(ctx, e, neighbor), e.AwaitReady(ctx, one))
	}
	if w.kind == nil {
		if err := e.Await(ctx, harness.ConvergenceTimeout, "operator writes a status", func(context.Context) error {
			if hook.called() == 0 && !w.untrusted {
				return errAccepted
			}
			return nil
		}); err != nil {
			return err
		}
	} else {
		limit := time.Duration(hook.timeout)*time.Second + reportLimit
		if err := e.AwaitDegraded(ctx, limit, e.Subject, one, echov1.ReasonRejected, w.kind.Name); err != nil {
			return err
		}
		// If the child changed meanwhile, for example its status, only the next failure names the webhook.
		if err := e.AwaitDegraded(ctx, limit, e.Subject, one, echov1.ReasonRejected, w.words(e, hook)); err != nil {
			return err
		}
	}
	start, calls, logged := time.Now(), hook.called(), loggedErrors(e.Operator)
	if err := expectNeighborReady(ctx, e, neighbor); err != nil {
		return err
	}
	harness.Pause(ctx, pacePeriod-time.Since(start))
	took := time.Since(start)
	if w.kind == nil { // Two Echoes have a status.
		bound := oracle.RetryBound(took, 2)
		return errors.Join(oracle.CheckCount("writes of a status that a webhook rejects", hook.called()-calls, 0, bound, took),
			oracle.CheckCount("errors in the log", loggedErrors(e.Operator)-logged, 0, bound, took))
	}
	return errors.Join(oracle.CheckPace("writes of a child that a webhook rejects", hook.called()-calls, took),
		oracle.CheckPace("errors in the log", loggedErrors(e.Operator)-logged, took))
}

// words returns what the status has to contain.
func (w webhookRun) words(e *harness.Environment, hook *webhook) string {
	switch {
	case w.unnamed:
		return w.kind.Name
	case w.interferes:
		return "answered late, perhaps because of a slow admission webhook"
	default:
		return hook.name(e.Subject)
	}
}

// ofUpdate reports whether the webhook is called for updates of a child.
func (w webhookRun) ofUpdate() bool {
	return w.kind != nil && w.operation == admissionregistrationv1.Update
}

// interfere returns an answer that changes the child first.
func (w webhookRun) interfere(e *harness.Environment) webhookAnswer {
	return func(response http.ResponseWriter, r *http.Request, c webhookCall) {
		if err := w.annotate(r.Context(), e, strconv.Quote(strconv.Itoa(c.number))); err != nil {
			http.Error(response, err.Error(), http.StatusInternalServerError)
			return
		}
		w.answer(response, r, c)
	}
}

// child returns the child of the Echo "one", with its name only.
func (w webhookRun) child(e *harness.Environment) client.Object {
	child := kinds.New(*w.kind)
	child.SetNamespace(e.Subject)
	child.SetName(kinds.ChildName(*w.kind, one))
	return child
}

// annotate sets an annotation of the child, which no controller uses, to a JSON value.
func (w webhookRun) annotate(ctx context.Context, e *harness.Environment, value string) error {
	return e.Client.Patch(ctx, w.child(e), client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"annotations":{"example.com/call":%s}}}`, value)))
}

// spec returns that of the Echo "one".
func (w webhookRun) spec() echov1.EchoSpec {
	if w.kind == nil {
		return everyChild()
	}
	return withChild(*w.kind)
}

// probe returns a dry run that reaches the webhook.
func (w webhookRun) probe(e *harness.Environment) func(context.Context) error {
	if w.kind == nil {
		return probeUpdate(e, &echov1.Echo{ObjectMeta: metav1.ObjectMeta{Namespace: e.Subject, Name: two}}, true)
	}
	if w.operation == admissionregistrationv1.Create {
		return probeCreation(e, uncontrolled(*w.kind, e.Subject))
	}
	return probeUpdate(e, w.child(e), false)
}

// causeUpdate has the operator update the child.
func (w webhookRun) causeUpdate(ctx context.Context, e *harness.Environment) error {
	if w.kind.Name != "PodDisruptionBudget" {
		return e.EditEcho(ctx, one, func(s *echov1.EchoSpec) { s.Message, s.Port = "n", 81 })
	}
	// It does not depend on the spec of the Echo, so an external writer changes it.
	var budget policyv1.PodDisruptionBudget
	if err := e.Client.Get(ctx, client.ObjectKey{Namespace: e.Subject, Name: kinds.ServerName(one)}, &budget); err != nil {
		return err
	}
	return e.Update(ctx, &budget, func() { budget.Spec.MaxUnavailable = new(intstr.FromInt32(2)) })
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

// expectNeighborReady expects a new Echo in another namespace to be ready in time.
func expectNeighborReady(ctx context.Context, e *harness.Environment, namespace string) error {
	took, err := timeToReady(ctx, e, namespace, two)
	if err != nil {
		return err
	}
	return oracle.CheckDuration("new Echo in another namespace", took, sharedNeighborLimit)
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
