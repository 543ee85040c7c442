package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/kkloud-io/echo-operator/internal/testing/controlplane"
	"github.com/kkloud-io/echo-operator/test/internal/process"
)

// starts has one value for each start of the operator.
type starts struct {
	// firstReconciliation is from the start of the process to the start of the workers.
	firstReconciliation []time.Duration
	// cpu is the CPU time of the process until it has reconciled every Echo.
	cpu []time.Duration
	// peak is the peak memory of the process, in MiB.
	peak []float64
}

// restart restarts the operator on n converged Echoes.
func (e *environment) restart(ctx context.Context, n, turns int) (s starts, err error) {
	namespace, _, operator, err := e.startOperatorOnNewEchoes(ctx, n)
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, operator.Terminate(), e.deleteEchoes(ctx, namespace)) }()
	scraper, err := e.newScraper(ctx, namespace)
	if err != nil {
		return s, err
	}
	for range turns {
		if err := errors.Join(sleep(ctx, settleTime), operator.Terminate()); err != nil {
			return s, err
		}
		begin := time.Now()
		next, err := e.startOperator(namespace, scraper.flag())
		if err != nil {
			return s, err
		}
		operator = next
		if err := awaitWorkers(ctx, operator); err != nil {
			return s, err
		}
		s.firstReconciliation = append(s.firstReconciliation, time.Since(begin))
		if err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, timeout, true, func(ctx context.Context) (bool, error) {
			count, err := scraper.reconciliations(ctx)
			return count >= float64(n), errors.Join(err, operator.Failed())
		}); err != nil {
			return s, err
		}
		cpu, err := process.CPUTime(operator.PID())
		if err != nil {
			return s, err
		}
		peak, err := process.PeakMemory(operator.PID())
		if err != nil {
			return s, err
		}
		s.cpu, s.peak = append(s.cpu, cpu), append(s.peak, peak/mib)
	}
	return s, nil
}

// awaitWorkers waits until the operator starts to reconcile.
func awaitWorkers(ctx context.Context, operator *controlplane.Operator) error {
	return wait.PollUntilContextTimeout(ctx, 5*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		log, err := os.ReadFile(operator.Log)
		return bytes.Contains(log, []byte("Starting workers")), errors.Join(err, operator.Failed())
	})
}
