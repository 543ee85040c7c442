package informers

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kkloud-io/echo-operator/internal/children"
)

// retryTime is the maximum time between two attempts of an informer, with its jitter.
const retryTime = time.Minute

// fakeNamespaces is an operator that watches namespaces, with an API server that does not serve some of them.
type fakeNamespaces struct {
	*Namespaces
	t     *testing.T
	queue workqueue.TypedRateLimitingInterface[reconcile.Request]
	// synced are the functions for which the manager waits.
	synced []toolscache.InformerSynced

	mu sync.Mutex
	// failures are the responses to requests in a namespace.
	failures map[string]error
	repaired chan struct{}
	watchers []*watch.FakeWatcher
}

func startNamespaces(t *testing.T, watched []string, failures map[string]error) *fakeNamespaces {
	t.Helper()
	f := &fakeNamespaces{
		Namespaces: NewNamespaces(watched), t: t, failures: failures, repaired: make(chan struct{}),
		queue: workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]()),
	}
	t.Cleanup(f.queue.ShutDown)
	options := CacheOptions(f.Namespaces, NewOptional(DiscoveryPeriod))
	for object, kind := range options.ByObject {
		transforms := map[string]toolscache.TransformFunc{metav1.NamespaceAll: kind.Transform}
		for namespace, config := range kind.Namespaces {
			delete(transforms, metav1.NamespaceAll)
			transforms[namespace] = config.Transform
		}
		for namespace, transform := range transforms {
			informer := options.NewInformer(f.listWatch(namespace), object, 0, toolscache.Indexers{})
			if err := informer.SetTransform(transform); err != nil {
				t.Fatal(err)
			}
			handler, err := informer.AddEventHandlerWithOptions(toolscache.ResourceEventHandlerFuncs{}, toolscache.HandlerOptions{})
			if err != nil {
				t.Fatal(err)
			}
			f.synced = append(f.synced, informer.HasSynced, handler.HasSynced)
			go informer.RunWithContext(t.Context())
		}
	}
	if err := f.Start(t.Context(), f.queue); err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
	return f
}

func (f *fakeNamespaces) listWatch(namespace string) *toolscache.ListWatch {
	response := func(ctx context.Context) error {
		f.mu.Lock()
		failure, repaired := f.failures[namespace], f.repaired
		f.mu.Unlock()
		if errors.Is(failure, errHang) {
			select {
			case <-repaired:
			case <-ctx.Done():
			}
			return ctx.Err()
		}
		return failure
	}
	return &toolscache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, _ metav1.ListOptions) (runtime.Object, error) {
			return &metav1.List{ListMeta: metav1.ListMeta{ResourceVersion: "1"}}, response(ctx)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			if options.SendInitialEvents != nil {
				return nil, errors.New("this API server has no streaming lists")
			}
			f.mu.Lock()
			watcher := watch.NewFake()
			f.watchers = append(f.watchers, watcher)
			f.mu.Unlock()
			return watcher, response(ctx)
		},
	}
}

// fail changes the responses of the API server, and ends all watches. An empty map ends the failures.
func (f *fakeNamespaces) fail(failures map[string]error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	close(f.repaired)
	f.failures, f.repaired = failures, make(chan struct{})
	for _, watcher := range f.watchers {
		watcher.Stop()
	}
	f.watchers = nil
}

// isStarted reports whether the manager does not wait any more.
func (f *fakeNamespaces) isStarted() bool {
	return !slices.ContainsFunc(f.synced, func(hasSynced toolscache.InformerSynced) bool { return !hasSynced() })
}

// await waits until the condition is true, and returns how long that took.
func (f *fakeNamespaces) await(what string, limit time.Duration, condition func() bool) time.Duration {
	f.t.Helper()
	start := time.Now()
	for synctest.Wait(); !condition(); synctest.Wait() {
		if time.Since(start) > limit {
			f.t.Fatalf("not within %s: %s. Served = %v, Unsynced = %v", limit, what, f.Served(), f.Unsynced())
		}
		time.Sleep(100 * time.Millisecond)
	}
	return time.Since(start)
}

func (f *fakeNamespaces) expectHeld(namespace string, want bool) {
	f.t.Helper()
	name := types.NamespacedName{Namespace: namespace, Name: "hello"}
	if got := f.Hold(reconcile.Request{NamespacedName: name}); got != want {
		f.t.Errorf("a request of namespace %s is held: %t, want %t", namespace, got, want)
	}
}

var failureKinds = map[string]error{"no permission": forbidden, "requests fail": busy, "requests hang": errHang}

// inBubble runs the test with a fake clock, for each kind of failure.
func inBubble(t *testing.T, test func(t *testing.T, failure error)) {
	// Another handler limits the rate of errors with a clock outside of the bubble.
	defer func(all []utilruntime.ErrorHandler) { utilruntime.ErrorHandlers = all }(utilruntime.ErrorHandlers)
	utilruntime.ErrorHandlers = utilruntime.ErrorHandlers[:1]
	for name, failure := range failureKinds {
		t.Run(name, func(t *testing.T) { synctest.Test(t, func(t *testing.T) { test(t, failure) }) })
	}
}

