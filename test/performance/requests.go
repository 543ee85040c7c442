package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/children"
	"github.com/kkloud-io/echo-operator/internal/testing/controlplane"
)

// The operations to count requests for.
const (
	operationCreate  = "create"
	operationEdit    = "edit of the message"
	operationScale   = "scale"
	operationRestart = "restart"
	operationNone    = "steady state"
	operationDelete  = "delete"
)

// settleTime is how long after the last change the operator may still reconcile.
const settleTime = 1500 * time.Millisecond

// countRequests counts the operator's requests for each operation on n Echoes. An operation ends
// when the condition holds for all Echoes. The steady state lasts steadyState.
func (e *environment) countRequests(ctx context.Context, n int, steadyState time.Duration, condition func(*echov1.Echo) bool) (counts []requestCount, err error) {
	namespace, err := e.createNamespace(ctx)
	if err != nil {
		return nil, err
	}
	port, err := controlplane.FreePort()
	if err != nil {
		return nil, err
	}
	scraper, err := e.newScraper(ctx, namespace, port)
	if err != nil {
		return nil, err
	}
	metricsAddress := "--metrics-bind-address=127.0.0.1:" + port
	operator, err := e.startOperator(namespace, metricsAddress)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, operator.Terminate()) }()
	reconciliations := 0.0
	var echoes []*echov1.Echo
	for _, operation := range []struct {
		name string
		do   func() error
	}{
		{operationCreate, func() (err error) {
			echoes, err = e.createEchoes(ctx, namespace, n)
			return err
		}},
		{operationEdit, func() error { return e.editEchoes(ctx, echoes, editMessage) }},
		{operationScale, func() error {
			return e.editEchoes(ctx, echoes, func(spec *echov1.EchoSpec) { spec.Replicas = replicas + 1 })
		}},
		{operationRestart, func() error {
			if err := operator.Terminate(); err != nil {
				return err
			}
			reconciliations = 0
			next, err := e.startOperator(namespace, metricsAddress)
			if err != nil {
				return err
			}
			operator = next
			return nil
		}},
		{operationNone, func() error { return sleep(ctx, steadyState) }},
		{operationDelete, func() error {
			if err := e.controlPlane.Client.DeleteAllOf(ctx, &echov1.Echo{}, client.InNamespace(namespace)); err != nil || e.bare {
				return err
			}
			return e.awaitNoChildren(ctx, namespace)
		}},
	} {
		mark, err := e.audit.Mark()
		if err != nil {
			return nil, err
		}
		if err := operation.do(); err != nil {
			return nil, err
		}
		if err := e.awaitEchoes(ctx, namespace, operator, condition); err != nil {
			return nil, err
		}
		if err := sleep(ctx, settleTime); err != nil {
			return nil, err
		}
		events, err := e.audit.Since(mark, operatorUser)
		if err != nil {
			return nil, err
		}
		total, err := scraper.reconciliations(ctx)
		if err != nil {
			return nil, err
		}
		count := newRequestCount(operation.name, events, n)
		count.Reconciliations = (total - reconciliations) / float64(n)
		counts, reconciliations = append(counts, count), total
	}
	return counts, nil
}

// isReady reports whether every pod serves the newest spec.
func isReady(echo *echov1.Echo) bool {
	return isConverged(echo) && meta.IsStatusConditionTrue(echo.Status.Conditions, echov1.ConditionReady)
}

// requestCount is the number of requests of the operator per Echo.
type requestCount struct {
	Operation string  `json:"operation"`
	Writes    float64 `json:"writes"`
	// Reads are GETs of single objects.
	Reads float64 `json:"reads"`
	// Requests are all requests by verb and resource.
	Requests map[string]float64 `json:"requests"`
	// Reconciliations is the number of reconciliations.
	Reconciliations float64 `json:"reconciliations"`
	// Watches is the number of started watches, in total and not per Echo.
	Watches float64 `json:"watches"`
}

func newRequestCount(operation string, events []controlplane.AuditEvent, n int) requestCount {
	c := requestCount{Operation: operation, Requests: map[string]float64{}}
	requests, writes, reads := map[string]int{}, 0, 0
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
		request := event.Verb + " " + ref.Resource
		if ref.Subresource != "" {
			request += "/" + ref.Subresource
		}
		requests[request]++
		if isWrite(event) {
			writes++
		} else if event.Verb == "get" {
			reads++
		}
	}
	// Divide only once: a sum of fractions is inexact.
	for request, times := range requests {
		c.Requests[request] = float64(times) / float64(n)
	}
	c.Writes, c.Reads = float64(writes)/float64(n), float64(reads)/float64(n)
	return c
}

// String lists the requests, the most frequent first.
func (c requestCount) String() (text string) {
	names := slices.SortedFunc(maps.Keys(c.Requests), func(a, b string) int {
		if c.Requests[a] != c.Requests[b] {
			return int(1000 * (c.Requests[b] - c.Requests[a]))
		}
		return len(a) - len(b)
	})
	for _, name := range names {
		if text != "" {
			text += ", "
		}
		text += fmt.Sprintf("%s %.2f", name, c.Requests[name])
	}
	return text
}

// awaitNoChildren waits until the garbage collector has deleted every child.
func (e *environment) awaitNoChildren(ctx context.Context, namespace string) error {
	return wait.PollUntilContextTimeout(ctx, time.Second, timeout, true, func(ctx context.Context) (bool, error) {
		for _, kind := range children.Kinds {
			if kind.OptionalAPI {
				continue
			}
			list := kind.NewList().(client.ObjectList)
			if err := e.controlPlane.Client.List(ctx, list, client.InNamespace(namespace)); err != nil || meta.LenList(list) > 0 {
				return false, err
			}
		}
		return true, nil
	})
}
