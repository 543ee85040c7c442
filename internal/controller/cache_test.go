package controller

import (
	"reflect"
	"strings"
	"testing"

	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/children"
	"github.com/kkloud-io/echo-operator/internal/informers"
)

// cached returns the object as the cache keeps it.
func cached[object client.Object](t *testing.T, live object) object {
	t.Helper()
	for kind, options := range informers.CacheOptions(nil, informers.NewOptional(0)).ByObject {
		if reflect.TypeOf(kind) == reflect.TypeOf(live) {
			kept, err := options.Transform(live.DeepCopyObject())
			if err != nil {
				t.Fatal(err)
			}
			return kept.(object)
		}
	}
	t.Fatalf("the cache does not contain the kind of %T", live)
	return live
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
	keep := func(changes ...func(*policyv1.PodDisruptionBudget)) client.Object {
		budget := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: kind.ChildName(echo), ResourceVersion: "1"}}
		kind.Mutate(budget, echo, inputs)
		for _, change := range changes {
			budget.ResourceVersion = "2"
			change(budget)
		}
		return cached(t, budget)
	}
	large := func(b *policyv1.PodDisruptionBudget) {
		b.Annotations = map[string]string{"large": strings.Repeat("x", 1<<20)}
	}
	for name, c := range map[string]struct {
		old, now client.Object
		news     bool
	}{
		"status":      {keep(), keep(func(b *policyv1.PodDisruptionBudget) { b.Status.CurrentHealthy = 1 }), false},
		"spec":        {keep(), keep(func(b *policyv1.PodDisruptionBudget) { b.Spec.MaxUnavailable = nil }), true},
		"label":       {keep(), keep(func(b *policyv1.PodDisruptionBudget) { delete(b.Labels, children.EchoLabel) }), true},
		"annotation":  {keep(), keep(func(b *policyv1.PodDisruptionBudget) { b.Annotations = map[string]string{"a": "b"} }), true},
		"owner":       {keep(), keep(func(b *policyv1.PodDisruptionBudget) { b.OwnerReferences = nil }), true},
		"deletion":    {keep(), keep(func(b *policyv1.PodDisruptionBudget) { b.DeletionTimestamp = new(metav1.Now()) }), true},
		"large child": {keep(large), keep(large, func(b *policyv1.PodDisruptionBudget) { b.Spec.MaxUnavailable = nil }), true},
	} {
		if news := ignoreBudgetStatus.Update(event.UpdateEvent{ObjectOld: c.old, ObjectNew: c.now}); news != c.news {
			t.Errorf("%s: the change reconciles the Echo: %t, want %t", name, news, c.news)
		}
	}
}
