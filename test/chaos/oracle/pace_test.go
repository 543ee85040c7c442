package oracle

import (
	"net/http"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kkloud-io/echo-operator/test/chaos/proxy"
)

func TestPaceBoundDoublesTheIntervalUpToThirtySeconds(t *testing.T) {
	for d, want := range map[time.Duration]int{
		0: 3, time.Second: 4, 3 * time.Second: 5, 31 * time.Second: 8, 60 * time.Second: 8, 61 * time.Second: 9, 91 * time.Second: 10,
	} {
		if got := PaceBound(d); got != want {
			t.Errorf("PaceBound(%s) = %d, want %d", d, got, want)
		}
	}
}

func TestCheckPaceFindsWritesThatAreTooFast(t *testing.T) {
	expectResult(t, "one write a second for ten seconds", CheckPace("writes", 10, 10*time.Second), false)
	expectResult(t, "writes at 0, 1, 3 and 7 s", CheckPace("writes", 4, 10*time.Second), true)
}

func TestWritesOfSelectsResourceNamespaceAndName(t *testing.T) {
	write := func(verb, resource, namespace, name string) proxy.Write {
		return proxy.Write{Request: proxy.Request{Verb: verb, Resource: resource, Namespace: namespace, Name: name}}
	}
	writes := []proxy.Write{
		write("create", "services", "a", ""),
		write("update", "services", "a", "one"),
		write("update", "services", "a", "two"),
		write("update", "services", "b", "one"),
		write("update", "deployments", "a", "one"),
	}
	if got := WritesOf(writes, "services", client.ObjectKey{Namespace: "a", Name: "one"}); len(got) != 2 {
		t.Errorf("WritesOf(services a/one) = %v, want the creation and the update", got)
	}
}

func TestEffectiveIgnoresStaleWrites(t *testing.T) {
	if got := Effective([]proxy.Write{{Code: http.StatusOK}, {Code: http.StatusConflict}, {Code: http.StatusForbidden}}); len(got) != 2 {
		t.Errorf("Effective(200, 409, 403) = %v, want two writes", got)
	}
}

func TestCheckGrowthFindsWhatExceedsThePercentage(t *testing.T) {
	expectResult(t, "growth by 11 of at most 5 per cent of 200", CheckGrowth("heap", 100, 111, 200, 5), false)
	expectResult(t, "growth by 9 of at most 5 per cent of 200", CheckGrowth("heap", 100, 109, 200, 5), true)
}
