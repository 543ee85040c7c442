package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/children"
	"github.com/kkloud-io/echo-operator/test/chaos/proxy"
	"github.com/kkloud-io/echo-operator/internal/testing/controlplane"
)

const (
	operatorUser = "operator"

	// silence is how long a converged operator is watched for writes.
	silence = 1500 * time.Millisecond
	poll    = 100 * time.Millisecond
)

// bed is what all parts of the campaign share.
type bed struct {
	plane *controlplane.ControlPlane
	// user is whom the operators act as: it has the rights of their role.
	user *rest.Config
	// program is the operator; directory takes the logs.
	program, directory string
	// peace is where the reference sees no fault: an operator that looks after every world's
	// peaceful half.
	peace     *proxy.Proxy
	reference *controlplane.Operator
	root      string
	// convergence is how long after the last fault everything has to be well again.
	convergence time.Duration
	// peaceful are its namespaces.
	peaceful []string
}

// world is a namespace whose operator is under fire, and one where the same things happen
// in peace.
type world struct {
	*bed
	fire, peaceful string
	proxy          *proxy.Proxy
	// others are the proxies of further operators in the same namespace.
	others   []*proxy.Proxy
	program  string
	operator *controlplane.Operator
	logs     []string
	args     []string
	restarts int
	figures  []figure

	history       *history
	peaceBaseline int
	// expectedUIDs is how many objects there may have been under a child's name.
	expectedUIDs map[string]int
	mu           sync.Mutex
}

func fireNamespace(i int) string  { return fmt.Sprintf("fire-%d", i) }
func peaceNamespace(i int) string { return fmt.Sprintf("peace-%d", i) }

// newWorld begins anew in the pair of namespaces of that number.
func (b *bed) newWorld(ctx context.Context, number int, program string) (*world, error) {
	p, err := proxy.New(b.user)
	if err != nil {
		return nil, err
	}
	w := &world{
		bed: b, fire: fireNamespace(number), peaceful: peaceNamespace(number), proxy: p, program: program,
		expectedUIDs: map[string]int{}, peaceBaseline: b.writesIn(b.peace, peaceNamespace(number)),
	}
	if w.history, err = recordHistory(ctx, b.plane.Client, w.fire); err != nil {
		p.Close()
		return nil, err
	}
	return w, nil
}

func (b *bed) writesIn(p *proxy.Proxy, namespace string) int {
	count := 0
	for _, write := range p.Writes() {
		if write.Namespace == namespace {
			count++
		}
	}
	return count
}

// proxies returns those of all operators.
func (w *world) proxies() []*proxy.Proxy { return append([]*proxy.Proxy{w.proxy}, w.others...) }

// writes returns those of all operators.
func (w *world) writes() (all []proxy.Write) {
	for _, p := range w.proxies() {
		all = append(all, p.Writes()...)
	}
	return all
}

// start runs the operator under fire.
func (w *world) start() (err error) {
	if w.operator, err = startOperator(w.program, w.directory, w.proxy, []string{w.fire}, w.args...); err != nil {
		return err
	}
	w.logs = append(w.logs, w.operator.Log)
	return nil
}

// restart runs it again after it was killed.
func (w *world) restart() error {
	w.operator.Kill()
	w.restarts++
	return w.start()
}

// watched is how many watches an operator has when it has seen the cluster: one for each type.
const watched = 5

// awaitStart waits until the operator has seen the cluster.
func (w *world) awaitStart(ctx context.Context) error {
	return w.await(ctx, 20*time.Second, "the operator watches", func(context.Context) error {
		if n := w.proxy.Watches(); n < watched {
			return fmt.Errorf("it has %d of %d watches", n, watched)
		}
		return nil
	})
}

// await waits until the check passes, or says what it last said.
func (w *world) await(ctx context.Context, timeout time.Duration, what string, check func(context.Context) error) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, poll, timeout, true, func(ctx context.Context) (bool, error) {
		err := check(ctx)
		if ctx.Err() == nil { // An interrupted check says nothing.
			last = err
		}
		return err == nil, w.operator.Failed()
	})
	if err != nil {
		return fmt.Errorf("%s: not within %s: %w", what, timeout, errors.Join(err, last))
	}
	return nil
}

// end removes everything, for the next world of that number.
func (w *world) end(ctx context.Context) error {
	if w.operator != nil {
		w.operator.Kill()
	}
	for _, p := range w.proxies() {
		p.Close()
	}
	w.history.stop()
	var errs []error
	for _, namespace := range []string{w.fire, w.peaceful} {
		errs = append(errs, clear(ctx, w.plane.Client, namespace))
	}
	return errors.Join(errs...)
}

// kinds are what an operator makes of Echoes, and they themselves.
func kinds() []client.ObjectList {
	return []client.ObjectList{&echov1.EchoList{}, &appsv1.DeploymentList{}, &corev1.ServiceList{}, &policyv1.PodDisruptionBudgetList{}}
}

