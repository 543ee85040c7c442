package harness

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/children"
	"github.com/kkloud-io/echo-operator/internal/testing/controlplane"
	"github.com/kkloud-io/echo-operator/test/chaos/kinds"
	"github.com/kkloud-io/echo-operator/test/chaos/oracle"
	"github.com/kkloud-io/echo-operator/test/chaos/proxy"
)

// Environment is where one scenario runs: a subject namespace whose operator is exposed to faults,
// and a control namespace where the same happens without faults.
type Environment struct {
	*Harness
	// Subject and Control are the namespaces.
	Subject, Control string
	// Proxy is the fault proxy of the subject's operator.
	Proxy *proxy.Proxy
	// Operator is the subject's operator.
	Operator *controlplane.Operator
	// Args are its additional command line arguments.
	Args []string
	// Restarts counts how often it was restarted.
	Restarts int
	// History is that of the subject namespace.
	History *oracle.History

	program      string
	recorder     *recorder
	logs         []string
	measurements []Measurement
	// otherProxies are those of further operators in the subject namespace.
	otherProxies []*proxy.Proxy
	// earlierControlWrites were made for earlier scenarios in the control namespace.
	earlierControlWrites int
	// allowedWrites is added to the bound of writes.
	allowedWrites int

	mu      sync.Mutex
	allowed oracle.Creations
}

// newEnvironment sets up an environment in the pair of namespaces of that number.
func (h *Harness) newEnvironment(ctx context.Context, number int, program string) (*Environment, error) {
	p, err := proxy.New(h.user)
	if err != nil {
		return nil, err
	}
	e := &Environment{
		Harness: h, Subject: subjectNamespace(number), Control: controlNamespace(number), Proxy: p, program: program,
		allowed: oracle.Creations{}, earlierControlWrites: writesIn(h.controlProxy, controlNamespace(number)),
	}
	if e.recorder, err = record(ctx, h.Client, e.Subject); err != nil {
		p.Close()
		return nil, err
	}
	e.History = e.recorder.history
	return e, nil
}

// tearDown stops the operator and empties the namespaces for the next environment.
func (e *Environment) tearDown(ctx context.Context) error {
	if e.Operator != nil {
		e.Operator.Kill()
	}
	for _, p := range e.Proxies() {
		p.Close()
	}
	e.recorder.stop()
	return errors.Join(e.Clear(ctx, e.Subject), e.Clear(ctx, e.Control))
}

// Proxies returns the proxies of all operators in the subject namespace.
func (e *Environment) Proxies() []*proxy.Proxy {
	return append([]*proxy.Proxy{e.Proxy}, e.otherProxies...)
}

// writes returns the writes of all operators in the subject namespace.
func (e *Environment) writes() (all []proxy.Write) {
	for _, p := range e.Proxies() {
		all = append(all, p.Writes()...)
	}
	return all
}

// StartOperator starts the subject's operator, for the subject namespace.
func (e *Environment) StartOperator() error { return e.StartOperatorFor(e.Subject) }

// StartOperatorFor starts the subject's operator for namespaces.
func (e *Environment) StartOperatorFor(namespaces ...string) error {
	return e.start(e.Proxy.Config(), namespaces)
}

// StartDirectOperator starts the subject's operator without a proxy, which would change the encoding
// of what the operator reads.
func (e *Environment) StartDirectOperator(namespaces ...string) error {
	return e.start(e.user, namespaces)
}

func (e *Environment) start(config *rest.Config, namespaces []string) (err error) {
	if e.Operator, err = e.startOperator(e.program, config, namespaces, e.Args...); err != nil {
		return err
	}
	e.logs = append(e.logs, e.Operator.Log)
	return nil
}

// Restart kills the subject's operator, and starts it again.
func (e *Environment) Restart() error {
	e.Operator.Kill()
	e.Restarts++
	return e.StartOperator()
}

