package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/testing/controlplane"
)

// restarts are how long things take around a restart, one value for each turn.
type restarts struct {
	// started is from the start of the process to its first pass.
	started []time.Duration
	// idle, first and busy are from the creation of an Echo until it has converged: when all is
	// quiet; when the operator is about to begin to look at everything again; when it does.
	idle, first, busy []time.Duration
	// peak is the most memory of the new process, in MiB.
	peak []float64
}

// restartTimes restarts the operator on n converged Echoes, and creates one more at that moment,
// and then another.
func (s *server) restartTimes(ctx context.Context, n, turns int) (r restarts, err error) {
	namespace, _, operator, err := s.startOn(ctx, n)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, operator.Terminate(), s.clear(ctx, namespace)) }()
	for turn := range turns {
		if err := pause(ctx, settling); err != nil {
			return r, err
		}
		idle, err := s.newcomer(ctx, namespace, fmt.Sprint("idle-", turn))
		if err != nil {
			return r, err
		}
		if err := operator.Terminate(); err != nil {
			return r, err
		}
		begin := time.Now()
		next, err := s.start(namespace)
		if err != nil {
			return r, err
		}
		operator = next
		if err := awaitWorkers(ctx, operator); err != nil {
			return r, err
		}
		started := time.Since(begin)
		first, err := s.newcomer(ctx, namespace, fmt.Sprint("first-", turn))
		if err != nil {
			return r, err
		}
		busy, err := s.newcomer(ctx, namespace, fmt.Sprint("busy-", turn))
		if err != nil {
			return r, err
		}
		most, err := peak(operator.PID())
		if err != nil {
			return r, err
		}
		r.started, r.peak = append(r.started, started), append(r.peak, most/mib)
		r.idle, r.first, r.busy = append(r.idle, idle), append(r.first, first), append(r.busy, busy)
	}
	return r, nil
}

// awaitWorkers waits until the operator begins to make passes.
func awaitWorkers(ctx context.Context, operator *controlplane.Operator) error {
	return wait.PollUntilContextTimeout(ctx, 5*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		log, err := os.ReadFile(operator.Log)
		return bytes.Contains(log, []byte("Starting workers")), errors.Join(err, operator.Failed())
	})
}

// newcomer creates an Echo, and returns how long it takes until it has converged.
func (s *server) newcomer(ctx context.Context, namespace, name string) (time.Duration, error) {
	ctx, stop := context.WithTimeout(ctx, timeout)
	defer stop()
	watch, err := s.plane.Client.Watch(ctx, &echov1.EchoList{}, client.InNamespace(namespace), client.MatchingFields{"metadata.name": name})
	if err != nil {
		return 0, err
	}
	defer watch.Stop()
	begin := time.Now()
	if err := s.plane.Client.Create(ctx, &echov1.Echo{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       echov1.EchoSpec{Message: "hello", Replicas: replicas},
	}); err != nil {
		return 0, err
	}
	for event := range watch.ResultChan() {
		if echo, is := event.Object.(*echov1.Echo); is && isObserved(echo) {
			return time.Since(begin), nil
		}
	}
	return 0, fmt.Errorf("the watch ended before Echo %s converged", name)
}
