package informers

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/kkloud-io/echo-operator/internal/children"
)

var (
	resource  = children.OptionalKind().Resource.GroupResource()
	notFound  = apierrors.NewGenericServerResponse(404, "list", resource, "", "the server could not find the requested resource", 0, true)
	forbidden = apierrors.NewForbidden(resource, "", errors.New("no permission"))
	busy      = apierrors.NewTooManyRequestsError("busy")
)

// fakeAPI is an API server that serves HTTPRoutes or not.
type fakeAPI struct {
	*Optional
	t     *testing.T
	start time.Time
	stop  context.CancelFunc
	// watched are the namespaces that the operator watches. None means all.
	watched []string

	mu sync.Mutex
	// isServed and discovery are the response to a question, list is that to a list or watch request.
	isServed        bool
	discovery, list error
	// listIn is the response to a list or watch request in a namespace, in addition to list.
	listIn map[string]error
	routes []gatewayv1.HTTPRoute
	asked  []time.Duration

	informers int
	watcher   *watch.FakeWatcher
	remove    context.CancelFunc
}

// startOptional starts the optional kind with an API server.
func startOptional(t *testing.T, change func(*fakeAPI)) *fakeAPI {
	t.Helper()
	f := &fakeAPI{t: t, Optional: NewOptional(DiscoveryPeriod), start: time.Now()}
	change(f)
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	t.Cleanup(queue.ShutDown)
	f.cache, f.served = fakeCache{fake: f}, f.response
	f.users = func(_ context.Context, namespace string) []reconcile.Request {
		return []reconcile.Request{request(strings.TrimPrefix(namespace+"/user", "/"))}
	}
	f.events.Handler = handler.EnqueueRequestsFromMapFunc(func(_ context.Context, object client.Object) []reconcile.Request {
		return []reconcile.Request{request(object.GetName())}
	})
	var ctx context.Context
	ctx, f.stop = context.WithCancel(t.Context())
	if err := f.Start(ctx, queue); err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
	return f
}

func request(name string) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Name: name}}
}

// set changes what the API server responds.
func (f *fakeAPI) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

func (f *fakeAPI) response() (bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = append(f.asked, time.Since(f.start))
	f.hangIf(f.discovery)
	return f.isServed, f.discovery
}

// errHang has a request wait until the end of the test.
var errHang = errors.New("no response")

func (f *fakeAPI) hangIf(err error) {
	if errors.Is(err, errHang) {
		f.mu.Unlock()
		<-f.t.Context().Done()
		f.mu.Lock()
	}
}

// fakeCache is the cache of an operator that uses the API server.
type fakeCache struct {
	cache.Informers
	fake *fakeAPI
}

// GetInformer implements cache.Informers.
func (c fakeCache) GetInformer(ctx context.Context, object client.Object, _ ...cache.InformerGetOption) (cache.Informer, error) {
	f := c.fake
	f.mu.Lock()
	defer f.mu.Unlock()
	f.informers++
	ctx, f.remove = context.WithCancel(context.WithoutCancel(ctx))
	f.t.Cleanup(f.remove)
	for namespace, transform := range f.transforms() {
		lw := &toolscache.ListWatch{
			ListWithContextFunc:  func(context.Context, metav1.ListOptions) (runtime.Object, error) { return f.listRoutes(namespace) },
			WatchFuncWithContext: f.watchRoutes,
		}
		informer := newInformer(lw, object, 0, toolscache.Indexers{})
		f.own(informer)
		if err := informer.SetTransform(transform); err != nil {
			return nil, err
		}
		go informer.RunWithContext(ctx)
	}
	return nil, nil
}

// transforms returns the transform of each watched namespace, as controller-runtime sets it.
func (f *fakeAPI) transforms() map[string]toolscache.TransformFunc {
	for object, kind := range CacheOptions(NewNamespaces(f.watched), f.Optional).ByObject {
		if _, is := object.(*gatewayv1.HTTPRoute); !is {
			continue
		}
		transforms := map[string]toolscache.TransformFunc{}
		for namespace, config := range kind.Namespaces {
			transforms[namespace] = config.Transform
		}
		if len(transforms) == 0 {
			transforms[metav1.NamespaceAll] = kind.Transform
		}
		return transforms
	}
	return nil
}

// RemoveInformer implements cache.Informers.
func (c fakeCache) RemoveInformer(context.Context, client.Object) error {
	f := c.fake
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.informers > 0 {
		f.remove()
		f.informers--
	}
	return nil
}

func (f *fakeAPI) listRoutes(namespace string) (runtime.Object, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	err := cmp.Or(f.list, f.listIn[namespace])
	f.hangIf(err)
	return &gatewayv1.HTTPRouteList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}, Items: f.routes}, err
}

func (f *fakeAPI) watchRoutes(_ context.Context, options metav1.ListOptions) (watch.Interface, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if options.SendInitialEvents != nil {
		return nil, errors.New("this API server has no streaming lists")
	}
	f.watcher = watch.NewFake()
	return f.watcher, f.list
}

