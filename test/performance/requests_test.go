package performance

import (
	"fmt"
	"net/url"
	"path"
	"slices"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/testing/controlplane"
)

// measureRequests counts the operator's requests for each operation. An operation ends when the
// condition holds for all Echoes.
func (e *environment) measureRequests(condition func(*echov1.Echo) bool, steadyState time.Duration) {
	const n = 50 // Every Echo causes the same requests.
	namespace := e.createNamespace()
	start := func() *controlplane.Operator {
		return e.startOperator([]string{namespace}, "--metrics-bind-address="+e.metricsAddress)
	}
	operator, before := start(), 0.0
	var echoes []*echov1.Echo
	for _, operation := range []struct {
		name      string
		tolerance float64 // Of the reconciliations.
		do        func()
	}{
		// The events of the operator's own writes cause reconciliations, too. So does the wait for a seat.
		{"create", 1, func() { echoes = e.createEchoes(namespace, n) }},
		{"edit of the message", 1, func() { e.must(e.editEchoes(echoes, editMessage)) }},
		{"scale", 1, func() {
			e.must(e.editEchoes(echoes, func(spec *echov1.EchoSpec) { spec.Replicas = replicas + 1 }))
		}},
		{"restart", 0.2, func() {
			e.must(operator.Terminate())
			operator, before = start(), 0
		}},
		{"steady state", 0.2, func() { time.Sleep(steadyState) }},
		{"delete", 0.2, func() { e.must(e.admin.DeleteAllOf(e.Context(), &echov1.Echo{}, client.InNamespace(namespace))) }},
	} {
		mark, err := e.audit.Mark()
		e.must(err)
		operation.do()
		e.await(namespace, operator, condition)
		time.Sleep(settleTime)
		writes, reads, requests := 0.0, 0.0, map[string]float64{}
		for _, event := range e.since(mark, operatorUser) {
			switch {
			case isWrite(event):
				writes++
			case event.Verb == "get":
				reads++
			}
			requests[event.Verb+" "+path.Join(event.ObjectRef.Resource, event.ObjectRef.Subresource)]++
		}
		e.Logf("requests for %d Echoes: %s: %v", n, operation.name, requests)
		after := e.reconciliations(operator)
		// The operator retries a write after a conflict: rarely, and only on a busy machine.
		e.compare("writes per Echo: "+operation.name, 0.05, 0, writes/n)
		e.compare("live reads per Echo: "+operation.name, 0.05, 0, reads/n)
		e.compare("reconciliations per Echo: "+operation.name, operation.tolerance, 0, (after-before)/n)
		before = after
	}
	e.must(operator.Terminate())
}

// since returns the requests of a user for objects that are no leases.
func (e *environment) since(mark int64, user string) (events []controlplane.AuditEvent) {
	all, err := e.audit.Since(mark, user)
	e.must(err)
	for _, event := range all {
		if event.ObjectRef != nil && event.ObjectRef.Resource != "leases" {
			events = append(events, event)
		}
	}
	return events
}

func isWrite(event controlplane.AuditEvent) bool {
	return slices.Contains([]string{"create", "update", "patch", "delete"}, event.Verb)
}

// countWatches returns the number of watches of the operator. One that the API server ended and the
// operator started again counts once.
func (e *environment) countWatches(mark int64) float64 {
	watches := map[string]bool{}
	for _, event := range e.since(mark, operatorUser) {
		if event.Verb == "watch" {
			uri, err := url.Parse(event.RequestURI)
			e.must(err)
			watches[fmt.Sprint(uri.Path, uri.Query()["labelSelector"], uri.Query()["fieldSelector"])] = true
		}
	}
	return float64(len(watches))
}
