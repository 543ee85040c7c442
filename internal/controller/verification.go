package controller

import (
	"context"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/children"
	"github.com/kkloud-io/echo-operator/internal/status"
)

// verifiers has the objects with the name of a verifier in the cache. A reconciliation reads an unwanted
// verifier only if it is there, because most Echoes have none.
type verifiers struct {
	mu    sync.RWMutex
	known map[verifierKey]struct{}
}

type verifierKey struct {
	objectKind      string
	namespace, echo string
}

// observe returns a predicate that observes the events of the kind of object, and passes all of them.
func (v *verifiers) observe(objectKind string) predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool {
			v.set(objectKind, e.Object, true)
			return true
		},
		DeleteFunc: func(e event.DeleteEvent) bool {
			v.set(objectKind, e.Object, false)
			return true
		},
	}
}

func (v *verifiers) set(objectKind string, object client.Object, exists bool) {
	if !children.IsVerifierName(object.GetName()) {
		return
	}
	echo, _ := children.EchoName(object.GetName())
	key := verifierKey{objectKind, object.GetNamespace(), echo}
	v.mu.Lock()
	defer v.mu.Unlock()
	switch {
	case !exists:
		delete(v.known, key)
	case v.known == nil:
		v.known = map[verifierKey]struct{}{key: {}}
	default:
		v.known[key] = struct{}{}
	}
}

// has reports whether the cache may have the verifier. An event reconciles the Echo if that changes.
func (v *verifiers) has(echo *echov1.Echo, c children.Kind) bool {
	v.mu.RLock()
	defer v.mu.RUnlock()
	_, found := v.known[verifierKey{c.ObjectKind, echo.Namespace, echo.Name}]
	return found
}

// noChild reconciles a child that the Echo neither wants nor has.
func noChild(context.Context, *echov1.Echo, children.Kind, children.Inputs) (child, error) {
	return child{}, nil
}

// canVerify reports whether the verifier may be written: the newest spec is rolled out, so that every
// result of the newest verifier is about it.
func canVerify(echo *echov1.Echo, observed status.Observation, in children.Inputs) bool {
	return len(children.ClusterIPs(in)) > 0 && status.IsRolledOut(echo, observed)
}

// observeOutdated returns the verifier as the cache has it, while it may not be written.
func (r *EchoReconciler) observeOutdated(ctx context.Context, echo *echov1.Echo, c children.Kind, in children.Inputs) (child, error) {
	result, err := r.observeChild(ctx, echo, c, in)
	result.outdated = true
	return result, err
}

// mayBeVerified reports whether a verifier may have existed when the status was written.
func mayBeVerified(echo *echov1.Echo) bool {
	verified := meta.FindStatusCondition(echo.Status.Conditions, echov1.ConditionVerified)
	return verified != nil && verified.Reason != echov1.ReasonRollingOut && verified.Reason != echov1.ReasonEveryNodeNotAllowed
}

// observeVerifier adds the result for a verifier to the observation.
func (r *EchoReconciler) observeVerifier(observed *status.Observation, echo *echov1.Echo, c children.Kind, result child) {
	if !c.Wanted(echo) {
		return
	}
	verification := &status.Verification{Failure: result.failure, NotAllowed: !r.wants(echo, c), Outdated: result.outdated}
	switch o := result.object.(type) {
	case *appsv1.Deployment:
		verification.Deployment = o
	case *appsv1.DaemonSet:
		verification.DaemonSet = o
	}
	observed.Verification = verification
}
