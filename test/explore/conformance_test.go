package explore

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/children"
	"github.com/kkloud-io/echo-operator/internal/testing/controlplane"
)

var (
	programs = flag.String("programs", "", "compare the model with kube-apiserver and kube-controller-manager of this `directory`")
	seed     = flag.Uint64("seed", 1, "`seed` of the compared sequences")
)

const (
	sequences = 12 // that are compared
	length    = 12 // of each, in operations
)

// status writes the status of the Echo in the version that was read or in an earlier one, and a spec that counts for nothing.
func status(name string, change func(*echov1.Echo)) operation {
	return on(name, echoName, func(ctx context.Context, c client.Client, echo *echov1.Echo) error {
		echo.Status.Ready, echo.Spec.Message = "?", "not part of the status"
		change(echo)
		return c.Status().Update(ctx, echo)
	})
}

func label(value string) operation {
	return changing("changes only a label to "+value, server, func(d *appsv1.Deployment) {
		d.Labels = labels.Merge(d.Labels, labels.Set{"example.com/a": value})
	})
}

var compared = []operation{
	create, remove, message("one"), message("two"), scale(1), scale(2), scale(3), route, verify, everyNode, plain, drift, label("0"), label("1"),
	changing("changes nothing", server, func(*appsv1.Deployment) {}),
	changing("patches an earlier version", server, func(d *appsv1.Deployment) { d.ResourceVersion, d.Spec.Paused = "1", true }),
	deleting[*appsv1.Deployment]("deletes another version", server, client.Preconditions{ResourceVersion: new("1")}),
	deleting[*appsv1.Deployment]("deletes another UID", server, client.Preconditions{UID: new(types.UID("other"))}),
	deleting[*appsv1.Deployment]("deletes the Deployment", server, client.Preconditions{}),
	status("writes the status", func(*echov1.Echo) {}),
	status("writes the status of an earlier version", func(e *echov1.Echo) { e.ResourceVersion = "1" }),
}

// visibleState is what a client can see that has a meaning: no identities, times and defaults.
func visibleState(ctx context.Context, c client.Client) (string, error) {
	var text strings.Builder
	var errs []error
	for _, kind := range append([]children.Kind{{ObjectKind: "Echo"}}, children.Kinds...) {
		var object client.Object = &echov1.Echo{}
		name := echoName
		if kind.New != nil {
			object, name = kind.New(), kind.ChildName(newEcho())
		}
		if err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, object); err != nil {
			errs = append(errs, client.IgnoreNotFound(err))
			continue
		}
		fmt.Fprintf(&text, "%s %s of generation %d\n", kind.ObjectKind, name, object.GetGeneration())
		switch o := object.(type) {
		case *echov1.Echo:
			fmt.Fprintln(&text, o.Spec.Message, o.Status.ObservedGeneration, o.Status.Replicas, o.Status.Ready)
			for _, condition := range o.Status.Conditions {
				fmt.Fprintln(&text, condition.Type, condition.Status, condition.Reason, condition.ObservedGeneration)
			}
		case *appsv1.Deployment:
			s := o.Status
			fmt.Fprintln(&text, *o.Spec.Replicas, o.Spec.Template.Spec.Containers[0].Image, o.Labels["example.com/a"],
				s.ObservedGeneration, s.Replicas, s.UpdatedReplicas, s.ReadyReplicas, s.AvailableReplicas)
			for _, condition := range s.Conditions {
				if condition.Type == appsv1.DeploymentProgressing {
					fmt.Fprintln(&text, condition.Type, condition.Status, condition.Reason)
				}
			}
		case *appsv1.DaemonSet:
			fmt.Fprintln(&text, o.Status.ObservedGeneration, o.Status.NumberReady > 0, o.Status.UpdatedNumberScheduled == o.Status.DesiredNumberScheduled)
		}
	}
	return text.String(), errors.Join(errs...)
}

// withIndex lists pods by a label instead of an index of the cache.
type withIndex struct{ client.Client }

func (c withIndex) List(ctx context.Context, into client.ObjectList, options ...client.ListOption) error {
	if selector := (&client.ListOptions{}).ApplyOptions(options).FieldSelector; selector != nil {
		r := selector.Requirements()[0]
		options = []client.ListOption{client.InNamespace(namespace), client.MatchingLabels{r.Field: r.Value}}
	}
	return c.Client.List(ctx, into, options...)
}

// The same operations lead to the same errors and to the same state in the model as in a real cluster, where the same reconciler runs.
func TestModelConformsToKubernetes(t *testing.T) {
	if *programs == "" {
		t.Skip("needs -programs")
	}
	ctrl.SetLogger(logr.Discard())
	crds, err := controlplane.GatewayCRDs("../..", "httproutes")
	if err != nil {
		t.Fatal(err)
	}
	plane, err := controlplane.Start(t.Context(), controlplane.Options{Root: "../..", Bin: *programs, Logs: t.TempDir(), CRDs: crds})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = plane.Stop(context.Background()) }() // The test is over.
	plane.StartGateways(t.Context())
	for i := range uint64(sequences) {
		compareSequence(t, plane.Client, *seed+i)
		if err := plane.Client.DeleteAllOf(t.Context(), &echov1.Echo{}, client.InNamespace(namespace)); err != nil {
			t.Fatal(err)
		}
		NewWithT(t).Eventually(func() (string, error) {
			var pods corev1.PodList
			left, err := visibleState(t.Context(), plane.Client)
			return fmt.Sprint(left, len(pods.Items)), errors.Join(err, plane.Client.List(t.Context(), &pods, client.InNamespace(namespace)))
		}, time.Minute, 200*time.Millisecond).Should(Equal("0"), "something is left")
	}
}

func compareSequence(t *testing.T, real client.Client, seed uint64) {
	t.Helper()
	w := newWorld(t, family{operations: []operation{create}})
	random := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // It must be reproducible.
	operator := newOperator()
	operator.Client, operator.APIReader = withIndex{real}, withIndex{real}
	var story []string
	for range length {
		o := create
		if _, exists := w.echo(); exists {
			o = compared[random.IntN(len(compared))]
		}
		story = append(story, o.name)
		errModel, errReal := o.do(t.Context(), w.otherClient()), o.do(t.Context(), real)
		if apierrors.ReasonForError(errModel) != apierrors.ReasonForError(errReal) {
			t.Fatalf("seed %d, %q: the model returns %v, the API server %v", seed, story, errModel, errReal)
		}
		w.flush()
		w.settle(t)
		want, _ := visibleState(t.Context(), w.otherClient())
		NewWithT(t).Eventually(func() (string, error) {
			_, err := operator.Reconcile(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: echoName}})
			got, errRead := visibleState(t.Context(), real)
			if got == want {
				err = nil
			}
			return got, errors.Join(err, errRead)
		}, time.Minute, 200*time.Millisecond).Should(Equal(want), "seed %d, %q: the state in the model", seed, story)
	}
	t.Logf("seed %d: %s", seed, strings.Join(story, "; "))
}
