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
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/children"
	"github.com/kkloud-io/echo-operator/internal/informers"
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

// operation is what a client does. It depends on nothing but what the client reads.
type operation struct {
	name string
	do   func(context.Context, client.Client, *rand.Rand) error
}

func read[T client.Object](ctx context.Context, c client.Client, object T, name string) (T, error) {
	return object, c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, object)
}

// patching changes an object, in the version that was read.
func patching[T client.Object](name, object string, empty func() T, change func(T, *rand.Rand)) operation {
	return operation{name, func(ctx context.Context, c client.Client, random *rand.Rand) error {
		found, err := read(ctx, c, empty(), object)
		if err != nil {
			return err
		}
		before := copyOf(found)
		change(found, random)
		return c.Patch(ctx, found, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	}}
}

func editing(name string, change func(*echov1.EchoSpec, *rand.Rand)) operation {
	return patching(name, echoName, func() *echov1.Echo { return &echov1.Echo{} }, func(e *echov1.Echo, r *rand.Rand) { change(&e.Spec, r) })
}

func newDeployment() *appsv1.Deployment { return &appsv1.Deployment{} }

// locked patches the Deployment with the patch of the operator, in the version that was read or in an earlier one.
func locked(version func(string) string) func(context.Context, client.Client, *rand.Rand) error {
	return func(ctx context.Context, c client.Client, _ *rand.Rand) error {
		live, err := read(ctx, c, newDeployment(), server.name)
		if err != nil {
			return err
		}
		desired := live.DeepCopy()
		desired.Spec.Template.Spec.Containers[0].Image += "x"
		live.ResourceVersion = version(live.ResourceVersion)
		desired.ResourceVersion = live.ResourceVersion
		patch, err := children.LockedPatch(live, desired)
		if err != nil {
			return err
		}
		return c.Patch(ctx, live, client.RawPatch(types.JSONPatchType, patch))
	}
}

func deleting(preconditions func(*appsv1.Deployment) client.Preconditions) func(context.Context, client.Client, *rand.Rand) error {
	return func(ctx context.Context, c client.Client, _ *rand.Rand) error {
		live, err := read(ctx, c, newDeployment(), server.name)
		if err != nil {
			return err
		}
		return c.Delete(ctx, live, preconditions(live))
	}
}

// statusOf writes the status of the Echo in the version that was read or in an earlier one.
func statusOf(isStale bool) func(context.Context, client.Client, *rand.Rand) error {
	return func(ctx context.Context, c client.Client, _ *rand.Rand) error {
		echo, err := read(ctx, c, &echov1.Echo{}, echoName)
		if err != nil {
			return err
		}
		if isStale {
			echo.ResourceVersion = "1"
		}
		echo.Status.Ready, echo.Spec.Message = "?", "not part of the status"
		return c.Status().Update(ctx, echo)
	}
}

var operations = []operation{
	{"creates the Echo", func(ctx context.Context, c client.Client, _ *rand.Rand) error {
		echo := newEcho()
		echo.Namespace = namespace
		return c.Create(ctx, echo)
	}},
	{"deletes the Echo", func(ctx context.Context, c client.Client, _ *rand.Rand) error {
		echo, err := read(ctx, c, &echov1.Echo{}, echoName)
		if err != nil {
			return err
		}
		return c.Delete(ctx, echo)
	}},
	editing("edits the message", func(s *echov1.EchoSpec, r *rand.Rand) { s.Message = fmt.Sprint("message ", r.IntN(3)) }),
	editing("scales", func(s *echov1.EchoSpec, r *rand.Rand) { s.Replicas = 1 + r.Int32N(3) }),
	editing("adds or removes the route", func(s *echov1.EchoSpec, r *rand.Rand) {
		s.Route = nil
		if r.IntN(2) == 0 {
			s.Route = &echov1.Route{ParentRefs: []echov1.ParentRef{{Name: "public"}}, Scheme: "https", Paths: []echov1.Path{{Value: "/"}}}
		}
	}),
	editing("has it verified or not", func(s *echov1.EchoSpec, r *rand.Rand) {
		s.Verify = nil
		if r.IntN(3) > 0 {
			s.Verify = &echov1.Verify{
				From: []string{echov1.VerifyFromCluster, echov1.VerifyFromEveryNode}[r.IntN(2)], PeriodSeconds: 10, TimeoutSeconds: 2, FailureThreshold: 3,
			}
		}
	}),
	patching("changes the image", server.name, newDeployment, func(d *appsv1.Deployment, _ *rand.Rand) { d.Spec.Template.Spec.Containers[0].Image = "other" }),
	patching("changes only a label", server.name, newDeployment, func(d *appsv1.Deployment, r *rand.Rand) {
		d.Labels = labels.Merge(d.Labels, labels.Set{"example.com/a": fmt.Sprint(r.IntN(2))})
	}),
	patching("changes nothing", server.name, newDeployment, func(*appsv1.Deployment, *rand.Rand) {}),
	{"patches the version that it read", locked(func(version string) string { return version })},
	{"patches an earlier version", locked(func(string) string { return "1" })},
	{"changes an earlier version", func(ctx context.Context, c client.Client, _ *rand.Rand) error {
		live, err := read(ctx, c, newDeployment(), server.name)
		if err != nil {
			return err
		}
		live.ResourceVersion = "1"
		changed := live.DeepCopy()
		changed.Spec.Paused = true
		return c.Patch(ctx, changed, client.MergeFromWithOptions(live, client.MergeFromWithOptimisticLock{}))
	}},
	{"deletes another version", deleting(func(*appsv1.Deployment) client.Preconditions { return client.Preconditions{ResourceVersion: new("1")} })},
	{"deletes another UID", deleting(func(*appsv1.Deployment) client.Preconditions {
		return client.Preconditions{UID: new(types.UID("other"))}
	})},
	{"deletes the Deployment", deleting(func(d *appsv1.Deployment) client.Preconditions { return client.Preconditions{UID: &d.UID} })},
	{"writes the status", statusOf(false)},
	{"writes the status of an earlier version", statusOf(true)},
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
			for _, conditionType := range []appsv1.DeploymentConditionType{appsv1.DeploymentAvailable, appsv1.DeploymentProgressing} {
				for _, condition := range s.Conditions {
					if condition.Type == conditionType {
						fmt.Fprintln(&text, condition.Type, condition.Status, condition.Reason)
					}
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
	var o client.ListOptions
	o.ApplyOptions(options)
	if o.FieldSelector != nil {
		for _, r := range o.FieldSelector.Requirements() {
			label := map[string]string{informers.PodsByEcho: children.EchoLabel, informers.PodsByVerified: children.VerifiesLabel}[r.Field]
			return c.Client.List(ctx, into, client.InNamespace(namespace), client.MatchingLabels{label: r.Value})
		}
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
		await(t, "nothing is left", func() error {
			var pods corev1.PodList
			left, err := visibleState(t.Context(), plane.Client)
			if err := errors.Join(err, plane.Client.List(t.Context(), &pods, client.InNamespace(namespace))); err != nil || left != "" || len(pods.Items) > 0 {
				return fmt.Errorf("%d pods, %s: %w", len(pods.Items), left, err)
			}
			return nil
		})
	}
}

func compareSequence(t *testing.T, real client.Client, seed uint64) {
	t.Helper()
	w := newWorld(t, family{operations: []transition{create}})
	model := &apiClient{world: w, writes: &writes{}, isOther: true}
	random := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // It must be reproducible.
	operator := newOperator()
	operator.Client, operator.APIReader = withIndex{real}, withIndex{real}
	var story []string
	for range length {
		o := operations[0]
		if _, exists := w.echo(); exists {
			o = operations[random.IntN(len(operations))]
		}
		story = append(story, o.name)
		numbers := random.Uint64()
		errModel := o.do(t.Context(), model, rand.New(rand.NewPCG(numbers, 0))) //nolint:gosec // As above.
		errReal := o.do(t.Context(), real, rand.New(rand.NewPCG(numbers, 0)))   //nolint:gosec // As above.
		if reasonOf(errModel) != reasonOf(errReal) {
			t.Fatalf("seed %d, %q: the model returns %v, the API server %v", seed, story, errModel, errReal)
		}
		w.flush()
		w.settle(t)
		want, _ := visibleState(t.Context(), model)
		await(t, fmt.Sprintf("seed %d, %q", seed, story), func() error {
			_, err := operator.Reconcile(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: echoName}})
			got, errRead := visibleState(t.Context(), real)
			if errRead != nil || got != want {
				return fmt.Errorf("model:\n%s\nKubernetes:\n%s\n%w", want, got, errors.Join(err, errRead))
			}
			return nil
		})
	}
	t.Logf("seed %d: %s", seed, strings.Join(story, "; "))
}

func reasonOf(err error) metav1.StatusReason {
	if err == nil {
		return ""
	}
	return apierrors.ReasonForError(err)
}

func await(t *testing.T, what string, check func() error) {
	t.Helper()
	var err error
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
		if err = check(); err == nil {
			return
		}
	}
	t.Fatalf("%s: %v", what, err)
}
