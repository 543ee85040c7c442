package scenarios

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kkloud-io/echo-operator/internal/children"
	"github.com/kkloud-io/echo-operator/internal/status"
	"github.com/kkloud-io/echo-operator/test/chaos/harness"
	"github.com/kkloud-io/echo-operator/test/chaos/kinds"
	"github.com/kkloud-io/echo-operator/test/chaos/oracle"
)

// readWorkload returns what the API server has of the subject's Echo "one".
func readWorkload(ctx context.Context, e *harness.Environment) (oracle.Workload, error) {
	w := oracle.Workload{Children: map[string]client.Object{}}
	var err error
	if w.Echo, err = e.GetEcho(ctx, e.Subject, one); err != nil {
		return w, err
	}
	var pods corev1.PodList
	if err := e.Client.List(ctx, &pods, client.InNamespace(e.Subject)); err != nil {
		return w, err
	}
	w.Pods = pods.Items
	objects, err := e.Objects(ctx, kinds.ChildLists(), e.Subject)
	for _, object := range objects {
		if kind := kinds.ByName(kinds.Of(object)); object.GetName() == kinds.ChildName(kind, one) {
			w.Children[kind.Name] = object
		}
	}
	return w, err
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

// inFlightTimeout is how long a rollout may take that is in flight, because kube-controller-manager
// needs longer on a busy machine. The operator reports one that takes longer than two minutes.
const inFlightTimeout = 5 * time.Minute

// awaitAccurateStatus waits until the status of the subject's Echo "one" is accurate.
func awaitAccurateStatus(ctx context.Context, e *harness.Environment) error {
	for start := time.Now(); ; harness.Pause(ctx, time.Second) {
		elapsed := time.Since(start)
		w, err := readWorkload(ctx, e)
		if err != nil {
			return err
		}
		err = checkStatus(ctx, e, w)
		inFlight := status.RolloutInFlight(w.Echo.Status) && elapsed < inFlightTimeout
		if failed := errors.Join(e.Operator.Failed(), ctx.Err()); failed != nil {
			return errors.Join(failed, err)
		}
		if err == nil || elapsed > e.Convergence && !inFlight {
			return err
		}
	}
}
