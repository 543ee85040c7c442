package explore

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/children"
	"github.com/kkloud-io/echo-operator/internal/controller"
	"github.com/kkloud-io/echo-operator/internal/informers"
	"github.com/kkloud-io/echo-operator/internal/metrics"
	"github.com/kkloud-io/echo-operator/internal/testing/controlplane"
)

// gracePeriod is that of every pod.
const gracePeriod = 30 * time.Second

// The delays with which controller-runtime repeats a reconciliation that failed.
const minRetry, maxRetry = 100 * time.Millisecond, 30 * time.Second

func newOperator() *controller.EchoReconciler {
	return &controller.EchoReconciler{
		ServerImage: controlplane.ServerImage, VerifierImage: controlplane.VerifierImage, AllowEveryNodeVerification: true, Recorder: &events.FakeRecorder{},
		Optional: &informers.Optional{}, // Its cache contains the kind.
		Metrics:  metrics.New(prometheus.NewRegistry(), "explored"),
	}
}

// transforms are those of the operator's cache, by kind.
var transforms = func() map[string]func(any) (any, error) {
	all := map[string]func(any) (any, error){}
	for object, options := range informers.CacheOptions(nil, informers.NewOptional(0)).ByObject {
		all[kindOf(object)] = options.Transform
	}
	return all
}()

// publish sends a change to the watch of the operator.
func (w *world) publish(c change) {
	if c.key == echoKey {
		if isEdit := c.old == nil || c.new == nil || c.old.GetGeneration() != c.new.GetGeneration(); isEdit {
			w.edits = nil
		}
		w.edits = append(slices.Clip(w.edits), c)
	}
	w.withheld = append(slices.Clip(w.withheld), c)
}

// flush delivers the changes of every kind that is not held.
func (w *world) flush() {
	var held []change
	for _, c := range w.withheld {
		if c.key.kind == w.held {
			held = append(held, c)
		} else {
			w.deliver(c)
		}
	}
	w.withheld = held
}

// watchedKinds are the kinds that the controller watches.
var watchedKinds = func() (kinds []string) {
	for _, watch := range controller.Watches() {
		kinds = append(kinds, kindOf(watch.Object))
	}
	return kinds
}()

// deliver delivers a change to the operator.
func (w *world) deliver(c change) {
	before, after := w.cached[c.key], visible(c.new)
	delete(w.cached, c.key)
	if after != nil {
		w.cached[c.key] = after
	}
	for _, watch := range controller.Watches() {
		if kindOf(watch.Object) != c.key.kind {
			continue
		}
		passes := predicate.And(watch.Predicates...)
		object := after
		isPassed := false
		switch {
		case before == nil && after == nil:
			// The cache lacks HTTPRoutes that are not children. The operator watches those that the Echo overrides.
			if echo := w.cached[echoKey]; echo != nil && slices.Contains(children.Overrides(echo.Object.(*echov1.Echo)), c.key.name) { //nolint:forcetypeassert // The key has the kind.
				w.queued = true
			}
			return
		case before == nil:
			isPassed = passes.Create(event.CreateEvent{Object: after.Object})
		case after == nil:
			object, isPassed = before, passes.Delete(event.DeleteEvent{Object: before.Object})
		default:
			isPassed = passes.Update(event.UpdateEvent{ObjectOld: before.Object, ObjectNew: after.Object})
		}
		if isPassed && len(watch.Requests(context.Background(), object.Object)) > 0 {
			w.queued = true
		}
	}
}

// visible returns what the operator's cache keeps of an object, or nil.
func visible(i *item) *item {
	if i == nil || kindOf(i.Object) != "Echo" && i.GetLabels()[children.ManagedByLabel] != children.ManagedBy {
		return nil
	}
	transformed, err := transforms[kindOf(i.Object)](copyOf(i.Object))
	if err != nil {
		panic(err) // A transformation of an object of its type has no error.
	}
	return newItem(transformed.(client.Object)) //nolint:forcetypeassert // A transformation keeps the type.
}

// restart loses the memory of the operator. Its cache lists every object.
func (w *world) restart() {
	w.operator = copyOperator(w.operator, false)
	w.held, w.withheld, w.cached = "", nil, map[key]*item{}
	for k, i := range w.objects {
		if seen := visible(i); seen != nil {
			w.cached[k] = seen
		}
	}
	w.again, w.failures = never, 0
	w.queued = w.cached[echoKey] != nil
}

// restartWithStaleEcho is restart while the API server still answers as before the last edit, as a replica of it may.
func (w *world) restartWithStaleEcho() {
	w.restart()
	w.held, w.heldFrom, w.withheld = echoKey.kind, w.now, w.edits
	if delete(w.cached, echoKey); w.edits[0].old != nil {
		w.cached[echoKey] = visible(w.edits[0].old)
	}
	w.queued = w.cached[echoKey] != nil
}

// reconcile runs one reconciliation at the time of the world. It returns its writes.
func (w *world) reconcile(t *testing.T, f fault, at int) *writes {
	done := &writes{fault: f, at: at}
	w.operator = copyOperator(w.operator, true)
	w.operator.Client = &apiClient{world: w, isCached: true, writes: done}
	w.operator.APIReader = &apiClient{world: w, writes: done}
	w.queued = false
	var result reconcile.Result
	var err error
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(w.now)
		result, err = w.operator.Reconcile(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: echoName}})
	})
	w.operator.Client, w.operator.APIReader = nil, nil
	switch {
	case done.crashed && f == staleCrash:
		w.restartWithStaleEcho()
		return done
	case done.crashed:
		w.restart()
		return done
	case err != nil:
		w.requeue(min(minRetry<<min(w.failures, 10), maxRetry))
		w.failures++
	default:
		w.failures = 0
		if result.RequeueAfter > 0 {
			w.requeue(result.RequeueAfter)
		}
	}
	w.flush()
	return done
}

// requeue has the queue return the Echo after some time, or earlier.
func (w *world) requeue(after time.Duration) {
	if at := w.now + after; w.again == never || at < w.again {
		w.again = at
	}
}

// wait lets the time pass until the queue returns the Echo.
func (w *world) wait() {
	w.now, w.again, w.queued = max(w.now, w.again), never, true
}
