package controller

import (
	"strings"
	"testing"

	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/children"
	"github.com/kkloud-io/echo-operator/internal/testing/values"
)

// A larger child is a stub in the cache, so each reconciliation would read it from the API server.
func TestChildrenOfTheDefaultServerAreCached(t *testing.T) {
	for _, c := range values.Current.Cases() {
		echo := &echov1.Echo{}
		if len(c.Rejection) > 0 {
			continue
		}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(c.Echo.Object, echo); err != nil {
			t.Fatal(err)
		}
		if len(echo.Spec.Command)+len(echo.Spec.Args) > 0 {
			continue
		}
		if route := echo.Spec.Route; route != nil && len(route.Paths) == 0 {
			route.Paths = []echov1.Path{{Type: "PathPrefix", Value: "/"}} // The default of the API server.
		}
		echo.Name, echo.Spec.Message = strings.Repeat("n", 58), strings.Repeat(`"`, 16384)
		if echo.Spec.Page == nil {
			echo.Spec.Page = &echov1.Page{}
		}
		echo.Spec.Page.Title, echo.Spec.Page.Color = strings.Repeat(`"`, 253), "#2196F3"
		for _, kind := range children.Kinds {
			child := kind.New()
			child.SetName(kind.ChildName(echo))
			kind.Mutate(child, echo, inputs)
			if isStub(slimChild(kind, child).(client.Object)) {
				t.Errorf("%s: %s has %d bytes, want at most %d", c.Name, kind.Name, child.(interface{ Size() int }).Size(), maxCachedSize)
			}
		}
	}
}

// Every other change of a budget reconciles its Echo, also one of a stub, which does not show it.
func TestOnlyTheStatusOfABudgetIsIgnored(t *testing.T) {
	var kind children.Kind
	for _, kind = range children.Kinds {
		if kind.Name == "PodDisruptionBudget" {
			break
		}
	}
	echo := &echov1.Echo{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "hello", UID: "1"}, Spec: echov1.EchoSpec{Replicas: 2}}
	cached := func(changes ...func(*policyv1.PodDisruptionBudget)) client.Object {
		budget := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: kind.ChildName(echo), ResourceVersion: "1"}}
		kind.Mutate(budget, echo, inputs)
		for _, change := range changes {
			budget.ResourceVersion = "2"
			change(budget)
		}
		return slimChild(kind, budget).(client.Object)
	}
	large := func(b *policyv1.PodDisruptionBudget) {
		b.Annotations = map[string]string{"large": strings.Repeat("x", maxCachedSize)}
	}
	for name, c := range map[string]struct {
		old, now client.Object
		news     bool
	}{
		"status":      {cached(), cached(func(b *policyv1.PodDisruptionBudget) { b.Status.CurrentHealthy = 1 }), false},
		"spec":        {cached(), cached(func(b *policyv1.PodDisruptionBudget) { b.Spec.MaxUnavailable = nil }), true},
		"label":       {cached(), cached(func(b *policyv1.PodDisruptionBudget) { delete(b.Labels, children.EchoLabel) }), true},
		"annotation":  {cached(), cached(func(b *policyv1.PodDisruptionBudget) { b.Annotations = map[string]string{"a": "b"} }), true},
		"owner":       {cached(), cached(func(b *policyv1.PodDisruptionBudget) { b.OwnerReferences = nil }), true},
		"deletion":    {cached(), cached(func(b *policyv1.PodDisruptionBudget) { b.DeletionTimestamp = new(metav1.Now()) }), true},
		"large child": {cached(large), cached(large, func(b *policyv1.PodDisruptionBudget) { b.Spec.MaxUnavailable = nil }), true},
	} {
		if news := ignoreBudgetStatus.Update(event.UpdateEvent{ObjectOld: c.old, ObjectNew: c.now}); news != c.news {
			t.Errorf("%s: the change reconciles the Echo: %t, want %t", name, news, c.news)
		}
	}
}
