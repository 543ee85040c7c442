package chaos

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/children"
	"github.com/kkloud-io/echo-operator/internal/testing/controlplane"
	"github.com/kkloud-io/echo-operator/test/internal/oracle"
)

var (
	root    = filepath.Join("..", "..")
	program = flag.String("program", filepath.Join(root, "bin", "manager"), "`file` of the operator")
)

// operatorUser is the user of the operators. It has the permissions of their role.
const operatorUser = "operator"

const (
	// convergenceLimit is the guarantee: the operator converges so long after the last fault.
	convergenceLimit = time.Minute
	// podsLimit is how long kube-controller-manager may take for the pods of many Echoes on a busy machine.
	podsLimit = 3 * time.Minute
	// steadyPeriod is how long an operator that has converged must make no writes. Those that were in progress then may end
	// within steadyLimit.
	steadyPeriod, steadyLimit = 1500 * time.Millisecond, 10 * time.Second
)

// Of all tests, which run one after the other.
var (
	plane          *controlplane.ControlPlane
	operatorConfig *rest.Config
	logs           string // Their directory.
)

func TestMain(m *testing.M) {
	flag.Parse()
	ctrl.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard()) // The kubelet's watches end with the API server.
	os.Exit(func() int {
		directory, err := os.MkdirTemp("", "chaos-")
		if err == nil {
			plane, err = start(directory)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "chaos:", err)
			return 1
		}
		code := m.Run()
		if err := plane.Stop(context.Background()); err != nil {
			fmt.Fprintln(os.Stderr, "chaos:", err)
			return 1
		}
		if code == 0 {
			_ = os.RemoveAll(directory) // It is temporary.
		} else {
			fmt.Println("logs:", directory)
		}
		return code
	}())
}

func start(directory string) (*controlplane.ControlPlane, error) {
	bin, err := filepath.Abs(filepath.Join(root, "bin"))
	if err != nil {
		return nil, err
	}
	crds, err := controlplane.GatewayCRDs(root, "httproutes")
	if err != nil {
		return nil, err
	}
	ctx := context.Background()
	p, err := controlplane.Start(ctx, controlplane.Options{Root: root, Bin: bin, Logs: directory, CRDs: crds})
	if err != nil {
		return nil, err
	}
	p.StartGateways(ctx)
	logs = directory
	operatorConfig, err = p.AddUser(ctx, operatorUser, filepath.Join(root, "config", "rbac", "role.yaml"))
	if err != nil {
		return nil, errors.Join(err, p.Stop(ctx))
	}
	return p, nil
}

// environment is that of one test: a namespace, and the operators in it.
type environment struct {
	*testing.T
	client    client.Client
	namespace string
	// neighbors are further namespaces that its operators watch.
	neighbors []string
	operators []*operator
}

// operator is a process of the operator behind a proxy.
type operator struct {
	*controlplane.Operator
	*proxy
}

// long skips what is not part of the core.
func long(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("not part of the core")
	}
}

func newEnvironment(t *testing.T) *environment {
	t.Helper()
	e := &environment{T: t, client: plane.Client}
	e.namespace = e.addNamespace()
	return e
}

// addNamespace adds a namespace, which is deleted after the test.
func (e *environment) addNamespace() string {
	e.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		GenerateName: "chaos-", Labels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted"},
	}}
	e.must(e.client.Create(e.Context(), namespace))
	e.Cleanup(func() {
		if err := e.client.Delete(context.Background(), namespace); err != nil {
			e.Error(err)
		}
	})
	return namespace.Name
}

// must fails the test if there is an error.
func (e *environment) must(errs ...error) {
	e.Helper()
	if err := errors.Join(errs...); err != nil {
		e.Fatal(err)
	}
}

// start starts an operator for the namespaces of the test, and waits until it watches them.
func (e *environment) start(args ...string) *operator {
	e.Helper()
	o := e.launch(args...)
	want := int64(len(children.WatchedKinds())+2) * int64(1+len(e.neighbors)) // Echoes and pods, too.
	e.await(convergenceLimit, "the operator watches all resources", func() error {
		if n := o.watches.Load(); n < want {
			return fmt.Errorf("%d of %d watches are open", n, want)
		}
		return o.Failed()
	})
	return o
}

// launch starts an operator without waiting for it.
func (e *environment) launch(args ...string) *operator {
	e.Helper()
	p, err := newProxy(operatorConfig)
	e.must(err)
	e.Cleanup(p.close) // After the operator was killed.
	o := &operator{proxy: p}
	e.run(o, p.config(), args...)
	return o
}