// Replica is one of several operators in the subject namespace.
type Replica struct {
	*controlplane.Operator
	// Proxy is its fault proxy.
	Proxy *proxy.Proxy
}

// AddReplica starts another operator in the subject namespace.
func (e *Environment) AddReplica(args ...string) (r Replica, err error) {
	if r.Proxy, err = proxy.New(e.user); err != nil {
		return r, err
	}
	e.otherProxies = append(e.otherProxies, r.Proxy)
	r.Operator, err = e.startOperator(e.program, r.Proxy.Config(), []string{e.Subject}, args...)
	return r, err
}

// ServeStale serves the operator stale reads of the resources.
func (e *Environment) ServeStale(version string, resources []string) error {
	if slices.Contains(resources, kinds.Echoes) {
		if err := e.History.ServeStale(version); err != nil {
			return err
		}
	}
	e.Proxy.ServeStale(version, resources...)
	return nil
}

// ResourceVersion returns the API server's newest resource version.
func (e *Environment) ResourceVersion(ctx context.Context) (string, error) {
	var list echov1.EchoList
	err := e.Client.List(ctx, &list, client.InNamespace(e.Subject), client.Limit(1))
	return list.ResourceVersion, err
}

// AllowCreation allows the operator to create the child of the Echo once more.
func (e *Environment) AllowCreation(kind children.Kind, echo string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.allowed.Allow(kind, echo)
}

// AllowWrites allows the operators so many writes in addition to the bound of Verify.
func (e *Environment) AllowWrites(count int) { e.allowedWrites += count }

// allowCreations allows the operator to create each child of the Echo once more.
func (e *Environment) allowCreations(echo string) {
	for _, kind := range children.Kinds {
		e.AllowCreation(kind, echo)
	}
}

// Measurement is how long something took.
type Measurement struct {
	// Name says what was measured.
	Name string `json:"name"`
	// Seconds is how long it took, Limit how long it may take.
	Seconds float64 `json:"seconds"`
	Limit   float64 `json:"limit"`
}

// Measure records how long something took, and fails if it took longer than its limit.
func (e *Environment) Measure(name string, took, limit time.Duration) error {
	e.measurements = append(e.measurements, Measurement{Name: name, Seconds: took.Seconds(), Limit: limit.Seconds()})
	return oracle.CheckDuration(name, took, limit)
}

// clearTimeout is enough for hundreds of objects on a busy machine.
const clearTimeout = 3 * time.Minute

// Clear deletes all Echoes and children in a namespace.
func (h *Harness) Clear(ctx context.Context, namespace string) error {
	return wait.PollUntilContextTimeout(ctx, pollInterval, clearTimeout, true, func(ctx context.Context) (bool, error) {
		objects, err := h.Objects(ctx, kinds.Lists(), namespace)
		if err != nil {
			return false, err
		}
		for _, object := range objects {
			if err := h.delete(ctx, object); err != nil {
				return false, fmt.Errorf("delete %s %s: %w", kinds.Of(object), object.GetName(), err)
			}
		}
		return len(objects) == 0, nil
	})
}

// delete deletes an object, with the finalizers that a cancelled scenario left on it.
func (h *Harness) delete(ctx context.Context, object client.Object) error {
	if len(object.GetFinalizers()) > 0 {
		err := h.Client.Patch(ctx, object, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))
		if client.IgnoreNotFound(err) != nil {
			return err
		}
	}
	return client.IgnoreNotFound(h.Client.Delete(ctx, object, client.PropagationPolicy(metav1.DeletePropagationBackground)))
}

// Objects returns all objects of the lists in a namespace.
func (h *Harness) Objects(ctx context.Context, lists []client.ObjectList, namespace string) (all []client.Object, err error) {
	for _, list := range lists {
		if err := h.Client.List(ctx, list, client.InNamespace(namespace)); err != nil {
			return nil, err
		}
		items, err := kinds.Items(list)
		if err != nil {
			return nil, err
		}
		all = append(all, items...)
	}
	return all, nil
}
