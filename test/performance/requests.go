package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/testing/controlplane"
)

// requests counts what the operator asks for, for each operation on n Echoes; an operation has
// ended when all of them are as they have to be.
func (s *server) requests(ctx context.Context, n int, quiet time.Duration, is func(*echov1.Echo) bool) (counts []count, err error) {
	namespace, err := s.newNamespace(ctx)
	if err != nil {
		return nil, err
	}
	operator, err := s.start(namespace)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, operator.Terminate()) }()
	var echoes []*echov1.Echo
	for _, operation := range []struct {
		name string
		do   func() error
	}{
		{created, func() (err error) {
			echoes, err = s.populate(ctx, namespace, n)
			return err
		}},
		{edited, func() error { return s.edit(ctx, echoes, editMessage) }},
		{scaled, func() error {
			return s.edit(ctx, echoes, func(spec *echov1.EchoSpec) { spec.Replicas = replicas + 1 })
		}},
		{restarted, func() error {
			if err := operator.Terminate(); err != nil {
				return err
			}
			next, err := s.start(namespace)
			if err != nil {
				return err
			}
			operator = next
			return nil
		}},
		{quietly, func() error { return pause(ctx, quiet) }},
		{wentAway, func() error {
			if err := s.plane.Client.DeleteAllOf(ctx, &echov1.Echo{}, client.InNamespace(namespace)); err != nil || s.bare {
				return err
			}
			return s.awaitGone(ctx, namespace)
		}},
	} {
		mark, err := s.audit.Mark()
		if err != nil {
			return nil, err
		}
		if err := operation.do(); err != nil {
			return nil, err
		}
		if err := s.awaitAll(ctx, namespace, operator, is); err != nil {
			return nil, err
		}
		if err := pause(ctx, settling); err != nil {
			return nil, err
		}
		events, err := s.audit.Since(mark, operatorUser)
		if err != nil {
			return nil, err
		}
		counts = append(counts, countOf(operation.name, events, n))
	}
	return counts, nil
}

// The operations that are counted.
const (
	created   = "create"
	edited    = "edit of the message"
	scaled    = "scale"
	restarted = "restart"
	quietly   = "quiet"
	wentAway  = "delete"
)

// settling is how long after the last change a late pass may come.
const settling = 1500 * time.Millisecond

// isReady tells whether every pod serves the newest spec.
func isReady(echo *echov1.Echo) bool {
	return isObserved(echo) && meta.IsStatusConditionTrue(echo.Status.Conditions, echov1.ConditionReady)
}

// count is what the operator asked for, for each Echo.
type count struct {
	Operation string  `json:"operation"`
	Writes    float64 `json:"writes"`
	// Reads are those of single objects.
	Reads float64 `json:"reads"`
	// Each has the requests by verb and resource.
	Each map[string]float64 `json:"each"`
	// Watches is the number of watches that were begun, for all Echoes together.
	Watches float64 `json:"watches"`
}

func countOf(operation string, events []controlplane.AuditEvent, n int) count {
	c := count{Operation: operation, Each: map[string]float64{}}
	each, writes, reads := map[string]int{}, 0, 0
	for _, event := range events {
		ref := event.ObjectRef
		if ref == nil || ref.Resource == "leases" {
			continue
		}
		if event.Verb == "watch" {
			if event.Stage == "ResponseStarted" {
				c.Watches++
			}
			continue
		}
		what := event.Verb + " " + ref.Resource
		if ref.Subresource != "" {
			what += "/" + ref.Subresource
		}
		each[what]++
		if isWrite(event) {
			writes++
		} else if event.Verb == "get" {
			reads++
		}
	}
	// Divided at the end: a sum of fractions would not be exact.
	for what, times := range each {
		c.Each[what] = float64(times) / float64(n)
	}
	c.Writes, c.Reads = float64(writes)/float64(n), float64(reads)/float64(n)
	return c
}

// String lists the requests, the most frequent first.
func (c count) String() (text string) {
	names := slices.SortedFunc(maps.Keys(c.Each), func(a, b string) int {
		if c.Each[a] != c.Each[b] {
			return int(1000 * (c.Each[b] - c.Each[a]))
		}
		return len(a) - len(b)
	})
	for _, name := range names {
		if text != "" {
			text += ", "
		}
		text += fmt.Sprintf("%s %.2f", name, c.Each[name])
	}
	return text
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// awaitGone waits until the garbage collector has removed every child.
func (s *server) awaitGone(ctx context.Context, namespace string) error {
	return wait.PollUntilContextTimeout(ctx, time.Second, timeout, true, func(ctx context.Context) (bool, error) {
		var deployments appsv1.DeploymentList
		err := s.plane.Client.List(ctx, &deployments, client.InNamespace(namespace))
		return len(deployments.Items) == 0, err
	})
}