// failWatch ends the watch request with an error.
func (f *fakeAPI) failWatch(err error) {
	f.set(func() { f.list = err })
	f.watcher.Stop()
}

// enqueued returns the names in the queue, and empties it.
func (f *fakeAPI) enqueued() (names []string) {
	synctest.Wait()
	for f.queue.Len() > 0 {
		r, _ := f.queue.Get()
		f.queue.Done(r)
		names = append(names, r.Name)
	}
	slices.Sort(names)
	return names
}

// expect calls Check every second for a time, which has to return the error.
func (f *fakeAPI) expect(want error, d time.Duration) {
	f.t.Helper()
	for end := time.Now().Add(d); ; time.Sleep(time.Second) {
		synctest.Wait()
		if got := f.Check("default"); !errors.Is(got, want) {
			f.t.Fatalf("%s after the start: Check = %v, want %v", time.Since(f.start), got, want)
		}
		if !time.Now().Before(end) {
			return
		}
	}
}

// expectSoon waits for the error of Check: the informer backs off.
func (f *fakeAPI) expectSoon(want error) {
	f.t.Helper()
	for end := time.Now().Add(time.Minute); !errors.Is(f.Check("default"), want) && time.Now().Before(end); time.Sleep(time.Second) {
		synctest.Wait()
	}
	f.expect(want, 0)
}

func TestAKindThatIsNotServedIsAskedForOncePerPeriodWhileItIsUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := startOptional(t, func(*fakeAPI) {})
		f.expect(ErrNotServed, 0)
		time.Sleep(10 * time.Minute)
		if want := []time.Duration{0}; !slices.Equal(f.asked, want) {
			t.Errorf("without a call of Check: questions %v after the start, want %v", f.asked, want)
		}
		if err := f.Check("default"); !errors.Is(err, ErrNotYet) {
			t.Errorf("Check = %v after 10m, want ErrNotYet: the response is too old", err)
		}
		for end := time.Now().Add(5 * time.Minute); time.Now().Before(end); time.Sleep(time.Second) {
			if err := f.Check("default"); !errors.Is(err, ErrNotServed) && !errors.Is(err, ErrNotYet) {
				t.Fatalf("Check = %v, want ErrNotServed or, during a question, ErrNotYet", err)
			}
			synctest.Wait()
		}
		if n := len(f.asked); n != 1+6 {
			t.Errorf("%d questions, want one at the start and 6 in 5m of calls of Check: %v", n, f.asked)
		}
		if f.enqueued(); f.informers != 0 {
			t.Errorf("%d informers, want none", f.informers)
		}

		f.set(func() { f.isServed = true })
		for installed := time.Now(); f.Check("default") != nil; time.Sleep(time.Second) {
			if took := time.Since(installed); took > time.Minute {
				t.Fatalf("Check = %v %s after the installation, want nil", f.Check("default"), took)
			}
		}
		if got, want := f.enqueued(), []string{"user"}; !slices.Equal(got, want) {
			t.Errorf("enqueued after the installation: %v, want %v", got, want)
		}
		questions := len(f.asked)
		f.expect(nil, 10*time.Minute)
		if len(f.asked) != questions {
			t.Errorf("questions during the watch: %v, want none", f.asked[questions:])
		}
	})
}

// So the objects that no longer have a user are found, too.
func TestTheInitialListIsEnqueuedAfterTheSync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := startOptional(t, func(f *fakeAPI) {
			f.isServed = true
			f.routes = []gatewayv1.HTTPRoute{{ObjectMeta: metav1.ObjectMeta{Name: "left", ResourceVersion: "1"}}}
			synced := f.Optional
			f.events.Predicates = append(f.events.Predicates, predicate.NewPredicateFuncs(func(client.Object) bool {
				if err := synced.Check("default"); err != nil {
					t.Errorf("Check = %v when the event of the initial list arrives, want nil", err)
				}
				return true
			}))
		})
		if got, want := f.enqueued(), []string{"left", "user"}; !slices.Equal(got, want) {
			t.Errorf("enqueued at the start: %v, want %v", got, want)
		}
		f.watcher.Add(&gatewayv1.HTTPRoute{ObjectMeta: metav1.ObjectMeta{Name: "new", ResourceVersion: "2"}})
		if got, want := f.enqueued(), []string{"new"}; !slices.Equal(got, want) {
			t.Errorf("enqueued after an event: %v, want %v", got, want)
		}
	})
}

