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
	policyv1 "k8s.io/api/policy/v1"
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
	// uncontrolledObjects is the number of large objects, and uncontrolledSample that of the short form.
	uncontrolledObjects = 250
	uncontrolledSample  = 60
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

// largeObjects returns large objects in a namespace. Some refer to an Echo of that namespace.
type largeObjects func(number int, namespace string, echo *echov1.Echo) client.Object

// uncontrolledMemory has users create large objects with the operator's label.
func uncontrolledMemory(short bool) (all []harness.Scenario) {
	count := uncontrolledObjects
	if short {
		count = uncontrolledSample
	}
	add := func(name string, run func(context.Context, *memoryRun) error) {
		all = append(all, harness.Scenario{Name: name, Run: func(ctx context.Context, e *harness.Environment) error {
			return (&memoryRun{Environment: e}).run(ctx, run)
		}})
	}
	create := func(name string, objects largeObjects) {
		add(name, func(ctx context.Context, m *memoryRun) error { return m.create(ctx, count, objects) })
	}
	create("large Deployments with the operator's label", largeDeployment)
	create("large Deployments with names of children", func(i int, namespace string, _ *echov1.Echo) client.Object {
		object := largeDeployment(i, namespace, nil)
		object.SetName(kinds.ServerName(object.GetName()))
		return object
	})
	create("large Deployments with forged owner references", func(i int, namespace string, echo *echov1.Echo) client.Object {
		object := largeDeployment(i, namespace, nil)
		object.SetName(kinds.ServerName(object.GetName()))
		object.SetOwnerReferences([]metav1.OwnerReference{*metav1.NewControllerRef(echo, echov1.GroupVersion.WithKind("Echo"))})
		return object
	})
	create("Deployments with thousands of labels", func(i int, namespace string, _ *echov1.Echo) client.Object {
		object := largeDeployment(i, namespace, nil)
		object.(*appsv1.Deployment).Spec.Template.Spec.Containers[0].Args = nil
		for n := range largeObject / 160 { // Its managed fields contain the keys, too.
			object.GetLabels()[fmt.Sprintf("label-%04d-%s", n, strings.Repeat("x", 40))] = strings.Repeat("y", 48)
		}
		return object
	})
	create("large pods", func(i int, namespace string, _ *echov1.Echo) client.Object {
		d := largeDeployment(i, namespace, nil).(*appsv1.Deployment)
		return &corev1.Pod{ObjectMeta: d.ObjectMeta, Spec: d.Spec.Template.Spec}
	})
	create("Services with large annotations", func(i int, namespace string, _ *echov1.Echo) client.Object {
		return &corev1.Service{ObjectMeta: annotated(i, namespace), Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}}
	})
	create("PodDisruptionBudgets with large annotations", func(i int, namespace string, _ *echov1.Echo) client.Object {
		return &policyv1.PodDisruptionBudget{ObjectMeta: annotated(i, namespace)}
	})
	add("large annotations on children", func(ctx context.Context, m *memoryRun) error { return m.annotate(ctx, kinds.ChildLists()...) })
	add("large annotations on Echoes", func(ctx context.Context, m *memoryRun) error { return m.annotate(ctx, &echov1.EchoList{}) })
	return all
}

func labeledMeta(number int, namespace string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("large-%d", number), Labels: map[string]string{children.ManagedByLabel: children.ManagedBy}}
}

func annotated(number int, namespace string) metav1.ObjectMeta {
	meta := labeledMeta(number, namespace)
	meta.Annotations = map[string]string{ofAnnotation: strings.Repeat("x", largeAnnotation)}
	return meta
}

