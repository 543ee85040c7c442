package kinds

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/children"
)

func TestOfReturnsTheKindOfEchoesAndChildren(t *testing.T) {
	if got := Of(&echov1.Echo{}); got != "Echo" {
		t.Errorf("kind of an Echo = %s, want Echo", got)
	}
	for _, kind := range children.Kinds {
		object := New(kind)
		object.SetName(ChildName(kind, "hello"))
		if got := Of(object); got != kind.Name {
			t.Errorf("kind of the %T %s = %s, want %s", object, object.GetName(), got, kind.Name)
		}
	}
}

func TestItemsReturnsEveryObjectOfAList(t *testing.T) {
	named := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name} }
	list := &corev1.ServiceList{Items: []corev1.Service{{ObjectMeta: named("a")}, {ObjectMeta: named("b")}}}
	items, err := Items(list)
	if err != nil {
		t.Fatal(err)
	}
	if len(items) != 2 || items[0].GetName() != "a" || items[1].GetName() != "b" {
		t.Errorf("items = %v, want a and b", items)
	}
	items[0].SetName("changed")
	if list.Items[0].Name != "changed" {
		t.Error("items are copies, want pointers into the list")
	}
	if _, err := Items(&policyv1.PodDisruptionBudgetList{}); err != nil {
		t.Errorf("items of an empty list: %v", err)
	}
}

func TestListsIncludeEveryKind(t *testing.T) {
	if got, want := len(Lists()), 1+len(children.DifferentObjectKinds()); got != want {
		t.Errorf("lists = %d, want %d", got, want)
	}
	if _, ok := Lists()[0].(*echov1.EchoList); !ok {
		t.Errorf("first list = %T, want *EchoList", Lists()[0])
	}
}

func TestWatchedIncludesEchoesPodsAndEveryChild(t *testing.T) {
	want := []string{"echoes", "pods"}
	for _, kind := range children.DifferentObjectKinds() {
		want = append(want, kind.Resource.Resource)
	}
	got := Watched()
	if len(got) != len(want) {
		t.Errorf("watched resources = %v, want %v", got, want)
	}
	for _, resource := range want {
		if !slices.Contains(got, resource) {
			t.Errorf("watched resources = %v, want %s among them", got, resource)
		}
	}
}

func TestWatchedAtStartLeavesOptionalAPIsOut(t *testing.T) {
	watched := WatchedAtStart()
	for _, resource := range []string{"echoes", "services", "pods"} {
		if !slices.Contains(watched, resource) {
			t.Errorf("resources watched at the start = %v, want %s among them", watched, resource)
		}
	}
	for _, kind := range children.Kinds {
		if got, want := slices.Contains(watched, kind.Resource.Resource), !kind.OptionalAPI; got != want {
			t.Errorf("%s is watched at the start: %t, want %t", kind.Name, got, want)
		}
	}
}

func TestIsWritten(t *testing.T) {
	for resource, want := range map[string]bool{
		"echoes": true, "echoes/status": true, "services": true, "deployments": true, "poddisruptionbudgets": true, "daemonsets": true, "httproutes": true,
		"pods": false, "leases": false, "events": false, "deployments/status": false,
	} {
		if got := IsWritten(resource); got != want {
			t.Errorf("IsWritten(%q) = %v, want %v", resource, got, want)
		}
	}
}

func TestRequiredLeavesOptionalKindsOut(t *testing.T) {
	for _, kind := range Required() {
		if kind.Optional {
			t.Errorf("%s is optional, want required kinds only", kind.Name)
		}
	}
	if len(Required()) == 0 {
		t.Error("no required kinds")
	}
}