func TestTheWatchEndsWhenTheKindIsNoLongerServed(t *testing.T) {
	// Another handler limits the rate of errors with a clock outside of the bubble.
	defer func(all []utilruntime.ErrorHandler) { utilruntime.ErrorHandlers = all }(utilruntime.ErrorHandlers)
	utilruntime.ErrorHandlers = utilruntime.ErrorHandlers[:1]
	synctest.Test(t, func(t *testing.T) {
		f := startOptional(t, func(f *fakeAPI) { f.isServed = true })
		f.expect(nil, time.Hour)
		f.enqueued()
		f.failWatch(forbidden) // The cache remains complete, and the informer tries again.
		f.expect(nil, time.Minute)
		f.failWatch(notFound)
		f.expectSoon(ErrNotServed)
		f.watchFailed(t.Context(), nil, f.Optional.informers[""], notFound) // Each namespace has a watch.
		f.expect(ErrNotServed, 0)
		if got, want := f.enqueued(), []string{"user"}; !slices.Equal(got, want) || f.informers != 0 {
			t.Errorf("after the removal: enqueued %v and %d informers, want %v and none", got, f.informers, want)
		}
		before := len(f.asked)
		for end := time.Now().Add(5 * time.Minute); time.Now().Before(end); time.Sleep(time.Second) {
			_ = f.Check("default") // The API server says that it serves the kind, but has no such resource.
		}
		if n := len(f.asked) - before; n > 6 {
			t.Errorf("%d questions in 5m, want at most 6", n)
		}
		f.set(func() { f.list = nil })
		f.expectSoon(nil)
	})
}

func TestAnErrorIsReportedIfItLasts(t *testing.T) {
	list := func(err error) func(*fakeAPI) { return func(f *fakeAPI) { f.isServed, f.list = true, err } }
	discovery := func(err error) func(*fakeAPI) { return func(f *fakeAPI) { f.discovery = err } }
	for name, test := range map[string]struct {
		change func(*fakeAPI)
		want   error
		after  time.Duration
	}{
		"no permission to list": {list(forbidden), forbidden, 0},
		"no permission to ask":  {discovery(forbidden), forbidden, 0},
		"no list":               {list(busy), busy, patience},
		"no discovery":          {discovery(busy), busy, patience},
		"a list hangs":          {list(errHang), errNoResponse, patience},
		"a question hangs":      {discovery(errHang), errNoResponse, patience},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := startOptional(t, test.change)
				for !errors.Is(f.Check("default"), test.want) {
					if err := f.Check("default"); !errors.Is(err, ErrNotYet) || time.Since(f.start) > time.Minute {
						t.Fatalf("%s after the start: Check = %v, want ErrNotYet and then %v", time.Since(f.start), err, test.want)
					}
					time.Sleep(100 * time.Millisecond)
				}
				if took := time.Since(f.start); took < test.after || took > test.after+time.Second {
					t.Errorf("the error was reported after %s, want %s", took, test.after)
				}
				f.expect(test.want, 5*time.Minute)
				if n := len(f.asked); n > 1+5*6 {
					t.Errorf("%d questions in 5m, want at most one in 10s", n)
				}
				if errors.Is(test.want, errNoResponse) {
					return // The fake hangs until the end of the test.
				}
				f.set(func() { f.isServed, f.discovery, f.list = true, nil, nil })
				f.expectSoon(nil)
			})
		})
	}
}

// The status of an Echo must not change because the operator stops.
func TestTheEndOfTheOperatorIsNotTheEndOfTheKind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := startOptional(t, func(f *fakeAPI) { f.isServed = true })
		f.stop()
		f.expect(nil, time.Minute)
	})
}

func TestEachNamespaceHasItsOwnResult(t *testing.T) {
	for name, failure := range map[string]error{"no permission": forbidden, "a list fails": busy} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := startOptional(t, func(f *fakeAPI) {
					f.isServed, f.watched, f.listIn = true, []string{"a", "b"}, map[string]error{"b": failure}
				})
				if got, want := f.enqueued(), []string{"a/user"}; !slices.Equal(got, want) {
					t.Errorf("enqueued after the start: %v, want %v", got, want)
				}
				for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(time.Second) {
					if err := f.Check("a"); err != nil {
						t.Fatalf("%s after the start: Check = %v in the namespace that can be read, want nil", time.Since(f.start), err)
					}
				}
				if err := f.Check("b"); !errors.Is(err, failure) {
					t.Errorf("Check = %v in the other namespace, want %v", err, failure)
				}
				f.set(func() { f.listIn = nil })
				time.Sleep(time.Minute)
				if err := f.Check("b"); err != nil {
					t.Errorf("Check = %v a minute after the failure, want nil", err)
				}
				if got, want := f.enqueued(), []string{"b/user"}; !slices.Equal(got, want) {
					t.Errorf("enqueued after the failure: %v, want %v", got, want)
				}
			})
		})
	}
}

// The readiness of the operator and its other watches wait until the cache is synced.
func TestNothingWaitsForTheOptionalKind(t *testing.T) {
	o := NewOptional(DiscoveryPeriod)
	options := CacheOptions(NewNamespaces(nil), o)
	for _, kind := range children.DifferentObjectKinds() {
		informer := options.NewInformer(&toolscache.ListWatch{}, kind.New(), 0, toolscache.Indexers{})
		if got := informer.HasSynced(); got != kind.OptionalAPI {
			t.Errorf("%s: HasSynced of a new informer = %t, want %t", kind.Name, got, kind.OptionalAPI)
		}
		select {
		case <-informer.HasSyncedChecker().Done():
			t.Errorf("%s: a new informer is synced", kind.Name)
		default:
		}
	}
}
