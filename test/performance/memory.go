package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kkloud-io/echo-operator/internal/children"
	"github.com/kkloud-io/echo-operator/internal/testing/controlplane"
	"github.com/kkloud-io/echo-operator/test/internal/process"
)

// memory is in bytes unless the field says otherwise.
type memory struct {
	// Peak is the peak resident memory of the operator.
	Peak float64
	// Heap is the live heap of the operator after a garbage collection in steady state.
	Heap float64
	// Mallocs is the number of allocations of a reconciliation that changes nothing, including
	// the event that triggers it.
	Mallocs float64
	// Watches is the number of watches that the operator started.
	Watches float64
	// APIServer is the live heap of the API server after a garbage collection.
	APIServer float64
}

const (
	kib = 1 << 10
	mib = 1 << 20
)

// heapSamples is how often the live heap is measured again. The least counts, because on a busy
// machine buffers are live for some time after the last request.
const heapSamples = 3

// memoryWith measures the operator after n new Echoes have converged.
func (e *environment) memoryWith(ctx context.Context, n int) (m memory, err error) {
	port, err := controlplane.FreePort()
	if err != nil {
		return m, err
	}
	mark, err := e.audit.Mark()
	if err != nil {
		return m, err
	}
	namespace, _, operator, err := e.startOperatorOnNewEchoes(ctx, n, "--pprof-bind-address=127.0.0.1:"+port)
	if err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, operator.Terminate(), e.deleteEchoes(ctx, namespace)) }()
	if err := sleep(ctx, settleTime); err != nil {
		return m, err
	}
	events, err := e.audit.Since(mark, operatorUser)
	if err != nil {
		return m, err
	}
	m.Watches = newRequestCount("", events, 1).Watches
	if m.Peak, err = process.PeakMemory(operator.PID()); err != nil {
		return m, err
	}
	server, err := e.apiServerMemStats(ctx)
	if err != nil {
		return m, err
	}
	m.APIServer = server["HeapAlloc"]
	address := "http://127.0.0.1:" + port
	before, err := process.MemStats(ctx, http.DefaultClient, address)
	if err != nil {
		return m, err
	}
	m.Heap = before["HeapAlloc"]
	if n > 0 {
		if err := e.triggerReconciliations(ctx, namespace, n); err != nil {
			return m, err
		}
		after, err := process.MemStats(ctx, http.DefaultClient, address)
		if err != nil {
			return m, err
		}
		m.Mallocs = (after["Mallocs"] - before["Mallocs"]) / float64(n)
	}
	for range heapSamples {
		if err := sleep(ctx, settleTime); err != nil {
			return m, err
		}
		stats, err := process.MemStats(ctx, http.DefaultClient, address)
		if err != nil {
			return m, err
		}
		m.Heap = min(m.Heap, stats["HeapAlloc"])
	}
	return m, nil
}

// triggerReconciliations adds a label to every Deployment, which triggers a reconciliation of
// every Echo, and waits for the reconciliations.
func (e *environment) triggerReconciliations(ctx context.Context, namespace string, n int) error {
	if err := forEach(ctx, n, setupConcurrency, func(ctx context.Context, i int) error {
		name := children.Name(newEcho(namespace, fmt.Sprint("e", i)))
		deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
		return e.controlPlane.Client.Patch(ctx, deployment, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"touched":"yes"}}}`)))
	}); err != nil {
		return err
	}
	return sleep(ctx, settleTime)
}

func (e *environment) apiServerMemStats(ctx context.Context) (map[string]float64, error) {
	c, err := rest.HTTPClientFor(e.controlPlane.Config)
	if err != nil {
		return nil, err
	}
	return process.MemStats(ctx, c, e.controlPlane.Config.Host)
}

// createUncontrolled creates n objects of each kind of child that no Echo controls, and that do
// not carry the operator's labels.
func (e *environment) createUncontrolled(ctx context.Context, n int) error {
	namespace, err := e.createNamespace(ctx)
	if err != nil {
		return err
	}
	return forEach(ctx, n, setupConcurrency, func(ctx context.Context, i int) error {
		echo := newEcho(namespace, fmt.Sprint("uncontrolled-", i))
		echo.Spec.Port, echo.Spec.TargetPort = 80, 5678
		for _, kind := range children.Kinds {
			if kind.OptionalAPI || kind.Verifier {
				continue
			}
			object := kind.New()
			kind.Mutate(object, echo, inputs)
			object.SetNamespace(namespace)
			object.SetName(echo.Name)
			object.SetLabels(nil)
			object.SetOwnerReferences(nil)
			if err := e.controlPlane.Client.Create(ctx, object); err != nil {
				return err
			}
		}
		return nil
	})
}
