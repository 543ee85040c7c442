package scenarios

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/testing/controlplane"
	"github.com/kkloud-io/echo-operator/test/chaos/harness"
	"github.com/kkloud-io/echo-operator/test/chaos/kinds"
	"github.com/kkloud-io/echo-operator/test/chaos/oracle"
)

// serverContainer is the container of the server.
const serverContainer = "echo"

// earlierChildren are the children of the Echo of createReady, as version 0.4.0 wrote them.
//
//go:embed testdata/0.4.0/*.yaml
var earlierChildren embed.FS

func notAdopted(object client.Object) error {
	return oracle.Findingf(object, "restored without owner references, want it adopted, but it was replaced")
}

// upgradeChildren starts the operator beside the children of an earlier version.
func upgradeChildren(ctx context.Context, e *harness.Environment) error {
	return upgrade(ctx, e, "", noEdit)
}

func noEdit(context.Context) error { return nil }

// upgradeRootImage starts the operator beside a Deployment that sets a user for an image whose user is
// root. It keeps the user: the upgrade takes one rollout, in which every pod starts.
func upgradeRootImage(ctx context.Context, e *harness.Environment) error {
	return upgrade(ctx, e, controlplane.RootImage, func(ctx context.Context) error {
		const want = 2 // The revision of version 0.4.0, and that of this version.
		if revision := newestRevision(ctx, e); revision != want {
			return fmt.Errorf("revision of the Deployment of an image whose user is root: %d after the upgrade, want %d", revision, want)
		}
		return nil
	})
}

// upgradeAndEditPort edits the port of the servers as soon as the upgrade has replaced the pods.
func upgradeAndEditPort(ctx context.Context, e *harness.Environment) error {
	return upgrade(ctx, e, "", func(ctx context.Context) error {
		if err := e.EditEcho(ctx, one, func(s *echov1.EchoSpec) { s.TargetPort = 5679 }); err != nil {
			return err
		}
		return e.AwaitReady(ctx, one)
	})
}

// upgrade starts the operator beside the children of an earlier version, and edits the Echo, which has
// the image, or none. The Service has an endpoint at any time, and no child is replaced.
func upgrade(ctx context.Context, e *harness.Environment, image string, edit func(context.Context) error) error {
	e.Operator.Kill()
	if err := e.CreateEcho(ctx, one, echov1.EchoSpec{Message: "m", Replicas: 2, Image: image}); err != nil {
		return err
	}
	if err := createEarlierChildren(ctx, e); err != nil {
		return err
	}
	endpoints, stop, err := recordEndpoints(ctx, e)
	if err != nil {
		return err
	}
	defer stop()
	before, err := e.ChildGenerations(ctx)
	if err != nil {
		return err
	}
	if err := e.StartOperator(); err != nil {
		return err
	}
	start := time.Now()
	if err := e.AwaitReady(ctx, one); err != nil {
		return err
	}
	e.Record("Echo is ready after an upgrade from 0.4.0", time.Since(start), harness.ConvergenceTimeout)
	if err := edit(ctx); err != nil {
		return err
	}
	if err := e.Settle(ctx); err != nil {
		return err
	}
	after, err := e.ChildGenerations(ctx)
	if err != nil {
		return err
	}
	stop()
	findings := endpoints.Check(serverContainer)
	for child := range before {
		if _, kept := after[child]; !kept {
			findings = append(findings, fmt.Errorf("%s: replaced by the upgrade, want the same object", child))
		}
	}
	return errors.Join(append(findings, e.Verify(ctx))...)
}

