package scenarios

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/children"
	"github.com/kkloud-io/echo-operator/test/chaos/harness"
	"github.com/kkloud-io/echo-operator/test/chaos/kinds"
	"github.com/kkloud-io/echo-operator/test/chaos/oracle"
)

// persistentDrift has external writers that react to each write of the operator, and admission
// whose result differs for each write. Neither may cause more writes than the pace allows.
func persistentDrift(o harness.Options) (all []harness.Scenario, err error) {
	period := time.Minute
	if o.Short {
		period = 20 * time.Second
	}
	add := func(name string, run func(context.Context, *harness.Environment, time.Duration) error) {
		all = append(all, harness.Scenario{Name: name, Run: func(ctx context.Context, e *harness.Environment) error { return run(ctx, e, period) }})
	}
	for _, kind := range children.Kinds {
		for _, drift := range reactions[kind.Name] {
			if kind.Name == deployment.Name || !o.Short {
				add(fmt.Sprintf("writer changes %s of the %s after each write", drift.name, kind.Name), childDrift{kind, drift.change}.run)
			}
		}
		add(fmt.Sprintf("writer deletes the %s after each write", kind.Name), childDrift{kind, nil}.run)
	}
	add("writer clears the status after each write", statusDrift(func(s *echov1.EchoStatus) { *s = echov1.EchoStatus{} }))
	add("writer changes the status after each write", statusDrift(func(s *echov1.EchoStatus) {
		s.ObservedGeneration = 1
		s.Conditions = []metav1.Condition{{Type: echov1.ConditionReady, Status: metav1.ConditionFalse, Reason: "Changed", LastTransitionTime: metav1.Now()}}
	}))
	add("two operators have different server images", twoImages)
	add("webhook returns another annotation and image for each update", changingAdmission("image", false))
	add("webhook returns another annotation and progress deadline for each update", changingAdmission("deadline", false))
	add("webhook returns another annotation and argument for each update", changingAdmission("argument", true))
	return all, nil
}

// reactions are changes that an external writer repeats after each write of the operator.
var reactions = map[string][]drift{
	"Deployment": {
		ofContainer("args", func(c *corev1.Container) { c.Args[0] = "-text=other" }),
		ofContainer("image", func(c *corev1.Container) { c.Image = otherImage }),
		ofDeployment("replicas", func(d *appsv1.Deployment) { d.Spec.Replicas = ptr.To[int32](4) }),
		ofDeployment("a label", func(d *appsv1.Deployment) { d.Labels["app.kubernetes.io/name"] = "other" }),
		ofDeployment("the operator's label", func(d *appsv1.Deployment) { removeManagedBy(d) }),
	},
	"Service": {
		ofService("the selector", func(s *corev1.Service) { s.Spec.Selector = map[string]string{"app": "other"} }),
		ofService("the operator's label", func(s *corev1.Service) { removeManagedBy(s) }),
	},
	"PodDisruptionBudget": {
		ofBudget("maxUnavailable", func(b *policyv1.PodDisruptionBudget) { b.Spec.MaxUnavailable = new(intstr.FromInt32(2)) }),
	},
	"VerifierDeployment": {
		ofVerifier("args", func(t *corev1.PodTemplateSpec) { t.Spec.Containers[1].Args[0] = "-layer=dns" }),
	},
	"VerifierDaemonSet": {
		ofVerifier("args", func(t *corev1.PodTemplateSpec) { t.Spec.Containers[1].Args[0] = "-layer=dns" }),
	},
	"HTTPRoute": {
		ofRoute("the hostname", func(s *gatewayv1.HTTPRouteSpec) { s.Hostnames = []gatewayv1.Hostname{"b.example"} }),
	},
}

// reactingWriter changes an object again as soon as another client has changed it.
type reactingWriter struct {
	// writes is how often it has changed the object.
	writes atomic.Int64
	cancel context.CancelFunc
	done   chan struct{}
}

// react starts a writer that handles each version of the objects of the list in the subject namespace.
// The function reports whether it changed the object.
func react(ctx context.Context, e *harness.Environment, list client.ObjectList, change func(context.Context, client.Object) (bool, error)) (*reactingWriter, error) {
	ctx, cancel := context.WithCancel(ctx)
	w := &reactingWriter{cancel: cancel, done: make(chan struct{})}
	events, err := e.Client.Watch(ctx, list, client.InNamespace(e.Subject))
	if err != nil {
		cancel()
		return nil, err
	}
	go func() {
		defer close(w.done)
		for event := range events.ResultChan() {
			object, ok := event.Object.(client.Object)
			if !ok || event.Type == watch.Deleted || event.Type == watch.Bookmark {
				continue
			}
			// A conflict means that there is a newer version, which another event delivers.
			if changed, err := change(ctx, object); err == nil && changed {
				w.writes.Add(1)
			}
		}
	}()
	return w, nil
}

