package scenarios

import (
	"context"
	"errors"
	"fmt"
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
	"github.com/kkloud-io/echo-operator/test/chaos/harness"
	"github.com/kkloud-io/echo-operator/test/chaos/kinds"
	"github.com/kkloud-io/echo-operator/test/chaos/oracle"
	"github.com/kkloud-io/echo-operator/test/internal/process"
)

const (
	// uncontrolledObjects is the number of large objects, and largeEchoes that of Echoes beside them.
	uncontrolledObjects = 250
	largeEchoes         = 20
	// largeObject is close to the API server's limit for an object, largeAnnotation to that for
	// annotations.
	largeObject     = 900 << 10
	largeAnnotation = 250 << 10
	// peakLimit is three quarters of the memory limit in config/manager.
	peakLimit = 192 << 20
	// largeTimeout is how long the API server and kube-controller-manager may take for large objects.
	largeTimeout = 3 * time.Minute
	// settleTime is how long the operator may take to receive the events of the large objects.
	settleTime = 5 * time.Second
)

// largeObjects has a user of another namespace create large Deployments that look like children, and make
// Echoes and their children large. The operator's memory stays far below its limit, also during a start.
func largeObjects(ctx context.Context, e *harness.Environment) error {
	neighbor, err := startWithNeighbor(ctx, e)
	if err != nil {
		return err
	}
	if err := createReady(ctx, e); err != nil {
		return err
	}
	for i := range largeEchoes {
		if _, err := timeToReady(ctx, e, neighbor, echoName(i)); err != nil {
			return err
		}
	}
	e.Operator.Kill() // A proxy would change the encoding of what the operator reads.
	if err := e.StartDirectOperator(e.Subject, neighbor); err != nil {
		return err
	}
	if err := errors.Join(createLarge(ctx, e, neighbor), annotateLarge(ctx, e, neighbor)); err != nil {
		return err
	}
	err = checkPeak(ctx, e, neighbor, "after-edit")
	e.Operator.Kill()
	e.Restarts++
	err = errors.Join(err, e.StartDirectOperator(e.Subject, neighbor), checkPeak(ctx, e, neighbor, "after-restart"))
	if err := errors.Join(err, e.Clear(ctx, neighbor)); err != nil {
		return err
	}
	return e.Verify(ctx)
}

// checkPeak checks the peak memory of the operator after it has made a new Echo ready.
func checkPeak(ctx context.Context, e *harness.Environment, namespace, echo string) error {
	if _, err := timeToReady(ctx, e, namespace, echo); err != nil {
		return err
	}
	harness.Pause(ctx, settleTime)
	peak, err := process.PeakMemory(e.Operator.PID())
	if err == nil && peak > peakLimit {
		err = fmt.Errorf("operator: peak memory %.0f MiB beside large objects, want at most %d MiB", peak/(1<<20), peakLimit>>20)
	}
	return err
}

// createLarge creates large Deployments with names of children, the operator's label and forged references to an
// Echo, and waits until kube-controller-manager has written their status. They are paused, so that they have no
// ReplicaSet of the same size.
func createLarge(ctx context.Context, e *harness.Environment, namespace string) error {
	echo, err := e.GetEcho(ctx, namespace, echoName(0))
	if err != nil {
		return err
	}
	labels := map[string]string{"app": "large"}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(4)
	for i := range uncontrolledObjects {
		d := &appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: namespace, Name: kinds.ServerName(fmt.Sprint("large-", i)), Labels: map[string]string{children.ManagedByLabel: children.ManagedBy},
				OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(echo, echov1.GroupVersion.WithKind("Echo"))},
			},
			Spec: appsv1.DeploymentSpec{
				Paused: true, Replicas: new(int32(0)), Selector: &metav1.LabelSelector{MatchLabels: labels},
				Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{
					Containers: []corev1.Container{{Name: "large", Image: customImage, Args: []string{strings.Repeat("x", largeObject)}}},
				}},
			},
		}
		group.Go(func() error {
			if err := e.Client.Create(ctx, d); err != nil {
				return err
			}
			return e.Await(ctx, largeTimeout, "large Deployment has a status", func(ctx context.Context) error {
				if err := e.Client.Get(ctx, client.ObjectKeyFromObject(d), d); err != nil {
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

// annotateLarge adds a large annotation to all Echoes of a namespace and to their children.
func annotateLarge(ctx context.Context, e *harness.Environment, namespace string) error {
	text := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, ofAnnotation, strings.Repeat("x", largeAnnotation))
	annotation := client.RawPatch(types.MergePatchType, text)
	var err error
	for i := range largeEchoes {
		echo := &echov1.Echo{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: echoName(i)}}
		service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: kinds.ServerName(echo.Name)}}
		err = errors.Join(err, e.Client.Patch(ctx, echo, annotation), e.Client.Patch(ctx, service, annotation))
	}
	return err
}
