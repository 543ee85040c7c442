package main

import (
	"context"
	"errors"
	"net/url"
	"path"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
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
	scraper, err := e.newScraper(ctx, namespace)
	if err != nil {
		return nil, err
	}
	operator, err := e.startOperator(namespace, scraper.flag())
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
			next, err := e.startOperator(namespace, scraper.flag())
			if err != nil {
				return err
			}
			operator = next
			return awaitWorkers(ctx, operator)
		}},
		{operationNone, func() error { return sleep(ctx, steadyState) }},
		{operationDelete, func() error {
			return e.controlPlane.Client.DeleteAllOf(ctx, &echov1.Echo{}, client.InNamespace(namespace))
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
		count.reconciliations = (total - reconciliations) / float64(n)
		counts, reconciliations = append(counts, count), total
		progress("  %s: %v", count.operation, count.requests)
	}
	return counts, nil
}

// isReady reports whether every pod serves the newest spec.
func isReady(echo *echov1.Echo) bool {
	return isConverged(echo) && meta.IsStatusConditionTrue(echo.Status.Conditions, echov1.ConditionReady)
}

// requestCount is the number of requests of the operator per Echo.
type requestCount struct {
	operation string
	writes    float64
	// reads are GETs of single objects.
	reads float64
	// requests are all requests by verb and resource.
	requests        map[string]float64
	reconciliations float64
	// watches is the number of watches, in total and not per Echo. One that the API server ended and the
	// operator started again counts once.
	watches float64
}

func newRequestCount(operation string, events []controlplane.AuditEvent, n int) requestCount {
	c, watches := requestCount{operation: operation, requests: map[string]float64{}}, map[string]bool{}
	for _, event := range events {
		ref := event.ObjectRef
		if ref == nil || ref.Resource == "leases" {
			continue
		}
		if event.Verb == "watch" {
			if uri, err := url.Parse(event.RequestURI); err == nil {
				watches[uri.Path+" "+uri.Query().Get("labelSelector")+" "+uri.Query().Get("fieldSelector")] = true
			}
			continue
		}
		c.requests[event.Verb+" "+path.Join(ref.Resource, ref.Subresource)]++
		if isWrite(event) {
			c.writes++
		} else if event.Verb == "get" {
			c.reads++
		}
	}
	// Divide only once: a sum of fractions is inexact.
	for request := range c.requests {
		c.requests[request] /= float64(n)
	}
	c.writes /= float64(n)
	c.reads /= float64(n)
	c.watches = float64(len(watches))
	return c
}
