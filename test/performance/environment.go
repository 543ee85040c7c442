package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/children"
	"github.com/kkloud-io/echo-operator/internal/testing/controlplane"
)

// The users in the audit log.
const (
	operatorUser = "operator"
	baselineUser = "baseline-client"
)

// timeout bounds every wait of the benchmark.
const timeout = 10 * time.Minute

// environment is an API server with the operator and the baseline client as its users.
type environment struct {
	controlPlane   *controlplane.ControlPlane
	audit          controlplane.AuditLog
	program        string
	directory      string
	operatorConfig *rest.Config
	baselineClient client.Client
	namespaces     int
}

// startEnvironment starts etcd and kube-apiserver, and kube-controller-manager and a kubelet that
// reports pods as ready unless bare is set.
func startEnvironment(ctx context.Context, root string, bare bool) (*environment, error) {
	progress("Starting etcd and kube-apiserver ...")
	directory, err := os.MkdirTemp("", "performance-")
	if err != nil {
		return nil, err
	}
	bin, err := filepath.Abs(filepath.Join(root, "bin"))
	if err != nil {
		return nil, err
	}
	e := &environment{directory: directory, program: filepath.Join(bin, "manager"), audit: controlplane.AuditLog(filepath.Join(directory, "audit.log"))}
	if e.controlPlane, err = controlplane.Start(ctx, controlplane.Options{Root: root, Bin: bin, Logs: directory, AuditLog: e.audit, Bare: bare}); err != nil {
		return nil, err
	}
	if err := e.addUsers(ctx, filepath.Join(root, "config", "rbac")); err != nil {
		return nil, errors.Join(err, e.stop(ctx))
	}
	return e, nil
}

// addUsers creates the users of the operator and of the baseline client, with the permissions of
// the operator's ClusterRole.
func (e *environment) addUsers(ctx context.Context, roles string) (err error) {
	role := filepath.Join(roles, "role.yaml")
	if e.operatorConfig, err = e.controlPlane.AddUser(ctx, operatorUser, role, filepath.Join(roles, "metrics_auth_role.yaml")); err != nil {
		return err
	}
	config, err := e.controlPlane.AddUser(ctx, baselineUser, role)
	if err != nil {
		return err
	}
	if e.baselineClient, err = client.New(config, client.Options{Scheme: e.controlPlane.Client.Scheme()}); err != nil {
		return err
	}
	// The baseline client updates children, which the operator patches. A bare API server does not
	// aggregate the role edit.
	return e.bind(ctx, baselineUser+"-edits", "system:aggregate-to-edit",
		rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: baselineUser})
}

// bind gives a subject the permissions of a ClusterRole.
func (e *environment) bind(ctx context.Context, name, role string, subject rbacv1.Subject) error {
	return e.controlPlane.Client.Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects:   []rbacv1.Subject{subject},
	})
}

func (e *environment) stop(ctx context.Context) error {
	return errors.Join(e.controlPlane.Stop(ctx), os.RemoveAll(e.directory))
}

// startOperator starts the operator for one namespace. It serves metrics only if args say so.
func (e *environment) startOperator(namespace string, args ...string) (*controlplane.Operator, error) {
	return controlplane.StartOperator(controlplane.OperatorOptions{
		Program: e.program, Directory: e.directory, Config: e.operatorConfig,
		Watched: []string{namespace}, Namespace: metav1.NamespaceDefault,
		Args: append([]string{"--metrics-bind-address=0"}, args...),
	})
}

func (e *environment) createNamespace(ctx context.Context) (string, error) {
	e.namespaces++
	name := fmt.Sprint("performance-", e.namespaces)
	return name, e.controlPlane.Client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
}

// setupConcurrency is the number of concurrent requests outside of measured intervals.
const setupConcurrency = 32

// forEach calls do for each number below n.
func forEach(ctx context.Context, n, concurrency int, do func(ctx context.Context, i int) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(concurrency)
	for i := range n {
		group.Go(func() error { return do(ctx, i) })
	}
	return group.Wait()
}

// replicas of every Echo: with two, an Echo has a child of every kind.
const replicas = 2

func newEcho(namespace, name string) *echov1.Echo {
	return &echov1.Echo{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       echov1.EchoSpec{Message: "hello", Replicas: replicas},
	}
}

