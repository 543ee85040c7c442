package controller

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/children"
)

// echoList is a reader that lists Echoes.
type echoList struct {
	client.Reader
	items []echov1.Echo
}

func (l echoList) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	list.(*echov1.EchoList).Items = l.items
	return nil
}

// fakeAPI is an API server that serves HTTPRoutes or not.
type fakeAPI struct {
	*optionalAPI
	answer  bool
	err     error
	asked   []time.Duration
	watches int
}

func newFakeAPI(t *testing.T) *fakeAPI {
	t.Helper()
	f, start := &fakeAPI{}, time.Now()
	f.optionalAPI = &optionalAPI{
		kind: children.Kinds[slices.IndexFunc(children.Kinds, func(k children.Kind) bool { return k.OptionalAPI })], period: discoveryPeriod, ctx: t.Context(),
		queue: workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]()),
		served: func(context.Context) (bool, error) {
			f.asked = append(f.asked, time.Since(start))
			return f.answer, f.err
		},
		watchKind: func(context.Context, *optionalAPI) (*kindWatch, error) {
			f.watches++
			w := &kindWatch{started: time.Now(), synced: make(chan struct{}), failed: make(chan struct{}), cancel: func() {}}
			close(w.synced)
			return w, nil
		},
		echoes: echoList{items: []echov1.Echo{*newRoutedEcho("routed"), *newEcho("namespace", "plain")}},
	}
	t.Cleanup(f.queue.ShutDown)
	return f
}

func newRoutedEcho(name string) *echov1.Echo { return newEcho("namespace", name, routed("public")) }

// accessFor has a reconciliation access the kind every second.
func (f *fakeAPI) accessFor(d time.Duration, each func(watched bool, instead child, err error)) {
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(time.Second) {
		each(f.access(f.ctx))
	}
}

func TestAnAbsentKindIsDiscoveredOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeAPI(t)
		f.accessFor(5*time.Minute, func(watched bool, instead child, err error) {
			if watched || !instead.notServed || err != nil || instead.recheck <= 0 || instead.recheck > discoveryPeriod {
				t.Fatalf("access = %t, %+v, %v, want that the API server does not serve the kind, and a time until the next check", watched, instead, err)
			}
		})
		if len(f.asked) > 6 || f.watches > 0 {
			t.Errorf("%d discovery requests and %d watches in 5m, want at most 6 and 0: %v", len(f.asked), f.watches, f.asked)
		}
		f.answer = true
		installed := time.Now()
		f.accessFor(time.Minute, func(watched bool, _ child, _ error) {
			if took := time.Since(installed); watched && f.watches == 1 && took > 59*time.Second {
				t.Errorf("the watch started %s after the installation, want at most 59s", took)
			}
		})
		if f.watches != 1 {
			t.Errorf("%d watches after the installation, want 1", f.watches)
		}
	})
}

func TestAWatchEndsAndStartsAgainAtMostOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeAPI(t)
		f.answer = true // The API server says so, but each watch ends immediately.
		f.accessFor(5*time.Minute, func(bool, child, error) {
			f.end(f.watch)
			f.end(f.watch) // Several namespaces have a watch each.
		})
		if len(f.asked) > 6 || f.watches != len(f.asked) {
			t.Errorf("%d discovery requests and %d watches in 5m, want as many, at most 6", len(f.asked), f.watches)
		}
	})
}

func TestTheEndOfAWatchEnqueuesTheEchoesThatNeedIt(t *testing.T) {
	f := newFakeAPI(t)
	f.answer = true
	if watched, _, err := f.access(t.Context()); !watched || err != nil {
		t.Fatalf("access = %t, %v, want a watch", watched, err)
	}
	f.end(f.watch)
	var got []string
	for f.queue.Len() > 0 {
		request, _ := f.queue.Get()
		got = append(got, request.Name)
	}
	if want := []string{"routed"}; !slices.Equal(got, want) {
		t.Errorf("enqueued Echoes = %v, want %v", got, want)
	}
}

func TestAnUnansweredDiscoveryIsRetriedAndReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeAPI(t)
		f.err = errors.New("connection refused")
		f.accessFor(time.Minute, func(_ bool, instead child, err error) {
			if instead.failure != nil || !errors.Is(err, errNotWatched) {
				t.Fatalf("without an API server: access = %+v, %v, want no report", instead, err)
			}
		})
		if len(f.asked) > 13 {
			t.Errorf("%d discovery requests in 1m, want at most 13", len(f.asked))
		}

		f.err = apierrors.NewForbidden(children.Kinds[0].Resource.GroupResource(), "", errors.New("no discovery"))
		time.Sleep(discoveryRetry)
		_, instead, err := f.access(f.ctx)
		if instead.failure == nil || instead.failure.Reason != echov1.ReasonRejected || err != nil {
			t.Errorf("after a rejection: access = %+v, %v, want a failure with the reason Rejected", instead, err)
		}

		busy := newFakeAPI(t)
		busy.err = apierrors.NewTooManyRequestsError("busy")
		reported := time.Duration(0)
		start := time.Now()
		busy.accessFor(time.Minute, func(_ bool, instead child, _ error) {
			if instead.failure != nil && reported == 0 {
				reported = time.Since(start)
			}
		})
		if reported < 2*discoveryRetry || reported > 4*discoveryRetry {
			t.Errorf("a transient error was reported after %s, want after 3 attempts", reported)
		}
	})
}

func TestAWatchThatDoesNotSyncIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kind := children.Kinds[slices.IndexFunc(children.Kinds, func(k children.Kind) bool { return k.OptionalAPI })]
		w := &kindWatch{started: time.Now(), synced: make(chan struct{}), failed: make(chan struct{})}
		if watched, instead, err := w.wait(t.Context(), kind); watched || instead.failure != nil || !errors.Is(err, errNotWatched) {
			t.Errorf("new watch: wait = %t, %+v, %v, want errNotWatched", watched, instead, err)
		}
		if took := time.Since(w.started); took != syncTimeout {
			t.Errorf("wait returned after %s, want %s", took, syncTimeout)
		}
		time.Sleep(watchStartTimeout)
		if _, instead, err := w.wait(t.Context(), kind); instead.failure == nil || err != nil {
			t.Errorf("after %s: wait = %+v, %v, want a failure", watchStartTimeout, instead, err)
		}

		forbidden := apierrors.NewForbidden(kind.Resource.GroupResource(), "", errors.New("no permission"))
		for range 2 {
			if !w.fail(t.Context(), forbidden) {
				t.Error("fail = false for a rejection, want true")
			}
		}
		if w.fail(t.Context(), errors.New("EOF")) {
			t.Error("fail = true for an error that is no rejection, want false")
		}
		before := time.Now()
		if _, instead, _ := w.wait(t.Context(), kind); instead.failure == nil || instead.failure.Message != "HTTPRoute: "+forbidden.Error() || time.Since(before) > 0 {
			t.Errorf("after a rejection: wait = %+v, want its message immediately", instead.failure)
		}
		close(w.synced)
		if watched, instead, err := w.wait(t.Context(), kind); !watched || instead.failure != nil || err != nil {
			t.Errorf("after a sync: wait = %t, %+v, %v, want true", watched, instead, err)
		}
		if w.fail(t.Context(), forbidden) {
			t.Error("after a sync: fail = true, want false")
		}
	})
}