func TestANamespaceThatFailsAtTheStartDelaysNoOther(t *testing.T) {
	inBubble(t, func(t *testing.T, failure error) {
		f := startNamespaces(t, []string{"a", "b", "c"}, map[string]error{"b": failure})
		took := f.await("the manager starts", patience+time.Second, f.isStarted)
		if isKnownEarly := took < patience; isKnownEarly != errors.Is(failure, forbidden) {
			t.Errorf("the manager started after %s, want at once if a permission is missing, otherwise after %s", took, patience)
		}
		if want, got := map[string]bool{"a": true, "b": false, "c": true}, f.Served(); !maps.Equal(got, want) {
			t.Errorf("Served = %v, want %v", got, want)
		}
		if got := f.Unsynced(); len(got) != 0 {
			t.Errorf("Unsynced = %v, want none", got)
		}
		f.expectHeld("a", false)
		f.expectHeld("b", true)
		f.expectHeld("b", true)
		for _, i := range f.states["b"].informers { // A stream of the initial list began.
			i.response(nil)
		}
		if !f.isStarted() {
			t.Error("HasSynced is false after it was true, before the initial list arrived")
		}

		f.fail(nil)
		f.await("the namespace is served after the failure", retryTime, func() bool { return f.Served()["b"] })
		f.expectHeld("b", false)
		f.await("the request that was held is enqueued", updatePeriod, func() bool { return f.queue.Len() == 1 })
		item, _ := f.queue.Get()
		f.queue.Done(item)
		time.Sleep(time.Minute)
		if f.queue.Len() != 0 {
			t.Error("the request that was held is enqueued again")
		}
	})
}

func TestANamespaceThatFailsLaterRemainsInTheCache(t *testing.T) {
	inBubble(t, func(t *testing.T, failure error) {
		f := startNamespaces(t, []string{"a", "b"}, nil)
		f.await("both namespaces are served", time.Second, func() bool { return f.Served()["a"] && f.Served()["b"] })
		time.Sleep(time.Hour)
		f.fail(map[string]error{"b": failure})
		f.await("the namespace is not served", patience+retryTime, func() bool { return !f.Served()["b"] })
		for end := time.Now().Add(10 * time.Minute); time.Now().Before(end); time.Sleep(time.Second) {
			if got, want := f.Served(), map[string]bool{"a": true, "b": false}; !maps.Equal(got, want) {
				t.Fatalf("Served = %v during the failure, want %v", got, want)
			}
		}
		if !f.isStarted() {
			t.Error("HasSynced is false after it was true")
		}
		f.expectHeld("b", false)
		f.fail(nil)
		f.await("the namespace is served after the failure", retryTime, func() bool { return f.Served()["b"] })
	})
}

func TestTheManagerWaitsIfNoNamespaceCanBeRead(t *testing.T) {
	for name, test := range map[string]struct {
		watched, failing []string
		want             []string
	}{
		"all namespaces":  {nil, []string{""}, []string{"all namespaces"}},
		"one namespace":   {[]string{"a"}, []string{"a"}, []string{"a"}},
		"both namespaces": {[]string{"a", "b"}, []string{"a", "b"}, []string{"a", "b"}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, failure error) {
				failures := map[string]error{}
				for _, namespace := range test.failing {
					failures[namespace] = failure
				}
				f := startNamespaces(t, test.watched, failures)
				for end := time.Now().Add(10 * time.Minute); time.Now().Before(end); time.Sleep(time.Second) {
					if f.isStarted() {
						t.Fatal("the manager started")
					}
				}
				if got := f.Unsynced(); !slices.Equal(got, test.want) {
					t.Errorf("Unsynced = %v, want %v", got, test.want)
				}
				f.expectHeld("a", true)
				f.fail(nil)
				f.await("the manager starts", retryTime, f.isStarted)
				isServed := func() bool { return f.states[f.names()[0]].isSynced() }
				f.await("the first namespace is served", retryTime, isServed)
				f.expectHeld("a", false)
			})
		})
	}
}

// The manager does not start because each of two namespaces can be read in part.
func TestANamespaceCountsOnlyIfItCanBeReadCompletely(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeNamespaces{Namespaces: NewNamespaces([]string{"a", "b"}), t: t, failures: map[string]error{"b": forbidden}}
		for namespace, fails := range map[string]int{"a": 0, "b": 1} {
			for i, kind := range children.DifferentObjectKinds()[:2] {
				lw := f.listWatch("a")
				if i == fails {
					lw = f.listWatch("b")
				}
				informer := newInformer(lw, kind.New(), 0, toolscache.Indexers{})
				f.own(informer)
				if err := informer.SetTransform(inNamespace(namespace, nil)); err != nil {
					t.Fatal(err)
				}
				f.synced = append(f.synced, informer.HasSynced)
				go informer.RunWithContext(t.Context())
			}
		}
		time.Sleep(time.Minute)
		if f.isStarted() {
			t.Error("the manager started")
		}
	})
}
