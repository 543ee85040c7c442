package controller

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/children"
	"github.com/kkloud-io/echo-operator/internal/status"
)

const echoKind = "Echo"

// Watch is a kind of objects whose events reconcile Echoes.
type Watch struct {
	// Object is an empty object of the kind.
	Object client.Object
	// Requests returns the Echoes that an event reconciles.
	Requests handler.MapFunc
	// Predicates are what an event has to pass.
	Predicates []predicate.Predicate
}

// Watches returns the kinds that the controller watches.
func Watches() []Watch {
	all := []Watch{
		{&echov1.Echo{}, echoItself, nil},
		{&corev1.Pod{}, echoOfPod, []predicate.Predicate{ignoreInitialList, podChanged}},
	}
	for _, kind := range children.WatchedKinds() {
		watch := Watch{kind.New(), echoOfChild, nil}
		if !kind.OptionalAPI { // Its watch may start later than the operator.
			watch.Predicates = []predicate.Predicate{ignoreInitialList}
		}
		all = append(all, watch)
	}
	return all
}

// ignoreInitialList drops the create events of objects that existed before the operator started.
// The operator reconciles every Echo once at its start anyway, and its children with it.
var ignoreInitialList = predicate.Funcs{
	CreateFunc: func(e event.CreateEvent) bool { return !e.IsInInitialList },
}

func echoItself(_ context.Context, echo client.Object) []reconcile.Request {
	return []reconcile.Request{{NamespacedName: client.ObjectKeyFromObject(echo)}}
}

// echoOfChild returns the Echo to which an object with its name belongs. Its owner reference and
// its labels may be missing.
func echoOfChild(_ context.Context, child client.Object) []reconcile.Request {
	name, found := children.EchoName(child.GetName())
	if !found {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: child.GetNamespace(), Name: name}}}
}

// routedEchoes returns the Echoes whose status depends on the optional kind.
func (r *EchoReconciler) routedEchoes(ctx context.Context) (requests []reconcile.Request) {
	var echoes echov1.EchoList
	if err := r.Client.List(ctx, &echoes, client.UnsafeDisableDeepCopy); err != nil {
		return nil // Only before the first sync of the cache, or at the end of the manager.
	}
	for i := range echoes.Items {
		if echo := &echoes.Items[i]; echo.Spec.Route != nil || isRouted(echo) {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(echo)})
		}
	}
	return requests
}

func echoOfPod(_ context.Context, pod client.Object) (requests []reconcile.Request) {
	for _, label := range []string{children.EchoLabel, children.VerifiesLabel} {
		if name := pod.GetLabels()[label]; name != "" {
			requests = append(requests, reconcile.Request{NamespacedName: types.NamespacedName{Namespace: pod.GetNamespace(), Name: name}})
		}
	}
	return requests
}

// podChanged passes only pod events that change what the status may have from the pod, and the end of a server's pod, which
// Ready waits for. All other changes of pods also change the status of their Deployment or DaemonSet.
var podChanged = predicate.Funcs{
	CreateFunc: func(e event.CreateEvent) bool { return podState(e.Object) != "" },
	DeleteFunc: func(e event.DeleteEvent) bool {
		return e.Object.GetLabels()[children.EchoLabel] != "" || podState(e.Object) != ""
	},
	UpdateFunc: func(e event.UpdateEvent) bool { return podState(e.ObjectOld) != podState(e.ObjectNew) },
}

func podState(pod client.Object) string { return status.PodState(pod.(*corev1.Pod), metav1.Now()) }