// clear empties a namespace.
func clear(ctx context.Context, c client.Client, namespace string) error {
	return wait.PollUntilContextTimeout(ctx, poll, time.Minute, true, func(ctx context.Context) (bool, error) {
		left := 0
		for _, list := range kinds() {
			if err := c.List(ctx, list, client.InNamespace(namespace)); err != nil {
				return false, err
			}
			for _, object := range items(list) {
				left++
				// A scenario that was cut short may have left what holds it.
				if len(object.GetFinalizers()) > 0 {
					err := c.Patch(ctx, object, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))
					if client.IgnoreNotFound(err) != nil {
						return false, err
					}
				}
				if err := c.Delete(ctx, object, client.PropagationPolicy(metav1.DeletePropagationBackground)); client.IgnoreNotFound(err) != nil {
					return false, err
				}
			}
		}
		return left == 0, nil
	})
}

// items returns what is in a list.
func items(list client.ObjectList) (objects []client.Object) {
	switch l := list.(type) {
	case *echov1.EchoList:
		for i := range l.Items {
			objects = append(objects, &l.Items[i])
		}
	case *appsv1.DeploymentList:
		for i := range l.Items {
			objects = append(objects, &l.Items[i])
		}
	case *corev1.ServiceList:
		for i := range l.Items {
			objects = append(objects, &l.Items[i])
		}
	case *policyv1.PodDisruptionBudgetList:
		for i := range l.Items {
			objects = append(objects, &l.Items[i])
		}
	}
	return objects
}

// both does the same in both namespaces, first where there is fire.
func (w *world) both(ctx context.Context, do func(ctx context.Context, namespace string) error) error {
	for _, namespace := range []string{w.fire, w.peaceful} {
		if err := do(ctx, namespace); err != nil {
			return fmt.Errorf("%s: %w", namespace, err)
		}
	}
	return nil
}

func (w *world) expectOneMore(child string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.expectedUIDs[child]++
}

// expectOneMoreOfEach allows the operator to make every child of an Echo once more.
func (w *world) expectOneMoreOfEach(echo string) {
	for _, child := range []string{"Deployment", "Service", "PodDisruptionBudget"} {
		w.expectOneMore(child + " echo-" + echo)
	}
}

// createEcho creates an Echo in both namespaces.
func (w *world) createEcho(ctx context.Context, name string, spec echov1.EchoSpec) error {
	w.expectOneMoreOfEach(name)
	return w.both(ctx, func(ctx context.Context, namespace string) error {
		return w.plane.Client.Create(ctx, &echov1.Echo{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: spec})
	})
}

// editEcho changes an Echo's spec in both namespaces, as `kubectl edit` would.
func (w *world) editEcho(ctx context.Context, name string, change func(*echov1.EchoSpec)) error {
	w.expectOneMore("PodDisruptionBudget echo-" + name) // Replicas may come to need one again.
	return w.both(ctx, func(ctx context.Context, namespace string) error {
		return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
			var echo echov1.Echo
			if err := w.plane.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &echo); err != nil {
				return err
			}
			change(&echo.Spec)
			return w.plane.Client.Update(ctx, &echo)
		})
	})
}

// deleteEcho deletes an Echo in both namespaces. An operator whose view lags, and has not seen
// the Echo's first status, may make its children once more before it knows.
func (w *world) deleteEcho(ctx context.Context, name string) error {
	w.expectOneMoreOfEach(name)
	return w.both(ctx, func(ctx context.Context, namespace string) error {
		return w.plane.Client.Delete(ctx, &echov1.Echo{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}})
	})
}

// onChild does something to an Echo's child in both namespaces, once it is there.
func (w *world) onChild(ctx context.Context, echo string, empty func() client.Object, do func(context.Context, client.Object) error) error {
	return w.both(ctx, func(ctx context.Context, namespace string) error {
		key := client.ObjectKey{Namespace: namespace, Name: echo}
		return w.await(ctx, w.convergence, "the child is there", func(ctx context.Context) error {
			var owner echov1.Echo
			if err := w.plane.Client.Get(ctx, key, &owner); err != nil {
				return err
			}
			child := empty()
			if err := w.plane.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: children.Name(&owner)}, child); err != nil {
				return err
			}
			if !metav1.IsControlledBy(child, &owner) {
				return errors.New("it is another's")
			}
			return do(ctx, child)
		})
	})
}

// change writes a child as another writer would.
func (w *world) change(ctx context.Context, child client.Object, how func()) error {
	how()
	return w.plane.Client.Update(ctx, child)
}

// freezeView lets the operator see these resources as they were in that version.
func (w *world) freezeView(version string, resources []string) error {
	if slices.Contains(resources, "echoes") {
		if err := w.history.freeze(version); err != nil {
			return err
		}
	}
	w.proxy.Freeze(version, resources...)
	return nil
}
