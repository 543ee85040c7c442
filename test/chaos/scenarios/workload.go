package scenarios

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/children"
	"github.com/kkloud-io/echo-operator/internal/status"
	"github.com/kkloud-io/echo-operator/test/chaos/harness"
	"github.com/kkloud-io/echo-operator/test/chaos/kinds"
	"github.com/kkloud-io/echo-operator/test/chaos/oracle"
)

// workloads returns what the API server has of each Echo in a namespace, by its name.
func workloads(ctx context.Context, e *harness.Environment, namespace string) (map[string]oracle.Workload, error) {
	var echoes echov1.EchoList
	if err := e.Client.List(ctx, &echoes, client.InNamespace(namespace)); err != nil {
		return nil, err
	}
	var pods corev1.PodList
	if err := e.Client.List(ctx, &pods, client.InNamespace(namespace)); err != nil {
		return nil, err
	}
	all := map[string]oracle.Workload{}
	for i := range echoes.Items {
		all[echoes.Items[i].Name] = oracle.Workload{Echo: &echoes.Items[i], Children: map[string]client.Object{}, Pods: pods.Items}
	}
	for _, list := range kinds.ChildLists() {
		if err := e.Client.List(ctx, list, client.InNamespace(namespace)); err != nil {
			return nil, err
		}
		objects, err := kinds.Items(list)
		if err != nil {
			return nil, err
		}
		for _, object := range objects {
			for name, w := range all {
				if kind := kinds.ByName(kinds.Of(object)); object.GetName() == kinds.ChildName(kind, name) {
					w.Children[kind.Name] = object
				}
			}
		}
	}
	return all, nil
}

// errTakenAway means that admission sets another owner, so that the garbage collector deletes the child.
var errTakenAway = errors.New("admission changes the controller of the child")

// rejectedChildren returns the errors with which the API server rejects the desired state of the
// children, by kind. It tries that without a change.
func rejectedChildren(ctx context.Context, e *harness.Environment, w oracle.Workload) map[string]error {
	rejected := map[string]error{}
	for _, kind := range children.Kinds {
		live, exists := w.Children[kind.Name]
		if !kind.Wanted(w.Echo) {
			continue
		}
		var err error
		if exists && len(oracle.Differences(live, w.Echo)) > 0 {
			desired := live.DeepCopyObject().(client.Object)
			kinds.Mutate(desired, w.Echo)
			err = e.Client.Update(ctx, desired, client.DryRunAll)
		} else if !exists {
			desired := kinds.New(kind)
			desired.SetNamespace(w.Echo.Namespace)
			desired.SetName(kinds.ChildName(kind, w.Echo.Name))
			kinds.Mutate(desired, w.Echo)
			err = e.Client.Create(ctx, desired, client.DryRunAll)
			if err == nil && !metav1.IsControlledBy(desired, w.Echo) {
				err = errTakenAway
			}
		}
		if err != nil && !apierrors.IsConflict(err) {
			rejected[kind.Name] = err
		}
	}
	return rejected
}

// checkStatus checks the status of an Echo. It asks whether the API server rejects a child only if that
// matters.
func checkStatus(ctx context.Context, e *harness.Environment, w oracle.Workload) error {
	err := w.CheckStatus()
	if errors.Is(err, oracle.ErrNotRejected) {
		w.Rejected = rejectedChildren(ctx, e, w)
		err = w.CheckStatus()
	}
	return err
}

// workloadInterval is how often workloads are read.
const workloadInterval = time.Second

// inFlightTimeout is how long a rollout may take that is in flight, because kube-controller-manager
// needs longer on a busy machine. The operator reports one that takes longer than two minutes.
const inFlightTimeout = 5 * time.Minute

// awaitWorkloads waits until each named Echo of the subject passes the check. It returns the findings
// about those that do not, by name.
func awaitWorkloads(ctx context.Context, e *harness.Environment, timeout time.Duration, names []string, check func(context.Context, oracle.Workload) error) (map[string]error, error) {
	start := time.Now()
	for {
		elapsed, inFlight := time.Since(start), false
		all, err := workloads(ctx, e, e.Subject)
		if err != nil {
			return nil, err
		}
		findings := map[string]error{}
		for _, name := range names {
			w, exists := all[name]
			if !exists {
				findings[name] = apierrors.NewNotFound(echov1.GroupVersion.WithResource(kinds.Echoes).GroupResource(), name)
			} else if err := check(ctx, w); err != nil {
				findings[name] = err
				inFlight = inFlight || status.RolloutInFlight(w.Echo.Status) || isVerifying(w.Echo)
			}
		}
		if err := e.Operator.Failed(); err != nil || ctx.Err() != nil {
			return findings, firstOf(err, ctx.Err())
		}
		if len(findings) == 0 || elapsed > inFlightTimeout || elapsed > timeout && !inFlight {
			return findings, nil
		}
		harness.Pause(ctx, workloadInterval)
	}
}

// isVerifying reports whether verifiers of the newest spec start.
func isVerifying(echo *echov1.Echo) bool {
	verified := meta.FindStatusCondition(echo.Status.Conditions, echov1.ConditionVerified)
	return verified != nil && verified.Status == metav1.ConditionUnknown &&
		(verified.Reason == echov1.ReasonVerifying || verified.Reason == echov1.ReasonRollingOut)
}

func firstOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
