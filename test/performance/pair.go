package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/testing/controlplane"
)

// times are how long one side took to write for new Echoes, and for edited ones, if they were.
type times struct{ create, edit, createCPU time.Duration }

// operatorTimes has the operator write for n Echoes, and for edits of all of them. It is
// started when they are there: what it takes to start is a line of its own.
func (s *server) operatorTimes(ctx context.Context, n, workers int, edited bool) (t times, err error) {
	namespace, echoes, err := s.newEchoes(ctx, n)
	if err != nil {
		return t, err
	}
	var args []string
	if workers > 0 {
		args = append(args, fmt.Sprint("--max-concurrent-reconciles=", workers))
	}
	if t.create, t.createCPU, err = s.converge(ctx, namespace, args...); err != nil {
		return t, err
	}
	if !edited {
		return t, s.clear(ctx, namespace)
	}
	if err := s.edit(ctx, echoes, editMessage); err != nil {
		return t, err
	}
	if t.edit, _, err = s.converge(ctx, namespace, args...); err != nil {
		return t, err
	}
	return t, s.clear(ctx, namespace)
}

func editMessage(spec *echov1.EchoSpec) { spec.Message = "edited" }

// converge runs the operator until every Echo of the namespace is observed, and returns the
// time from its first write to its last, and the processor time of all after its start.
func (s *server) converge(ctx context.Context, namespace string, args ...string) (wall, cpu time.Duration, err error) {
	mark, err := s.audit.Mark()
	if err != nil {
		return 0, 0, err
	}
	operator, err := s.start(namespace, args...)
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
	err = s.awaitAll(ctx, namespace, operator, isObserved)
	after, errAfter := cpuTime()
	if err := errors.Join(err, errAfter, operator.Terminate()); err != nil {
		return 0, 0, err
	}
	wall, err = s.wall(mark, operatorUser)
	return wall, after - before, err
}

// ceilingTimes has the plain client write the same.
func (s *server) ceilingTimes(ctx context.Context, n, workers int, edited bool) (t times, err error) {
	namespace, echoes, err := s.newEchoes(ctx, n)
	if err != nil {
		return t, err
	}
	mark, err := s.audit.Mark()
	if err != nil {
		return t, err
	}
	before, err := cpuTime()
	if err != nil {
		return t, err
	}
	all, err := s.createAll(ctx, echoes, workers)
	if err != nil {
		return t, err
	}
	after, err := cpuTime()
	if err != nil {
		return t, err
	}
	t.createCPU = after - before
	if t.create, err = s.wall(mark, ceilingUser); err != nil {
		return t, err
	}
	if !edited {
		return t, s.clear(ctx, namespace)
	}
	if err := s.edit(ctx, echoes, editMessage); err != nil {
		return t, err
	}
	if mark, err = s.audit.Mark(); err != nil {
		return t, err
	}
	if err := s.editAll(ctx, all, echoes, workers); err != nil {
		return t, err
	}
	if t.edit, err = s.wall(mark, ceilingUser); err != nil {
		return t, err
	}
	return t, s.clear(ctx, namespace)
}

// wall is the time from a user's first write to the end of its last, by the API server's clock.
func (s *server) wall(mark int64, user string) (time.Duration, error) {
	events, err := s.audit.Since(mark, user)
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
		return 0, fmt.Errorf("%s wrote nothing", user)
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

// bestConcurrency tries how many writers at a time the plain client is quickest with.
func (s *server) bestConcurrency(ctx context.Context, n int) (best int, err error) {
	progress("How many writers at a time is the plain client quickest with?")
	var least time.Duration
	for _, workers := range []int{4, 8, 16, 32, 64} {
		t, err := s.ceilingTimes(ctx, n, workers, false)
		if err != nil {
			return 0, err
		}
		progress("  %2d writers: %s for %d Echoes", workers, t.create.Round(time.Millisecond), n)
		if least == 0 || t.create < least {
			best, least = workers, t.create
		}
	}
	return best, nil
}
