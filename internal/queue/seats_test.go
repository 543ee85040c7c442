package queue

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// recorder is a queue that records what is added.
type recorder struct {
	workqueue.TypedRateLimitingInterface[reconcile.Request]
	added []reconcile.Request
}

func (r *recorder) Add(request reconcile.Request) { r.added = append(r.added, request) }

func requests(namespace string, count int) (all []reconcile.Request) {
	for i := range count {
		all = append(all, reconcile.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: fmt.Sprint(i)}})
	}
	return all
}

func TestANamespaceOccupiesOnlyItsSeats(t *testing.T) {
	queue := &recorder{}
	seats := Seats{PerNamespace: 2}
	if err := seats.Start(context.Background(), queue); err != nil {
		t.Fatal(err)
	}
	busy, other := requests("busy", 6), requests("other", 1)[0]
	for i, request := range slices.Concat(busy, busy[2:]) { // Events requeue a request that waits.
		if got, want := seats.occupy(request, i == 4 || i == 9), i < 2; got != want {
			t.Fatalf("request %d has a seat: %t, want %t", i, got, want)
		}
	}
	if seats.LongestWait() <= 0 {
		t.Error("no request waits")
	}
	if !seats.occupy(other, false) {
		t.Error("a request of another namespace has no seat")
	}
	seats.release(other)
	late := reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "busy", Name: "late"}}
	for i := range 4 {
		seats.release(busy[0])
		if i == 0 && seats.occupy(late, true) {
			t.Fatal("a request occupied the seat that another one has waited for")
		}
		if next := queue.added[len(queue.added)-1]; !seats.occupy(next, false) {
			t.Fatalf("request %v has no seat, but one was given back", next)
		}
	}
	if want := []reconcile.Request{busy[4], busy[5], late, busy[2]}; !slices.Equal(queue.added, want) {
		t.Errorf("requeued %v, want each waiting request once, the urgent ones first: %v", queue.added, want)
	}
	seats.release(busy[0])
	seats.occupy(busy[3], false)
	for range 2 {
		seats.release(busy[0])
	}
	if wait := seats.LongestWait(); wait != 0 {
		t.Errorf("a request has waited for %s", wait)
	}
	if len(seats.namespaces) != 0 {
		t.Errorf("%d namespaces are remembered, want none", len(seats.namespaces))
	}
}

func TestFailuresOfARequestThatWaitsAreNotForgotten(t *testing.T) {
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](1, 100)
	seats := Seats{PerNamespace: 1, TypedRateLimiter: limiter}
	if err := seats.Start(context.Background(), &recorder{}); err != nil {
		t.Fatal(err)
	}
	all := requests("busy", 2)
	seats.When(all[1])
	seats.occupy(all[0], false)
	for _, state := range []string{"waits", "has a reserved seat"} {
		if state == "waits" {
			seats.occupy(all[1], false)
		} else {
			seats.release(all[0])
		}
		if seats.Forget(all[1]); seats.NumRequeues(all[1]) != 1 {
			t.Errorf("the failures of a request that %s are forgotten", state)
		}
	}
	seats.occupy(all[1], false)
	if seats.Forget(all[1]); seats.NumRequeues(all[1]) != 0 {
		t.Error("the failures of a request with a seat are not forgotten")
	}
}