// createEarlierChildren creates the children and the status of version 0.4.0, and waits for the pods.
func createEarlierChildren(ctx context.Context, e *harness.Environment) error {
	echo, err := e.GetEcho(ctx, e.Subject, one)
	if err != nil {
		return err
	}
	for _, kind := range kinds.Servers() {
		text, err := earlierChildren.ReadFile(path.Join("testdata/0.4.0", kind.Name+".yaml"))
		if errors.Is(err, fs.ErrNotExist) {
			continue // Version 0.4.0 does not have this kind.
		}
		if err != nil {
			return err
		}
		child := kinds.New(kind)
		if err := yaml.UnmarshalStrict(text, child); err != nil {
			return err
		}
		if d, is := child.(*appsv1.Deployment); is && echo.Spec.Image != "" {
			d.Spec.Template.Spec.Containers[0].Image = echo.Spec.Image
		}
		child.SetNamespace(e.Subject)
		child.SetOwnerReferences([]metav1.OwnerReference{*metav1.NewControllerRef(echo, echov1.GroupVersion.WithKind("Echo"))})
		if err := e.Client.Create(ctx, child); err != nil {
			return err
		}
	}
	echo.Status = echov1.EchoStatus{ObservedGeneration: echo.Generation, Ready: "2/2", Replicas: 2, AvailableReplicas: 2}
	for _, condition := range []metav1.Condition{
		{Type: echov1.ConditionReady, Status: metav1.ConditionFalse, Reason: echov1.ReasonPodsNotReady},
		{Type: echov1.ConditionAvailable, Status: metav1.ConditionTrue, Reason: echov1.ReasonServing},
		{Type: echov1.ConditionProgressing, Status: metav1.ConditionFalse, Reason: echov1.ReasonRolledOut},
		{Type: echov1.ConditionDegraded, Status: metav1.ConditionFalse, Reason: echov1.ReasonAsExpected},
	} {
		condition.ObservedGeneration, condition.LastTransitionTime = echo.Generation, metav1.Now()
		echo.Status.Conditions = append(echo.Status.Conditions, condition)
	}
	if err := e.Client.Status().Update(ctx, echo); err != nil {
		return err
	}
	return e.Await(ctx, harness.ConvergenceTimeout, "pods of version 0.4.0 are ready", func(ctx context.Context) error {
		var pods corev1.PodList
		if err := e.Client.List(ctx, &pods, client.InNamespace(e.Subject)); err != nil {
			return err
		}
		ready := 0
		for i := range pods.Items {
			if len(pods.Items[i].Status.ContainerStatuses) > 0 {
				ready++
			}
		}
		if ready != 2 {
			return oracle.Findingf(echo, "%d pods are ready, want 2", ready)
		}
		return nil
	})
}

// recordEndpoints records the endpoints of the Echo's Service until stop.
func recordEndpoints(ctx context.Context, e *harness.Environment) (endpoints *oracle.Endpoints, stop func(), err error) {
	endpoints = &oracle.Endpoints{}
	record := func(object any, deleted bool) {
		o, ok := object.(client.Object)
		if !ok {
			return
		}
		number, err := strconv.ParseUint(o.GetResourceVersion(), 10, 64)
		if err != nil {
			return
		}
		switch o := o.(type) {
		case *corev1.Pod:
			endpoints.AddPod(number, o, deleted)
		case *corev1.Service:
			endpoints.AddService(number, o)
		}
	}
	var watches []watch.Interface
	stop = func() {
		for _, w := range watches {
			w.Stop()
		}
	}
	for _, list := range []client.ObjectList{&corev1.ServiceList{}, &corev1.PodList{}} {
		if err := e.Client.List(ctx, list, client.InNamespace(e.Subject)); err != nil {
			return nil, nil, err
		}
		objects, err := kinds.Items(list)
		if err != nil {
			return nil, nil, err
		}
		for _, object := range objects {
			record(object, false)
		}
		w, err := e.Client.Watch(ctx, list, &client.ListOptions{Namespace: e.Subject, Raw: &metav1.ListOptions{ResourceVersion: list.GetResourceVersion()}})
		if err != nil {
			stop()
			return nil, nil, err
		}
		watches = append(watches, w)
		go func() {
			for event := range w.ResultChan() {
				record(event.Object, event.Type == watch.Deleted)
			}
		}()
	}
	return endpoints, stop, nil
}
