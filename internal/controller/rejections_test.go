package controller

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/backoff"
	"github.com/kkloud-io/echo-operator/internal/informers"
	"github.com/kkloud-io/echo-operator/internal/testing/controlplane"
)

func TestAnOverloadOfTheAPIServerIsNotReported(t *testing.T) {
	for name, test := range map[string]struct {
		respond  http.HandlerFunc
		reported bool
	}{
		"API Priority and Fairness rejects the write": {respond: func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "Too many requests, please try again later.", http.StatusTooManyRequests)
		}},
		"a webhook denies the write": {reported: true, respond: func(w http.ResponseWriter, _ *http.Request) {
			denial := apierrors.NewTooManyRequests(`admission webhook "a" denied the request`, 1).Status()
			denial.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusTooManyRequests)
			_ = json.NewEncoder(w).Encode(denial) // A broken response fails the test.
		}},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(test.respond)
			t.Cleanup(server.Close)
			direct, err := client.New(&rest.Config{Host: server.URL}, client.Options{Scheme: controlplane.Scheme(), Mapper: informers.RESTMapper()})
			if err != nil {
				t.Fatal(err)
			}
			denied := direct.Create(t.Context(), &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "echo-hello"}})
			rec, reported := (&EchoReconciler{}).newReconciliation(&echov1.Echo{}), false
			for range 2 * maxTransient {
				service := rec.child(kindOf("Service"))
				err := service.reject(denied, 0)
				if reported = service.failure != nil; !reported && err == nil {
					t.Fatalf("error = nil, want %v", denied)
				}
				if reported {
					break
				}
			}
			if pause := rec.memory.entry(kindOf("Service")).writes.Length(); reported && pause != backoff.Min {
				t.Errorf("pause after the first report = %s, want %s", pause, backoff.Min)
			}
			if reported != test.reported {
				t.Errorf("%v after %d attempts: reported = %t, want %t", denied, 2*maxTransient, reported, test.reported)
			}
		})
	}
}

// Its status would be written in vain: the API server rejects a write that is based on an earlier version.
func TestAStaleEchoCausesNoWrites(t *testing.T) {
	echo := &echov1.Echo{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "hello", Generation: 1, ResourceVersion: "9"}, Spec: echov1.EchoSpec{Replicas: 1}}
	server := interceptor.NewClient(fake.NewClientBuilder().WithScheme(controlplane.Scheme()).WithObjects(echo).Build(), interceptor.Funcs{
		Create: func(_ context.Context, _ client.WithWatch, object client.Object, _ ...client.CreateOption) error {
			t.Errorf("created %T", object)
			return errors.New("unexpected")
		},
	})
	reconciler := &EchoReconciler{Client: server, APIReader: server, ServerImage: "server", Optional: informers.NewOptional(0)}
	written := echo.DeepCopy()
	written.ResourceVersion = "10"
	reconciler.versions.Record(echoKind, written)
	result, err := reconciler.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(echo)})
	if err != nil || result.RequeueAfter != staleRetry {
		t.Errorf("result = %v, %v, want another reconciliation after %s", result, err, staleRetry)
	}
}

func TestAStaleChildHidesNoOtherError(t *testing.T) {
	conflict := apierrors.NewConflict(corev1.Resource("services"), "echo-hello", errors.New("changed"))
	unavailable := errors.New("connection refused")
	for name, test := range map[string]struct {
		service, deployment error
		stale               bool
	}{
		"stale":                      {conflict, nil, true},
		"no longer in the cache":     {&cache.ErrResourceNotCached{}, nil, true},
		"failed":                     {nil, unavailable, false},
		"stale, then another failed": {conflict, unavailable, false},
		"failed, then another stale": {unavailable, conflict, false},
	} {
		server := interceptor.NewClient(fake.NewClientBuilder().WithScheme(controlplane.Scheme()).Build(), interceptor.Funcs{
			Create: func(_ context.Context, _ client.WithWatch, object client.Object, _ ...client.CreateOption) error {
				if _, is := object.(*corev1.Service); is {
					return test.service
				}
				return test.deployment
			},
		})
		reconciler := &EchoReconciler{Client: server, APIReader: server, ServerImage: "server"}
		echo := &echov1.Echo{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "hello", Generation: 1}, Spec: echov1.EchoSpec{Replicas: 1}}
		if err := reconciler.newReconciliation(echo).reconcileChildren(t.Context()); err == nil || isStale(err) != test.stale {
			t.Errorf("%s: error = %v, stale: %t, want %t", name, err, isStale(err), test.stale)
		}
	}
}
