package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"sigs.k8s.io/controller-runtime/pkg/cache"
)

func TestLeaseIsInTheOperatorsNamespace(t *testing.T) {
	for _, namespace := range []string{"operators", ""} { // When it is empty, the manager reads it from its service account.
		s, err := parseSettings([]string{"--leader-elect"}, env(image, verifierImage, "POD_NAMESPACE="+namespace))
		if err != nil {
			t.Fatal(err)
		}
		if got := managerOptions(s); !got.LeaderElection || got.LeaderElectionNamespace != namespace {
			t.Errorf("leader election = %t in namespace %q, want true in %q", got.LeaderElection, got.LeaderElectionNamespace, namespace)
		}
	}
}

// The setup also succeeds under OLM, so the operator waits for the API server and is not restarted.
func TestManagerIsSetUpWhileTheAPIServerIsUnavailable(t *testing.T) {
	s, err := parseSettings([]string{"--metrics-bind-address=0", "--health-probe-bind-address=0", "--leader-elect"},
		env(image, verifierImage, "POD_NAMESPACE=operators", "OPERATOR_CONDITION_NAME=c", "WATCH_NAMESPACE=a,b"))
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	go func() {
		_, _, err := newManager(t.Context(), &rest.Config{Host: "https://127.0.0.1:1"}, s)
		done <- err
	}()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Error("newManager has not returned after 10s: it waits for the API server")
	}
}

// unsynced is a cache that is not synced.
type unsynced struct{ cache.Cache }

func (unsynced) WaitForCacheSync(context.Context) bool { return false }

func TestReadinessFailsUntilTheCachesAreSynced(t *testing.T) {
	err := cachesSynced(unsynced{})(httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/readyz", nil))
	if err == nil || !strings.Contains(err.Error(), "caches are not synced") {
		t.Errorf("error = %v, want it to contain \"caches are not synced\"", err)
	}
}

// A standby takes over in time, and never while a leader without an API server still runs.
func TestLeaseTimesAllowOneLeaderAndAFastTakeover(t *testing.T) {
	options := managerOptions(settings{})
	lease, deadline, retry := *options.LeaseDuration, *options.RenewDeadline, *options.RetryPeriod
	check := time.Duration(float64(retry) * (1 + leaderelection.JitterFactor))
	if check > 4*time.Second {
		t.Errorf("a released lease is acquired after %s, want at most 4s", check)
	}
	// One check observes the last renewal late, another acquires the lease late.
	if late := lease + 2*check; late > 19*time.Second {
		t.Errorf("an unreleased lease is acquired after %s, want at most 19s", late)
	}
	if margin := lease - (retry + deadline); margin < 2*time.Second {
		t.Errorf("a leader stops %s before another can lead, want at least 2s", margin)
	}
}
