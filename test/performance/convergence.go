package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/testing/controlplane"
)

// timings are how long the operator or the baseline client took to write for new Echoes and for
// edited Echoes, and the CPU time for new Echoes.
type timings struct{ create, edit, createCPU time.Duration }

// measureOperator measures the operator with n new Echoes, and with an edit of all of them if
// edit is set. The Echoes exist before the operator starts, and the time of the start does not
// count: it has a measurement of its own. With workers 0 the operator uses its default.
func (e *environment) measureOperator(ctx context.Context, n, workers int, edit bool) (t timings, err error) {
	namespace, echoes, err := e.createNamespaceWithEchoes(ctx, n)
	if err != nil {
		return t, err
	}
	var args []string
	if workers > 0 {
		args = append(args, fmt.Sprint("--max-concurrent-reconciles=", workers))
	}
	if t.create, t.createCPU, err = e.converge(ctx, namespace, args...); err != nil {
		return t, err
	}
	if !edit {
		return t, e.deleteEchoes(ctx, namespace)
	}
	if err := e.editEchoes(ctx, echoes, editMessage); err != nil {
		return t, err
	}
	if t.edit, _, err = e.converge(ctx, namespace, args...); err != nil {
		return t, err
	}
	return t, e.deleteEchoes(ctx, namespace)
}

func editMessage(spec *echov1.EchoSpec) { spec.Message = "edited" }

// converge runs the operator until every Echo of the namespace has converged. It returns the time
// from the first write to the end of the last, and the CPU time of all processes after the
// operator's start.
func (e *environment) converge(ctx context.Context, namespace string, args ...string) (wall, cpu time.Duration, err error) {
	mark, err := e.audit.Mark()
	if err != nil {
		return 0, 0, err
	}
	operator, err := e.startOperator(namespace, args...)
	if err != nil {
		return 0, 0, err
	}
	if err := awaitWorkers(ctx, operator); err != nil {
		return 0, 0, errors.Join(err, operator.Terminate())
	}
	before, err := cpuTime()
	if err != nil {
		return 0, 0, errors.Join(err, operator.Terminate())
	}
	err = e.awaitEchoes(ctx, namespace, operator, isConverged)
	after, errAfter := cpuTime()
	if err := errors.Join(err, errAfter, operator.Terminate()); err != nil {
		return 0, 0, err
	}
	wall, err = e.writeDuration(mark, operatorUser)
	return wall, after - before, err
}

// measureBaseline has the baseline client write what the operator writes in measureOperator.
func (e *environment) measureBaseline(ctx context.Context, n, concurrency int, edit bool) (t timings, err error) {
	namespace, echoes, err := e.createNamespaceWithEchoes(ctx, n)
	if err != nil {
		return t, err
	}
	mark, err := e.audit.Mark()
	if err != nil {
		return t, err
	}
	before, err := cpuTime()
	if err != nil {
		return t, err
	}
	written, err := e.createChildren(ctx, echoes, concurrency)
	if err != nil {
		return t, err
	}
	after, err := cpuTime()
	if err != nil {
		return t, err
	}
	t.createCPU = after - before
	if t.create, err = e.writeDuration(mark, baselineUser); err != nil {
		return t, err
	}
	if !edit {
		return t, e.deleteEchoes(ctx, namespace)
	}
	if err := e.editEchoes(ctx, echoes, editMessage); err != nil {
		return t, err
	}
	if mark, err = e.audit.Mark(); err != nil {
		return t, err
	}
	if err := e.updateChildren(ctx, written, echoes, concurrency); err != nil {
		return t, err
	}
	if t.edit, err = e.writeDuration(mark, baselineUser); err != nil {
		return t, err
	}
	return t, e.deleteEchoes(ctx, namespace)
}

// writeDuration is the time from a user's first write to the end of its last, by the clock of the
// API server. Events do not count.
func (e *environment) writeDuration(mark int64, user string) (time.Duration, error) {
	events, err := e.audit.Since(mark, user)
	if err != nil {
		return 0, err
	}
	var first, last time.Time
	for _, event := range events {
		if !isWrite(event) || event.ObjectRef.Resource == "events" {
			continue
		}
		if first.IsZero() || event.RequestReceivedTimestamp.Before(first) {
			first = event.RequestReceivedTimestamp
		}
		if event.StageTimestamp.After(last) {
			last = event.StageTimestamp
		}
	}
	if first.IsZero() {
		return 0, fmt.Errorf("the audit log has no writes of user %s", user)
	}
	return last.Sub(first), nil
}

func isWrite(event controlplane.AuditEvent) bool {
	switch event.Verb {
	case "create", "update", "patch", "delete":
		return event.ObjectRef != nil && event.ObjectRef.Resource != "leases"
	}
	return false
}

// bestConcurrency returns the number of concurrent requests with which the baseline client takes
// the least time for n Echoes.
func (e *environment) bestConcurrency(ctx context.Context, n int) (best int, err error) {
	progress("Searching for the best concurrency of the baseline client ...")
	var least time.Duration
	for _, concurrency := range []int{4, 8, 16, 32, 64} {
		t, err := e.measureBaseline(ctx, n, concurrency, false)
		if err != nil {
			return 0, err
		}
		progress("  %d Echoes with concurrency %d: %s", n, concurrency, t.create.Round(time.Millisecond))
		if least == 0 || t.create < least {
			best, least = concurrency, t.create
		}
	}
	return best, nil
}
