package scenarios

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/children"
	"github.com/kkloud-io/echo-operator/internal/testing/controlplane"
	"github.com/kkloud-io/echo-operator/test/chaos/harness"
	"github.com/kkloud-io/echo-operator/test/chaos/kinds"
	"github.com/kkloud-io/echo-operator/test/chaos/oracle"
	"github.com/kkloud-io/echo-operator/test/internal/process"
)

const (
	// uncontrolledObjects is the number of large objects.
	uncontrolledObjects = 250
	// largeObject is close to the API server's limit for an object, largeAnnotation to that for
	// annotations.
	largeObject     = 900 << 10
	largeAnnotation = 250 << 10
	// neighborEchoes is the number of Echoes beside the large objects.
	neighborEchoes = 20
	// The live heap may grow by so many per cent of the operator's memory, and the peak memory of a
	// restart must stay below half of the memory limit in config/manager.
	heapGrowth = 5
	peakLimit  = 128 << 20
	// restartTimeout is how long an operator may take that receives all large objects.
	restartTimeout = 3 * time.Minute
	// settleTime is how long the operator may take to receive the events of the large objects.
	settleTime = 5 * time.Second
)

// uncontrolledMemory has users create large objects with the operator's label, and make others large.
func uncontrolledMemory(name string, disturb func(*memoryRun, context.Context) error) harness.Scenario {
	return harness.Scenario{Name: name, Run: func(ctx context.Context, e *harness.Environment) error {
		return (&memoryRun{Environment: e}).run(ctx, disturb)
	}}
}

// largeDeployment has the name of a child and a forged reference to the Echo. It is paused, so that it
// has no ReplicaSet of the same size.
func largeDeployment(number int, echo *echov1.Echo) *appsv1.Deployment {
	meta := metav1.ObjectMeta{
		Namespace: echo.Namespace, Name: kinds.ServerName(fmt.Sprint("large-", number)), Labels: map[string]string{children.ManagedByLabel: children.ManagedBy},
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(echo, echov1.GroupVersion.WithKind("Echo"))},
	}
	labels := map[string]string{"app": "large"}
	return &appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{
		Paused: true, Replicas: new(int32(0)), Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{
			Containers: []corev1.Container{{Name: "large", Image: customImage, Args: []string{strings.Repeat("x", largeObject)}}},
		}},
	}}
}

// memoryRun measures the memory of the subject's operator.
type memoryRun struct {
	*harness.Environment
	neighbor, pprof string
}

func (m *memoryRun) run(ctx context.Context, disturb func(*memoryRun, context.Context) error) error {
	port, err := controlplane.FreePort()
	if err != nil {
		return err
	}
	m.pprof = "127.0.0.1:" + port
	m.Args = []string{"--pprof-bind-address=" + m.pprof}
	if m.neighbor, err = startWithNeighbor(ctx, m.Environment); err != nil {
		return err
	}
	defer func() { _ = m.Clear(context.WithoutCancel(ctx), m.neighbor) }()
	if err := createReady(ctx, m.Environment); err != nil {
		return err
	}
	for i := range neighborEchoes {
		if _, err := timeToReady(ctx, m.Environment, m.neighbor, echoName(i)); err != nil {
			return err
		}
	}
	before, _, err := m.restartAndMeasure(ctx)
	if err != nil {
		return err
	}
	total, err := process.Memory(m.Operator.PID())
	if err != nil {
		return err
	}
	if err := disturb(m, ctx); err != nil {
		return err
	}
	harness.Pause(ctx, settleTime)
	during, err := m.heap(ctx)
	if err != nil {
		return err
	}
	after, peak, err := m.restartAndMeasure(ctx)
	if err != nil {
		return err
	}
	if err := errors.Join(
		oracle.CheckGrowth("live heap beside the large objects", before, during, total, heapGrowth),
		oracle.CheckGrowth("live heap beside the large objects after a restart", before, after, total, heapGrowth),
		oracle.CheckGrowth("peak memory of a restart beside the large objects", peakLimit, peak, total, 0),
		m.Clear(ctx, m.neighbor)); err != nil {
		return err
	}
	return m.Verify(ctx)
}

// create creates large objects in the neighbor namespace, and waits until kube-controller-manager has
// written their status. That keeps the API server busy for a minute or more, which is not to be measured.
func (m *memoryRun) create(ctx context.Context) error {
	echo, err := m.GetEcho(ctx, m.neighbor, echoName(0))
	if err != nil {
		return err
	}
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(4)
	for i := range uncontrolledObjects {
		d := largeDeployment(i, echo)
		group.Go(func() error {
			if err := m.Client.Create(groupCtx, d); err != nil {
				return err
			}
			return m.Await(groupCtx, restartTimeout, "large Deployment has a status", func(ctx context.Context) error {
				if err := m.Client.Get(ctx, client.ObjectKeyFromObject(d), d); err != nil {
					return err
				}
				if d.Status.ObservedGeneration == 0 {
					return oracle.Findingf(d, "has no status")
				}
				return nil
			})
		})
	}
	return group.Wait()
}

// annotate adds a large annotation to all objects in the neighbor namespace.
func (m *memoryRun) annotate(ctx context.Context) error {
	annotation := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, ofAnnotation, strings.Repeat("x", largeAnnotation))
	objects, err := m.Objects(ctx, kinds.Lists(), m.neighbor)
	for _, object := range objects {
		err = errors.Join(err, m.Client.Patch(ctx, object, client.RawPatch(types.MergePatchType, annotation)))
	}
	return err
}

// restartAndMeasure returns the live heap of a new operator in steady state, and its peak memory.
func (m *memoryRun) restartAndMeasure(ctx context.Context) (heap, peak float64, err error) {
	m.Operator.Kill()
	m.Restarts++
	if err := m.StartDirectOperator(m.Subject, m.neighbor); err != nil {
		return 0, 0, err
	}
	echo := &echov1.Echo{
		ObjectMeta: metav1.ObjectMeta{Namespace: m.neighbor, Name: fmt.Sprintf("after-restart-%d", m.Restarts)},
		Spec:       echov1.EchoSpec{Message: "m"},
	}
	if err := m.Client.Create(ctx, echo); err != nil {
		return 0, 0, err
	}
	if err := m.AwaitEcho(ctx, restartTimeout, m.neighbor, echo.Name, "is ready after a restart", oracle.CheckReadyNow); err != nil {
		return 0, 0, err
	}
	if err := m.Client.Delete(ctx, echo); err != nil {
		return 0, 0, err
	}
	harness.Pause(ctx, settleTime)
	if peak, err = process.PeakMemory(m.Operator.PID()); err != nil {
		return 0, 0, err
	}
	heap, err = m.heap(ctx)
	return heap, peak, err
}

// heapSamples is how often the live heap is measured, once a second.
const heapSamples = 5

// heap returns the live heap of the operator: the least of several measurements, because on a busy
// machine the operator may still decode large objects. A collection also empties the pools of buffers
// that the one before has marked.
func (m *memoryRun) heap(ctx context.Context) (least float64, err error) {
	for i := range heapSamples {
		stats, err := process.MemStats(ctx, http.DefaultClient, "http://"+m.pprof)
		if err != nil {
			return 0, err
		}
		if heap := stats["HeapAlloc"]; i == 0 || heap < least {
			least = heap
		}
		harness.Pause(ctx, time.Second)
	}
	return least, nil
}
