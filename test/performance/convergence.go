package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/testing/controlplane"
)

// timings are how long the operator or the baseline client took to write for new Echoes and for
// edited Echoes.
type timings struct{ create, edit measurement }

// measurement is the time from the first write to the end of the last, with the CPU times of it.
type measurement struct {
	wall time.Duration
	cpu  cpuTimes
}

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
	if t.create, err = e.converge(ctx, namespace, args...); err != nil {
		return t, err
	}
	if !edit {
		return t, e.deleteEchoes(ctx, namespace)
	}
	if err := e.editEchoes(ctx, echoes, editMessage); err != nil {
		return t, err
	}
	if t.edit, err = e.converge(ctx, namespace, args...); err != nil {
		return t, err
	}
	return t, e.deleteEchoes(ctx, namespace)
}

func editMessage(spec *echov1.EchoSpec) { spec.Message = "edited" }

// converge measures the operator until every Echo of the namespace has converged. Its start does not
// count.
func (e *environment) converge(ctx context.Context, namespace string, args ...string) (m measurement, err error) {
	mark, err := e.audit.Mark()
	if err != nil {
		return m, err
	}
	operator, err := e.startOperator(namespace, args...)
	if err != nil {
		return m, err
	}
	if err := awaitWorkers(ctx, operator); err != nil {
		return m, errors.Join(err, operator.Terminate())
	}
	m.cpu, err = measureCPU(operator.PID(), func() error { return e.awaitEchoes(ctx, namespace, operator, isConverged) })
	if err := errors.Join(err, operator.Terminate()); err != nil {
		return m, err
	}
	m.wall, err = e.writeDuration(mark, operatorUser)
	return m, err
}

// measureBaseline has the baseline client write what the operator writes in measureOperator.
func (e *environment) measureBaseline(ctx context.Context, n, concurrency int, edit bool) (t timings, err error) {
	namespace, echoes, err := e.createNamespaceWithEchoes(ctx, n)
	if err != nil {
		return t, err
	}
	var written []writtenObjects
	t.create, err = e.measureClient(func() (err error) {
		written, err = e.createChildren(ctx, echoes, concurrency)
		return err
	})
	if err != nil || !edit {
		return t, errors.Join(err, e.deleteEchoes(ctx, namespace))
	}
	if err := e.editEchoes(ctx, echoes, editMessage); err != nil {
		return t, err
	}
	if t.edit, err = e.measureClient(func() error { return e.updateChildren(ctx, written, echoes, concurrency) }); err != nil {
		return t, err
	}
	return t, e.deleteEchoes(ctx, namespace)
}

// measureConfigMaps measures the cheapest writes: the baseline client creates n ConfigMaps, and then
// changes each of them.
func (e *environment) measureConfigMaps(ctx context.Context, n, concurrency int) (t timings, err error) {
	namespace, err := e.createNamespace(ctx)
	if err != nil {
		return t, err
	}
	configMaps := make([]*corev1.ConfigMap, n)
	for i := range configMaps {
		configMaps[i] = &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprint("c", i)},
			Data:       map[string]string{"message": "hello"},
		}
	}
	t.create, err = e.measureClient(func() error {
		return forEach(ctx, n, concurrency, func(ctx context.Context, i int) error { return e.baselineClient.Create(ctx, configMaps[i]) })
	})
	if err != nil {
		return t, err
	}
	t.edit, err = e.measureClient(func() error {
		return forEach(ctx, n, concurrency, func(ctx context.Context, i int) error {
			configMaps[i].Data["message"] = "edited"
			return e.baselineClient.Update(ctx, configMaps[i])
		})
	})
	return t, errors.Join(err, e.controlPlane.Client.DeleteAllOf(ctx, &corev1.ConfigMap{}, client.InNamespace(namespace)))
}

// measureClient measures writes of the baseline client, which is a part of this process.
func (e *environment) measureClient(write func() error) (m measurement, err error) {
	mark, err := e.audit.Mark()
	if err != nil {
		return m, err
	}
	if m.cpu, err = measureCPU(os.Getpid(), write); err != nil {
		return m, err
	}
	m.wall, err = e.writeDuration(mark, baselineUser)
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
		progress("  %d Echoes with concurrency %d: %s", n, concurrency, t.create.wall.Round(time.Millisecond))
		if least == 0 || t.create.wall < least {
			best, least = concurrency, t.create.wall
		}
	}
	return best, nil
}
