package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/testing/controlplane"
	"github.com/kkloud-io/echo-operator/test/internal/process"
)

// timings are how long the operator or the baseline client took to write for new Echoes and for
// edited Echoes.
type timings struct{ create, edit measurement }

// measurement is the time from the first write to the end of the last, and the CPU time of the
// writer. Unlike wall time, CPU time leaves out what other programs on the machine use.
type measurement struct{ wall, cpu time.Duration }

func create(t timings) measurement { return t.create }
func edited(t timings) measurement { return t.edit }

func wall(m measurement) time.Duration { return m.wall }
func cpu(m measurement) time.Duration  { return m.cpu }

func pick(all []timings, operation func(timings) measurement, which func(measurement) time.Duration) (durations []time.Duration) {
	for _, t := range all {
		durations = append(durations, which(operation(t)))
	}
	return durations
}

// takeTurns measures operator and baseline client by turns. The first of each turn alternates.
func (e *environment) takeTurns(ctx context.Context, turns, n, concurrency int) (operator, baseline []timings, err error) {
	for turn := range turns {
		var op, base timings
		measurements := []func() error{
			func() (err error) { base, err = e.measureBaseline(ctx, n, concurrency); return err },
			func() (err error) { op, err = e.measureOperator(ctx, n); return err },
		}
		if turn%2 == 1 {
			slices.Reverse(measurements)
		}
		for _, measure := range measurements {
			if err := measure(); err != nil {
				return nil, nil, fmt.Errorf("%d Echoes, turn %d: %w", n, turn+1, err)
			}
		}
		progress("  %d Echoes, turn %d of %d: ratio to the baseline client %.2f", n, turn+1, turns, op.create.wall.Seconds()/base.create.wall.Seconds())
		operator, baseline = append(operator, op), append(baseline, base)
	}
	return operator, baseline, nil
}

// measureOperator measures the operator with n new Echoes, and with an edit of all of them. The
// Echoes exist before the operator starts, and the time of the start does not count: it has a
// measurement of its own.
func (e *environment) measureOperator(ctx context.Context, n int) (t timings, err error) {
	namespace, echoes, err := e.createNamespaceWithEchoes(ctx, n)
	if err != nil {
		return t, err
	}
	if t.create, err = e.converge(ctx, namespace); err != nil {
		return t, err
	}
	if err := e.editEchoes(ctx, echoes, editMessage); err != nil {
		return t, err
	}
	if t.edit, err = e.converge(ctx, namespace); err != nil {
		return t, err
	}
	return t, e.deleteEchoes(ctx, namespace)
}

func editMessage(spec *echov1.EchoSpec) { spec.Message = "edited" }

// converge measures the operator until every Echo of the namespace has converged. Its start does not
// count.
func (e *environment) converge(ctx context.Context, namespace string) (m measurement, err error) {
	operator, err := e.startOperator(namespace)
	if err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, operator.Terminate()) }()
	if err := awaitWorkers(ctx, operator); err != nil {
		return m, err
	}
	return e.measureWriter(operator.PID(), operatorUser, func() error { return e.awaitEchoes(ctx, namespace, operator, isConverged) })
}

// measureBaseline has the baseline client, which is a part of this process, write what the operator
// writes in measureOperator.
func (e *environment) measureBaseline(ctx context.Context, n, concurrency int) (t timings, err error) {
	namespace, echoes, err := e.createNamespaceWithEchoes(ctx, n)
	if err != nil {
		return t, err
	}
	var written []writtenObjects
	t.create, err = e.measureWriter(os.Getpid(), baselineUser, func() (err error) {
		written, err = e.createChildren(ctx, echoes, concurrency)
		return err
	})
	if err != nil {
		return t, err
	}
	if err := e.editEchoes(ctx, echoes, editMessage); err != nil {
		return t, err
	}
	t.edit, err = e.measureWriter(os.Getpid(), baselineUser, func() error { return e.updateChildren(ctx, written, echoes, concurrency) })
	return t, errors.Join(err, e.deleteEchoes(ctx, namespace))
}

// bestConcurrency returns the number of concurrent requests with which the baseline client takes
// the least time for n Echoes.
func (e *environment) bestConcurrency(ctx context.Context, n int) (best int, err error) {
	progress("Searching for the best concurrency of the baseline client ...")
	var least time.Duration
	for _, concurrency := range []int{4, 8, 16, 32, 64} {
		t, err := e.measureBaseline(ctx, n, concurrency)
		if err != nil {
			return 0, err
		}
		progress("  %d Echoes with concurrency %d: %s", n, concurrency, t.create.wall.Round(time.Millisecond))
		if least == 0 || t.create.wall < least {
			best, least = concurrency, t.create.wall
		}
	}
	return best, nil
}

// measureWriter measures a process that writes as a user.
func (e *environment) measureWriter(pid int, user string, write func() error) (m measurement, err error) {
	mark, err := e.audit.Mark()
	if err != nil {
		return m, err
	}
	before, err := process.CPUTime(pid)
	if err != nil {
		return m, err
	}
	if err := write(); err != nil {
		return m, err
	}
	after, err := process.CPUTime(pid)
	if err != nil {
		return m, err
	}
	m.cpu = after - before
	m.wall, err = e.writeDuration(mark, user)
	return m, err
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
