package harness

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kkloud-io/echo-operator/test/chaos/kinds"
	"github.com/kkloud-io/echo-operator/test/chaos/oracle"
)

// recorder records the history of a namespace.
type recorder struct {
	history *oracle.History
	cancel  context.CancelFunc
	watches sync.WaitGroup
	// open is the number of watches that are open.
	open atomic.Int64
}

// record starts to record a namespace, which must be empty.
func record(ctx context.Context, c client.WithWatch, namespace string) (*recorder, error) {
	ctx, cancel := context.WithCancel(ctx)
	r := &recorder{history: oracle.NewHistory(), cancel: cancel}
	for _, list := range kinds.Lists() {
		w, err := r.watch(ctx, c, list, namespace)
		if err != nil {
			cancel()
			return nil, err
		}
		r.watches.Go(func() {
			for err == nil {
				r.receive(w)
				err = wait.PollUntilContextCancel(ctx, pollInterval, true, func(ctx context.Context) (bool, error) {
					var failed error
					w, failed = r.watch(ctx, c, list, namespace)
					return failed == nil, nil
				})
			}
		})
	}
	return r, nil
}

// receive records the events of a watch until it is closed.
func (r *recorder) receive(w watch.Interface) {
	defer r.open.Add(-1)
	for event := range w.ResultChan() {
		if object, ok := event.Object.(client.Object); ok && event.Type == watch.Deleted {
			r.history.Delete(object)
		} else if ok {
			r.history.Add(object, time.Now())
		}
	}
}

// watch records the objects that exist, and opens a watch. After a restart, an API server does not
// deliver earlier events, so a closed watch cannot resume at its last version.
func (r *recorder) watch(ctx context.Context, c client.WithWatch, empty client.ObjectList, namespace string) (watch.Interface, error) {
	list := empty.DeepCopyObject().(client.ObjectList)
	if err := c.List(ctx, list, client.InNamespace(namespace)); err != nil {
		return nil, err
	}
	version, err := strconv.ParseUint(list.GetResourceVersion(), 10, 64)
	if err != nil {
		return nil, err
	}
	if _, ok := list.(*appsv1.DeploymentList); ok {
		r.history.Gap(version)
	}
	objects, err := kinds.Items(list)
	if err != nil {
		return nil, err
	}
	for _, object := range objects {
		r.history.Add(object, time.Now())
	}
	options := &metav1.ListOptions{ResourceVersion: list.GetResourceVersion()}
	w, err := c.Watch(ctx, list, &client.ListOptions{Namespace: namespace, Raw: options})
	if err == nil {
		r.open.Add(1)
	}
	return w, err
}

// isRecording checks that all watches are open.
func (r *recorder) isRecording(context.Context) error {
	if open, want := r.open.Load(), int64(len(kinds.Lists())); open < want {
		return fmt.Errorf("recorder: %d of %d watches are open", open, want)
	}
	return nil
}

func (r *recorder) stop() {
	r.cancel()
	r.watches.Wait()
}
