package controller

import (
	"context"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/children"
	"github.com/kkloud-io/echo-operator/internal/informers"
)

// emptyCache is a cache without objects. It records the names of those that are read.
type emptyCache struct {
	client.Client
	read []string
}

func (c *emptyCache) Get(_ context.Context, key client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
	c.read = append(c.read, key.Name)
	return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
}

func TestReconciliationReadsNoVerifierOfAnEchoWithoutOne(t *testing.T) {
	const echoName = "hello"
	verifier := func(name string) *appsv1.Deployment {
		return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	}
	var servers []string // One read for each child that is no verifier.
	for _, kind := range children.Kinds {
		if !kind.OptionalAPI && !kind.Verifier {
			servers = append(servers, "echo-hello")
		}
	}
	for name, test := range map[string]struct {
		verify  *echov1.Verify
		created []client.Object
		deleted []client.Object
		want    []string
	}{
		"no verification":                     {nil, nil, nil, servers},
		"a Deployment of a verifier is left":  {nil, []client.Object{verifier("verify-hello")}, nil, append(slices.Clone(servers), "verify-hello")},
		"the verifier is deleted":             {nil, []client.Object{verifier("verify-hello")}, []client.Object{verifier("verify-hello")}, servers},
		"another Echo has a verifier":         {nil, []client.Object{verifier("verify-other"), verifier("echo-hello")}, nil, servers},
		"the Echo is verified by one pod":     {&echov1.Verify{From: echov1.VerifyFromCluster}, nil, nil, append(slices.Clone(servers), "verify-hello")},
		"the administrator does not allow it": {&echov1.Verify{From: echov1.VerifyFromEveryNode}, nil, nil, servers},
	} {
		t.Run(name, func(t *testing.T) {
			cache := &emptyCache{}
			r := &EchoReconciler{Client: cache, Optional: informers.NewOptional(0)}
			observer := r.verifiers.observe("Deployment")
			for _, object := range test.created {
				if !observer.Create(event.CreateEvent{Object: object, IsInInitialList: true}) {
					t.Errorf("the predicate drops the creation of %s", object.GetName())
				}
			}
			for _, object := range test.deleted {
				if !observer.Delete(event.DeleteEvent{Object: object}) {
					t.Errorf("the predicate drops the deletion of %s", object.GetName())
				}
			}
			echo := &echov1.Echo{ // An Echo that is being deleted causes no writes.
				ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: echoName, DeletionTimestamp: new(metav1.Now())},
				Spec:       echov1.EchoSpec{Message: "m", Replicas: 1, Verify: test.verify},
			}
			observed, _, err := r.reconcileChildren(t.Context(), echo)
			if err != nil {
				t.Fatal(err)
			}
			slices.Sort(cache.read) // A child may follow the verifiers in Kinds.
			if !slices.Equal(cache.read, test.want) {
				t.Errorf("objects that were read: %v, want %v", cache.read, test.want)
			}
			if (observed.Verification != nil) != (test.verify != nil) {
				t.Errorf("observed verification = %v, want one exactly for an Echo with verify", observed.Verification)
			}
		})
	}
}

func TestVerifierNamesAreNotThoseOfServers(t *testing.T) {
	echo := &echov1.Echo{ObjectMeta: metav1.ObjectMeta{Name: "verify-hello"}}
	if children.IsVerifierName(children.Name(echo)) || !children.IsVerifierName(children.VerifierName(echo)) {
		t.Errorf("IsVerifierName: %s is the name of a server, %s that of a verifier", children.Name(echo), children.VerifierName(echo))
	}
}