// largeDeployment is paused, so that it has no ReplicaSet of the same size.
func largeDeployment(number int, namespace string, _ *echov1.Echo) client.Object {
	labels := map[string]string{"app": "large"}
	return &appsv1.Deployment{ObjectMeta: labeledMeta(number, namespace), Spec: appsv1.DeploymentSpec{
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
	created         []client.Object
}

func (m *memoryRun) run(ctx context.Context, disturb func(context.Context, *memoryRun) error) error {
	port, err := controlplane.FreePort()
	if err != nil {
		return err
	}
	m.pprof = "127.0.0.1:" + port
	m.Args = []string{"--pprof-bind-address=" + m.pprof}
	if m.neighbor, err = startWithNeighbor(ctx, m.Environment); err != nil {
		return err
	}
	defer func() { _ = m.clean(context.WithoutCancel(ctx)) }()
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
	if err := disturb(ctx, m); err != nil {
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
	fmt.Printf("live heap: %.1f MiB of %.0f MiB before, %.1f MiB beside the large objects, %.1f MiB after a restart; peak memory of the restart %.0f MiB\n",
		before/(1<<20), total/(1<<20), during/(1<<20), after/(1<<20), peak/(1<<20))
	if err := errors.Join(
		oracle.CheckGrowth("live heap beside the large objects", before, during, total, heapGrowth),
		oracle.CheckGrowth("live heap beside the large objects after a restart", before, after, total, heapGrowth),
		oracle.CheckGrowth("peak memory of a restart beside the large objects", peakLimit, peak, total, 0),
		m.clean(ctx)); err != nil {
		return err
	}
	return m.Verify(ctx)
}

// create creates large objects in the neighbor namespace.
func (m *memoryRun) create(ctx context.Context, count int, objects largeObjects) error {
	echo, err := m.GetEcho(ctx, m.neighbor, echoName(0))
	if err != nil {
		return err
	}
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(4)
	for i := range count {
		object := objects(i, m.neighbor, echo)
		m.created = append(m.created, object)
		group.Go(func() error { return m.Client.Create(groupCtx, object) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	return m.awaitDeploymentController(ctx)
}

// awaitDeploymentController waits until kube-controller-manager has written the status of the created
// Deployments. That keeps the API server busy for a minute or more, which is not to be measured.
func (m *memoryRun) awaitDeploymentController(ctx context.Context) error {
	for _, object := range m.created {
		created, is := object.(*appsv1.Deployment)
		if !is {
			continue
		}
		if err := m.Await(ctx, restartTimeout, "a large Deployment has a status", func(ctx context.Context) error {
			var deployment appsv1.Deployment
			if err := m.Client.Get(ctx, client.ObjectKeyFromObject(created), &deployment); err != nil {
				return err
			}
			if deployment.Status.ObservedGeneration == 0 {
				return fmt.Errorf("the Deployment %s has no status", created.Name)
			}
			return nil
		}); err != nil {
			return err
		}
	}
	return nil
}

// annotate adds a large annotation to all objects in the neighbor namespace.
func (m *memoryRun) annotate(ctx context.Context, lists ...client.ObjectList) error {
	annotation := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, ofAnnotation, strings.Repeat("x", largeAnnotation))
	for _, list := range lists {
		if err := m.Client.List(ctx, list, client.InNamespace(m.neighbor)); err != nil {
			return err
		}
		objects, err := kinds.Items(list)
		if err != nil {
			return err
		}
		for _, object := range objects {
			if err := m.Client.Patch(ctx, object, client.RawPatch(types.MergePatchType, annotation)); err != nil {
				return err
			}
		}
	}
	return nil
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
	start := time.Now()
	if err := m.AwaitEcho(ctx, restartTimeout, m.neighbor, echo.Name, "is ready after a restart", oracle.CheckReadyNow); err != nil {
		return 0, 0, err
	}
	m.Record("New Echo is ready after a restart beside large objects", time.Since(start), harness.ConvergenceTimeout)
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

// clean deletes what the scenario created in the neighbor namespace.
func (m *memoryRun) clean(ctx context.Context) error {
	var errs []error
	for _, object := range m.created {
		errs = append(errs, client.IgnoreNotFound(m.Client.Delete(ctx, object)))
	}
	m.created = nil
	return errors.Join(append(errs, m.Clear(ctx, m.neighbor))...)
}
