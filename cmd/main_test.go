package main

import (
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
)

// TestLeaseNamespace: the lease is kept where the operator says that it runs, also outside a
// cluster.
func TestLeaseNamespace(t *testing.T) {
	for _, namespace := range []string{"operators", ""} { // Empty: the manager asks the cluster.
		s, err := parseSettings([]string{"--leader-elect"}, env(image, "POD_NAMESPACE="+namespace))
		if err != nil {
			t.Fatal(err)
		}
		if got := managerOptions(s); !got.LeaderElection || got.LeaderElectionNamespace != namespace {
			t.Errorf("election %t in %q, want %q", got.LeaderElection, got.LeaderElectionNamespace, namespace)
		}
	}
}

// TestNobodyThere: everything is set up while the API server is away, also under OLM; so the
// operator waits for it, and is not started again and again.
func TestNobodyThere(t *testing.T) {
	s, err := parseSettings([]string{"--metrics-bind-address=0", "--health-probe-bind-address=0", "--leader-elect"},
		env(image, "POD_NAMESPACE=operators", "OPERATOR_CONDITION_NAME=c", "WATCH_NAMESPACE=a,b"))
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	go func() {
		_, err := newManager(t.Context(), &rest.Config{Host: "https://127.0.0.1:1"}, s)
		done <- err
	}()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Error("it asks the API server, and waits for an answer")
	}
}

// TestSuccession: with these times a standby acts soon enough, and never beside a leader that
// the API server does not answer.
func TestSuccession(t *testing.T) {
	options := managerOptions(settings{})
	lease, deadline, retry := *options.LeaseDuration, *options.RenewDeadline, *options.RetryPeriod
	look := time.Duration(float64(retry) * (1 + leaderelection.JitterFactor))
	if look > 4*time.Second {
		t.Errorf("a lease that was given up is taken after %s", look)
	}
	if late := lease + 2*look; late > 19*time.Second { // It is seen late by one look, and taken late by another.
		t.Errorf("a lease that was not given up is taken after %s", late)
	}
	if margin := lease - (retry + deadline); margin < 2*time.Second {
		t.Errorf("a leader ends only %s before another may lead", margin)
	}
}