func (w *reactingWriter) stop() {
	w.cancel()
	<-w.done
}

// childDrift is what an external writer does to a child after each write.
type childDrift struct {
	kind children.Kind
	// change changes the child. Nil deletes it.
	change func(client.Object)
}

func (d childDrift) run(ctx context.Context, e *harness.Environment, period time.Duration) error {
	if err := createReadyWith(ctx, e, d.kind); err != nil {
		return err
	}
	e.History.AllowLag() // The operator waits before it reverts the drift, and reports drift that is repeated.
	writer, err := react(ctx, e, d.kind.NewList().(client.ObjectList), func(ctx context.Context, child client.Object) (bool, error) {
		if kinds.Of(child) != d.kind.Name { // The verifier of an Echo may be a second Deployment.
			return false, nil
		}
		if d.change == nil {
			e.AllowCreation(d.kind, one)
			return child.GetDeletionTimestamp() == nil, e.Client.Delete(ctx, child)
		}
		before := child.DeepCopyObject().(client.Object)
		d.change(child)
		version := child.GetResourceVersion()
		err := e.Client.Patch(ctx, child, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
		return child.GetResourceVersion() != version, err
	})
	if err != nil {
		return err
	}
	defer writer.stop()
	err = boundedWrites(ctx, e, d.kind.Resource.Resource, kinds.ChildName(d.kind, one), period, 0)
	if err == nil {
		err = e.AwaitDegraded(ctx, harness.ConvergenceTimeout, e.Subject, one, echov1.ReasonRepeatedDrift, d.kind.Name)
	}
	writer.stop()
	if writer.writes.Load() < 2 {
		err = errors.Join(err, fmt.Errorf("external writer: changed the %s %d times, want a reaction to each correction", d.kind.Name, writer.writes.Load()))
	}
	return recoverFrom(ctx, e, err)
}

// statusBurst is how many writes of a status need no pause: a rollout causes several.
const statusBurst = 10

// boundedWrites bounds the operators' writes of an object in a period, of which some need no pause,
// and the revisions of the Deployment, each of which replaces all pods.
func boundedWrites(ctx context.Context, e *harness.Environment, resource, name string, period time.Duration, burst int) error {
	writesBefore, staleBefore := operatorWrites(e, resource, name)
	revisions, start := newestRevision(ctx, e), time.Now()
	harness.Pause(ctx, period)
	took := time.Since(start)
	writes, stale := operatorWrites(e, resource, name)
	writes, stale = writes-writesBefore, stale-staleBefore
	rolled := max(0, newestRevision(ctx, e)-revisions) // A Deployment that was recreated starts with 1.
	fmt.Printf("%s %s: %d writes, %d stale ones, and %d new revisions in %s\n", resource, name, writes, stale, rolled, took.Round(time.Second))
	operators := len(e.Proxies())
	bound := burst + operators*oracle.PaceBound(took)
	return errors.Join(
		oracle.CheckCount("writes of "+resource+" "+name, writes, 0, bound, took),
		// The operator replaces a stale write, because the API server did not accept it.
		oracle.CheckCount("stale writes of "+resource+" "+name, stale, 0, bound, took),
		// Each write of an operator, and the reaction to it, may need a revision.
		oracle.CheckCount("revisions of the Deployment", rolled, 0, 2*operators*oracle.PaceBound(took), took))
}

// operatorWrites returns how often the operators of the subject have written an object, and how many
// more writes were based on a stale snapshot.
func operatorWrites(e *harness.Environment, resource, name string) (writes, stale int) {
	for _, p := range e.Proxies() {
		all := oracle.WritesOf(p.Writes(), resource, client.ObjectKey{Namespace: e.Subject, Name: name})
		effective := len(oracle.Effective(all))
		writes, stale = writes+effective, stale+len(all)-effective
	}
	return writes, stale
}

// newestRevision returns the newest revision of the Echo's Deployment, or 0.
func newestRevision(ctx context.Context, e *harness.Environment) (revision int) {
	var d appsv1.Deployment
	if err := e.Client.Get(ctx, client.ObjectKey{Namespace: e.Subject, Name: kinds.ServerName(one)}, &d); err != nil {
		return 0
	}
	_, _ = fmt.Sscan(d.Annotations["deployment.kubernetes.io/revision"], &revision) // A new Deployment has none.
	return revision
}

// recoverFrom expects the operator to converge after the cause of a finding was removed.
func recoverFrom(ctx context.Context, e *harness.Environment, finding error) error {
	if finding != nil {
		return finding
	}
	start := time.Now()
	if err := e.Settle(ctx); err != nil {
		return err
	}
	e.Record("Recovery after repeated drift", time.Since(start), harness.ConvergenceTimeout)
	// Every paced write may have caused a status.
	e.AllowWrites(2 * len(e.Proxies()) * oracle.PaceBound(time.Minute))
	return e.Verify(ctx)
}

// statusDrift repeats a change of the status.
func statusDrift(change func(*echov1.EchoStatus)) func(context.Context, *harness.Environment, time.Duration) error {
	return func(ctx context.Context, e *harness.Environment, period time.Duration) error {
		if err := createReady(ctx, e); err != nil {
			return err
		}
		writer, err := react(ctx, e, &echov1.EchoList{}, func(ctx context.Context, object client.Object) (bool, error) {
			echo := object.(*echov1.Echo)
			version := echo.ResourceVersion
			change(&echo.Status)
			err := e.Client.Status().Update(ctx, echo)
			return echo.ResourceVersion != version, err
		})
		if err != nil {
			return err
		}
		defer writer.stop()
		err = boundedWrites(ctx, e, kinds.EchoStatus, one, period, statusBurst)
		writer.stop()
		return recoverFrom(ctx, e, err)
	}
}

// twoImages runs two operators with different default images in one namespace.
func twoImages(ctx context.Context, e *harness.Environment, period time.Duration) error {
	if err := createReady(ctx, e); err != nil {
		return err
	}
	other, err := e.AddReplicaWithImage(otherImage)
	if err != nil {
		return err
	}
	defer other.Kill()
	err = boundedWrites(ctx, e, deployment.Resource.Resource, kinds.ServerName(one), period, 0)
	other.Kill()
	return recoverFrom(ctx, e, err)
}

// changingAdmission has a webhook change an annotation and a field of the Deployment, with another
// result for each update. If the field determines the answer, the Echo is not ready.
func changingAdmission(field string, rejected bool) func(context.Context, *harness.Environment, time.Duration) error {
	container := "/spec/template/spec/containers/0"
	change := map[string]string{
		"image":    `{"op":"replace","path":"` + container + `/image","value":"docker.io/library/mirror:%[1]d"}`,
		"deadline": `{"op":"replace","path":"/spec/progressDeadlineSeconds","value":%[1]d}`,
		"argument": `{"op":"replace","path":"` + container + `/args/0","value":"-text=%[1]d"}`,
	}[field]
	return func(ctx context.Context, e *harness.Environment, period time.Duration) error {
		if err := createReady(ctx, e); err != nil {
			return err
		}
		hook := &webhook{
			resources: []schema.GroupVersionResource{deployment.Resource}, operation: admissionregistrationv1.Update, mutating: true, timeout: 5,
			answer: func(w http.ResponseWriter, r *http.Request, c webhookCall) {
				patch(func(c webhookCall) string {
					return fmt.Sprintf(`[{"op":"add","path":"/metadata/annotations/example.com~1count","value":"%[1]d"},`+change+`]`, 1000+c.number)
				})(w, r, c)
			},
		}
		child := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: e.Subject, Name: kinds.ServerName(one)}}
		remove, err := hook.install(ctx, e, probeUpdate(e, child, false))
		if err != nil {
			return err
		}
		defer func() { _ = remove(context.WithoutCancel(ctx)) }() // If the scenario fails before it removes the webhook.
		if err := e.EditEcho(ctx, one, func(s *echov1.EchoSpec) { s.Message = "n" }); err != nil {
			return err
		}
		if err := boundedWrites(ctx, e, deployment.Resource.Resource, kinds.ServerName(one), period, 0); err != nil {
			return err
		}
		if rejected {
			err = e.AwaitDegraded(ctx, harness.ConvergenceTimeout, e.Subject, one, echov1.ReasonRejected, deployment.Name)
		} else {
			err = expectAccepted(ctx, e)
		}
		if err := errors.Join(err, remove(ctx)); err != nil {
			return err
		}
		return recoverFrom(ctx, e, revise(ctx, e, child))
	}
}

// revise edits the Echo, because the operator keeps what it has accepted until the desired state
// changes, and removes the annotation that the webhook has added.
func revise(ctx context.Context, e *harness.Environment, child client.Object) error {
	annotation := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"example.com/count":null}}}`))
	if err := e.Client.Patch(ctx, child, annotation); err != nil {
		return err
	}
	return e.EditEcho(ctx, one, func(s *echov1.EchoSpec) { s.Message = "o" })
}

// expectAccepted expects the operator to report what admission changed, to make no further writes,
// also after a restart, and the Echo to be ready.
func expectAccepted(ctx context.Context, e *harness.Environment) error {
	if err := e.AwaitCondition(ctx, one, echov1.ConditionOverridden, echov1.ReasonChangedByAdmission); err != nil {
		return err
	}
	if err := e.AwaitReady(ctx, one); err != nil {
		return err
	}
	if err := e.ExpectNoWrites(ctx); err != nil {
		return err
	}
	if err := e.Restart(); err != nil {
		return err
	}
	if err := e.AwaitStart(ctx); err != nil {
		return err
	}
	return e.ExpectNoWrites(ctx)
}
