package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kkloud-io/echo-operator/internal/children"
	"github.com/kkloud-io/echo-operator/internal/testing/controlplane"
	"github.com/kkloud-io/echo-operator/test/internal/process"
)

// memory is in bytes unless the field says otherwise.
type memory struct {
	// peak is the peak resident memory of the operator.
	peak float64
	// heapPerEcho is the live heap of the operator that an Echo adds, in steady state.
	heapPerEcho float64
	// mallocs is the number of allocations of a reconciliation that changes nothing, including
	// the event that triggers it.
	mallocs float64
	// watches is the number of watches that the operator started.
	watches float64
}

// heapSamples is how often the live heap is measured. The least counts, because on a busy
// machine buffers are live for some time after the last request.
const heapSamples = 3

// measureMemory measures the operator before and after n new Echoes have converged. Beside them are
// as many uncontrolled objects, which the operator must not hold.
func (e *environment) measureMemory(ctx context.Context, n int) (m memory, err error) {
	port, err := controlplane.FreePort()
	if err != nil {
		return m, err
	}
	address := "http://127.0.0.1:" + port
	mark, err := e.audit.Mark()
	if err != nil {
		return m, err
	}
	namespace, _, operator, err := e.startOperatorOnNewEchoes(ctx, 0, "--pprof-bind-address=127.0.0.1:"+port)
	if err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, operator.Terminate(), e.deleteEchoes(ctx, namespace)) }()
	empty, err := liveHeap(ctx, address)
	if err != nil {
		return m, err
	}
	if err := e.createUncontrolled(ctx, namespace, n); err != nil {
		return m, err
	}
	if _, err := e.createEchoes(ctx, namespace, n); err != nil {
		return m, err
	}
	if err := e.awaitEchoes(ctx, namespace, operator, isConverged); err != nil {
		return m, err
	}
	heap, err := liveHeap(ctx, address)
	if err != nil {
		return m, err
	}
	m.heapPerEcho = (heap - empty) / float64(n)
	if m.peak, err = process.PeakMemory(operator.PID()); err != nil {
		return m, err
	}
	events, err := e.audit.Since(mark, operatorUser)
	if err != nil {
		return m, err
	}
	m.watches = newRequestCount("", events, 1).watches
	before, err := process.MemStats(ctx, http.DefaultClient, address)
	if err != nil {
		return m, err
	}
	if err := e.triggerReconciliations(ctx, namespace, n); err != nil {
		return m, err
	}
	after, err := process.MemStats(ctx, http.DefaultClient, address)
	m.mallocs = (after["Mallocs"] - before["Mallocs"]) / float64(n)
	return m, err
}

// liveHeap returns the live heap of the program whose pprof endpoint has the address.
func liveHeap(ctx context.Context, address string) (heap float64, err error) {
	for range heapSamples {
		if err := sleep(ctx, settleTime); err != nil {
			return 0, err
		}
		stats, err := process.MemStats(ctx, http.DefaultClient, address)
		if err != nil {
			return 0, err
		}
		if sample := stats["HeapAlloc"]; heap == 0 || sample < heap {
			heap = sample
		}
	}
	return heap, nil
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

// createUncontrolled creates n objects of each kind of child that no Echo controls, and that do
// not carry the operator's labels.
func (e *environment) createUncontrolled(ctx context.Context, namespace string, n int) error {
	return forEach(ctx, n, setupConcurrency, func(ctx context.Context, i int) error {
		echo := newEcho(namespace, fmt.Sprint("uncontrolled-", i))
		echo.Spec.Port, echo.Spec.TargetPort = 80, 5678
		for _, kind := range children.Kinds {
			if !kind.Wanted(echo) {
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