// run runs the process of an operator.
func (e *environment) run(o *operator, config *rest.Config, args ...string) {
	e.Helper()
	var err error
	o.Operator, err = controlplane.StartOperator(controlplane.OperatorOptions{
		Program: *program, Directory: logs, Config: config, Watched: append([]string{e.namespace}, e.neighbors...), Namespace: e.namespace,
		Args: append([]string{"--metrics-bind-address=0"}, args...),
	})
	e.must(err)
	process := o.Operator
	e.Cleanup(func() {
		if e.Failed() { // Its log gets the stacks of its goroutines.
			process.Signal(syscall.SIGQUIT)
			time.Sleep(time.Second)
		}
		process.Kill()
	})
	e.operators = append(e.operators, o)
}

// await waits until the check passes, unless an operator exits unexpectedly.
func (e *environment) await(limit time.Duration, what string, check func() error) {
	e.Helper()
	var last error
	err := wait.PollUntilContextTimeout(e.Context(), 100*time.Millisecond, limit, true, func(context.Context) (bool, error) {
		last = check()
		for _, o := range e.operators {
			if err := o.Failed(); err != nil {
				return false, err
			}
		}
		return last == nil, nil
	})
	if err != nil {
		e.Fatalf("%s: not true after %s: %v: %v", what, limit, err, last)
	}
}

// within measures how long it takes until a check passes, and reports an error if that is longer than the limit.
func (e *environment) within(since time.Time, limit time.Duration, what string, check func() error) {
	e.Helper()
	e.await(2*limit, what, check)
	took := time.Since(since)
	e.Logf("%s: %.1f s (at most %.0f s)", what, took.Seconds(), limit.Seconds())
	if took > limit {
		e.Errorf("%s: took %s, want at most %s", what, took, limit)
	}
}

// everyChild is the spec of an Echo with a child of each kind, except for its verifier.
func everyChild() echov1.EchoSpec {
	return echov1.EchoSpec{Message: "m", Replicas: 2, Route: &echov1.Route{
		ParentRefs: []echov1.ParentRef{{Name: "public"}}, Hostnames: []string{"a.example"},
	}}
}

func (e *environment) create(namespace, name string, spec echov1.EchoSpec) error {
	return e.client.Create(e.Context(), &echov1.Echo{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: spec})
}

func (e *environment) edit(name string, change func(*echov1.EchoSpec)) error {
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		echo := &echov1.Echo{}
		if err := e.client.Get(e.Context(), client.ObjectKey{Namespace: e.namespace, Name: name}, echo); err != nil {
			return err
		}
		change(&echo.Spec)
		return e.client.Update(e.Context(), echo)
	})
}

// each returns a check of every Echo of a namespace.
func (e *environment) each(namespace string, check func(*echov1.Echo) error) func() error {
	return func() error {
		var echoes echov1.EchoList
		if err := e.client.List(e.Context(), &echoes, client.InNamespace(namespace)); err != nil {
			return err
		}
		for i := range echoes.Items {
			if err := check(&echoes.Items[i]); err != nil {
				return err
			}
		}
		return nil
	}
}

func (e *environment) allReady() func() error { return e.each(e.namespace, oracle.CheckReady) }

// verify checks that the operator has converged, and makes no writes, also after a restart: every Echo is ready, and its children are
// as it declares them.
func (e *environment) verify(o *operator) {
	e.Helper()
	o.faults.Store(0.0)
	o.connect()
	asDeclared := func(echo *echov1.Echo) error {
		differences, err := oracle.Differences(echo, func(kind children.Kind, name string) (children.Object, error) {
			object := kind.New()
			err := e.client.Get(e.Context(), client.ObjectKey{Namespace: e.namespace, Name: name}, object.(client.Object)) //nolint:forcetypeassert // It is one.
			if err != nil {
				return nil, client.IgnoreNotFound(err)
			}
			return object, nil
		})
		if err == nil && len(differences) > 0 {
			err = fmt.Errorf("Echo %s: %v", echo.Name, differences)
		}
		return err
	}
	e.await(convergenceLimit, "the children are as the Echoes declare", e.each(e.namespace, asDeclared))
	e.await(podsLimit, "every Echo is ready", e.allReady())
	e.expectNoWrites(o)
	o.Kill()
	again := e.start()
	e.expectNoWrites(again)
	e.await(time.Second, "every Echo is ready after a restart", e.allReady())
}

func (e *environment) expectNoWrites(o *operator) {
	e.Helper()
	for deadline := time.Now().Add(steadyLimit); ; {
		before := len(o.written(0))
		time.Sleep(steadyPeriod)
		writes := o.written(before)
		e.must(o.Failed())
		if len(writes) == 0 {
			return
		}
		if time.Now().After(deadline) {
			e.Fatalf("the operator writes in steady state: %v", writes)
		}
	}
}
