package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/testing/controlplane"
	"github.com/kkloud-io/echo-operator/test/internal/process"
)

// restartTimes has one value per restart.
type restartTimes struct {
	// started is from the start of the process to the start of the workers.
	started []time.Duration
	// steady, workersStart and during are the new Echo latency: in steady state before the
	// restart, right after the workers have started, and while they reconcile all Echoes.
	steady, workersStart, during []time.Duration
	// peak is the peak memory of the new process, in MiB.
	peak []float64
	// cpu is the CPU time of the new process until it has reconciled every Echo.
	cpu []time.Duration
}

// restart restarts the operator on n converged Echoes, and creates an Echo before each restart
// and two after it.
func (e *environment) restart(ctx context.Context, n, turns int) (r restartTimes, err error) {
	namespace, _, operator, err := e.startOperatorOnNewEchoes(ctx, n)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, operator.Terminate(), e.deleteEchoes(ctx, namespace)) }()
	port, err := controlplane.FreePort()
	if err != nil {
		return r, err
	}
	scraper, err := e.newScraper(ctx, namespace, port)
	if err != nil {
		return r, err
	}
	for turn := range turns {
		if err := sleep(ctx, settleTime); err != nil {
			return r, err
		}
		steady, err := e.newEchoLatency(ctx, namespace, fmt.Sprint("steady-", turn))
		if err != nil {
			return r, err
		}
		if err := operator.Terminate(); err != nil {
			return r, err
		}
		begin := time.Now()
		next, err := e.startOperator(namespace, "--metrics-bind-address=127.0.0.1:"+port)
		if err != nil {
			return r, err
		}
		operator = next
		if err := awaitWorkers(ctx, operator); err != nil {
			return r, err
		}
		started := time.Since(begin)
		workersStart, err := e.newEchoLatency(ctx, namespace, fmt.Sprint("workers-start-", turn))
		if err != nil {
			return r, err
		}
		during, err := e.newEchoLatency(ctx, namespace, fmt.Sprint("during-", turn))
		if err != nil {
			return r, err
		}
		cpu, err := cpuUntilReconciled(ctx, operator, scraper, n)
		if err != nil {
			return r, err
		}
		r.cpu = append(r.cpu, cpu)
		peak, err := process.PeakMemory(operator.PID())
		if err != nil {
			return r, err
		}
		r.started, r.peak = append(r.started, started), append(r.peak, peak/mib)
		r.steady, r.workersStart, r.during = append(r.steady, steady), append(r.workersStart, workersStart), append(r.during, during)
	}
	return r, nil
}

// cpuUntilReconciled waits until the operator has reconciled n Echoes, and returns the CPU time that it
// has used since its start.
func cpuUntilReconciled(ctx context.Context, operator *controlplane.Operator, scraper *scraper, n int) (time.Duration, error) {
	if err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, timeout, true, func(ctx context.Context) (bool, error) {
		count, err := scraper.reconciliations(ctx)
		return count >= float64(n), errors.Join(err, operator.Failed())
	}); err != nil {
		return 0, err
	}
	used, err := readCPUTimes(operator.PID())
	return used.writer, err
}

// awaitWorkers waits until the operator starts to reconcile.
func awaitWorkers(ctx context.Context, operator *controlplane.Operator) error {
	return wait.PollUntilContextTimeout(ctx, 5*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		log, err := os.ReadFile(operator.Log)
		return bytes.Contains(log, []byte("Starting workers")), errors.Join(err, operator.Failed())
	})
}

// newEchoLatency creates an Echo, and returns the time until the Echo has converged.
func (e *environment) newEchoLatency(ctx context.Context, namespace, name string) (time.Duration, error) {
	ctx, stop := context.WithTimeout(ctx, timeout)
	defer stop()
	watch, err := e.controlPlane.Client.Watch(ctx, &echov1.EchoList{}, client.InNamespace(namespace), client.MatchingFields{"metadata.name": name})
	if err != nil {
		return 0, err
	}
	defer watch.Stop()
	begin := time.Now()
	if err := e.controlPlane.Client.Create(ctx, newEcho(namespace, name)); err != nil {
		return 0, err
	}
	for event := range watch.ResultChan() {
		if echo, ok := event.Object.(*echov1.Echo); ok && isConverged(echo) {
			return time.Since(begin), nil
		}
	}
	return 0, fmt.Errorf("the watch of Echo %s/%s ended before the Echo converged", namespace, name)
}