// createEchoes creates n Echoes in a namespace.
func (e *environment) createEchoes(ctx context.Context, namespace string, n int) ([]*echov1.Echo, error) {
	echoes := make([]*echov1.Echo, n)
	return echoes, forEach(ctx, n, setupConcurrency, func(ctx context.Context, i int) error {
		echoes[i] = newEcho(namespace, fmt.Sprint("e", i))
		return e.controlPlane.Client.Create(ctx, echoes[i])
	})
}

// createNamespaceWithEchoes creates n Echoes in a new namespace.
func (e *environment) createNamespaceWithEchoes(ctx context.Context, n int) (namespace string, echoes []*echov1.Echo, err error) {
	if namespace, err = e.createNamespace(ctx); err != nil {
		return namespace, nil, err
	}
	echoes, err = e.createEchoes(ctx, namespace, n)
	return namespace, echoes, err
}

// startOperatorOnNewEchoes starts the operator on n new Echoes, and waits until they have converged.
func (e *environment) startOperatorOnNewEchoes(ctx context.Context, n int, args ...string) (namespace string, echoes []*echov1.Echo, operator *controlplane.Operator, err error) {
	if namespace, echoes, err = e.createNamespaceWithEchoes(ctx, n); err != nil {
		return namespace, echoes, nil, err
	}
	if operator, err = e.startOperator(namespace, args...); err != nil {
		return namespace, echoes, nil, err
	}
	if err = e.awaitEchoes(ctx, namespace, operator, isConverged); err != nil {
		return namespace, echoes, nil, errors.Join(err, operator.Terminate())
	}
	return namespace, echoes, operator, nil
}

// editEchoes changes the spec of every Echo.
func (e *environment) editEchoes(ctx context.Context, echoes []*echov1.Echo, change func(*echov1.EchoSpec)) error {
	return forEach(ctx, len(echoes), setupConcurrency, func(ctx context.Context, i int) error {
		before := client.MergeFrom(echoes[i].DeepCopy())
		change(&echoes[i].Spec)
		return e.controlPlane.Client.Patch(ctx, echoes[i], before)
	})
}

// awaitEchoes waits until the condition holds for every Echo of the namespace. It lists Echoes
// only after the API server had no requests for a moment: repeated lists of thousands of Echoes
// would load the API server that is measured.
func (e *environment) awaitEchoes(ctx context.Context, namespace string, operator *controlplane.Operator, condition func(*echov1.Echo) bool) error {
	ctx, stop := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("not every Echo in namespace %s reached the expected state within %s", namespace, timeout))
	defer stop()
	for {
		if err := e.awaitNoRequests(ctx, operator); err != nil {
			return errors.Join(err, context.Cause(ctx))
		}
		var echoes echov1.EchoList
		if err := e.controlPlane.Client.List(ctx, &echoes, client.InNamespace(namespace)); err != nil {
			return err
		}
		if !slices.ContainsFunc(echoes.Items, func(echo echov1.Echo) bool { return !condition(&echo) }) {
			return nil
		}
	}
}

// awaitNoRequests waits until the audit log has not grown for half a second. It fails if the
// operator, which may be nil, exits.
func (e *environment) awaitNoRequests(ctx context.Context, operator *controlplane.Operator) error {
	var size int64
	var grown time.Time
	return wait.PollUntilContextCancel(ctx, 50*time.Millisecond, true, func(context.Context) (bool, error) {
		if operator != nil {
			if err := operator.Failed(); err != nil {
				return false, err
			}
		}
		log, err := os.Stat(string(e.audit))
		if err != nil {
			return false, err
		}
		if log.Size() != size {
			size, grown = log.Size(), time.Now()
		}
		return time.Since(grown) > 500*time.Millisecond, nil
	})
}

// isConverged reports whether the status is of the newest generation.
func isConverged(echo *echov1.Echo) bool { return echo.Status.ObservedGeneration == echo.Generation }

// deleteEchoes deletes the Echoes and children of a namespace; a bare API server has no garbage
// collector. The API server aborts requests that take longer than a minute, hence the retries.
func (e *environment) deleteEchoes(ctx context.Context, namespace string) error {
	var objects []client.Object
	for _, kind := range children.Kinds {
		if !kind.OptionalAPI {
			objects = append(objects, kind.New())
		}
	}
	always := func(error) bool { return true }
	for _, object := range append(objects, &echov1.Echo{}) {
		if err := retry.OnError(retry.DefaultBackoff, always, func() error {
			return e.controlPlane.Client.DeleteAllOf(ctx, object, client.InNamespace(namespace))
		}); err != nil {
			return err
		}
	}
	return nil
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
