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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/test/controlplane"
)

// Who asks, in the audit log.
const (
	operatorUser = "operator"
	ceilingUser  = "ceiling"
)

// timeout ends a measurement that does not come to an end.
const timeout = 10 * time.Minute

// server is an API server on which something is measured.
type server struct {
	plane     *controlplane.ControlPlane
	audit     controlplane.AuditLog
	program   string
	directory string
	operator  *rest.Config
	ceiling   client.Client
	// bare means that there are no controllers and no pods.
	bare bool

	namespaces int
}

// startServer starts one: bare, or with controllers and pods that become ready.
func startServer(ctx context.Context, root string, bare bool) (*server, error) {
	directory, err := os.MkdirTemp("", "bench-")
	if err != nil {
		return nil, err
	}
	bin, err := filepath.Abs(filepath.Join(root, "bin"))
	if err != nil {
		return nil, err
	}
	s := &server{bare: bare, directory: directory, program: filepath.Join(bin, "manager"), audit: controlplane.AuditLog(filepath.Join(directory, "audit.log"))}
	if s.plane, err = controlplane.Start(ctx, controlplane.Options{Root: root, Bin: bin, Logs: directory, AuditLog: s.audit, Bare: bare}); err != nil {
		return nil, err
	}
	if err := s.addUsers(ctx, root); err != nil {
		return nil, errors.Join(err, s.stop(ctx))
	}
	return s, nil
}

// addUsers makes the operator, which has its own rights, and the plain client.
func (s *server) addUsers(ctx context.Context, root string) (err error) {
	roles := filepath.Join(root, "config", "rbac")
	role := filepath.Join(roles, "role.yaml")
	if s.operator, err = s.plane.AddUser(ctx, operatorUser, role, filepath.Join(roles, "metrics_auth_role.yaml")); err != nil {
		return err
	}
	config, err := s.plane.AddUser(ctx, ceilingUser, role)
	if err != nil {
		return err
	}
	s.ceiling, err = client.New(config, client.Options{Scheme: s.plane.Client.Scheme()})
	return err
}

func (s *server) stop(ctx context.Context) error {
	return errors.Join(s.plane.Stop(ctx), os.RemoveAll(s.directory))
}

// start starts the operator for one namespace. It serves no metrics, unless the flags say so.
func (s *server) start(namespace string, args ...string) (*controlplane.Operator, error) {
	return controlplane.StartOperator(controlplane.OperatorOptions{
		Program: s.program, Directory: s.directory, Config: s.operator,
		Watched: []string{namespace}, Namespace: metav1.NamespaceDefault,
		Args: append([]string{"--metrics-bind-address=0"}, args...),
	})
}

// newNamespace makes an empty one.
func (s *server) newNamespace(ctx context.Context) (string, error) {
	s.namespaces++
	name := fmt.Sprint("bench-", s.namespaces)
	return name, s.plane.Client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
}

// writers is how many write at a time where it does not count.
const writers = 32

// each does something for each number below n, some at a time.
func each(ctx context.Context, n, atATime int, do func(ctx context.Context, i int) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(atATime)
	for i := range n {
		group.Go(func() error { return do(ctx, i) })
	}
	return group.Wait()
}

// replicas of every Echo: two, so that it has every child that there is.
const replicas = 2

// populate makes n Echoes in a namespace.
func (s *server) populate(ctx context.Context, namespace string, n int) ([]*echov1.Echo, error) {
	echoes := make([]*echov1.Echo, n)
	return echoes, each(ctx, n, writers, func(ctx context.Context, i int) error {
		echoes[i] = &echov1.Echo{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprint("e", i)},
			Spec:       echov1.EchoSpec{Message: "hello", Replicas: replicas},
		}
		return s.plane.Client.Create(ctx, echoes[i])
	})
}

// newEchoes makes n Echoes in a namespace of their own.
func (s *server) newEchoes(ctx context.Context, n int) (namespace string, echoes []*echov1.Echo, err error) {
	if namespace, err = s.newNamespace(ctx); err != nil {
		return namespace, nil, err
	}
	echoes, err = s.populate(ctx, namespace, n)
	return namespace, echoes, err
}

// startOn starts the operator on n new Echoes, and waits until they have converged.
func (s *server) startOn(ctx context.Context, n int, args ...string) (namespace string, echoes []*echov1.Echo, operator *controlplane.Operator, err error) {
	if namespace, echoes, err = s.newEchoes(ctx, n); err != nil {
		return namespace, echoes, nil, err
	}
	if operator, err = s.start(namespace, args...); err != nil {
		return namespace, echoes, nil, err
	}
	if err = s.awaitAll(ctx, namespace, operator, isObserved); err != nil {
		return namespace, echoes, nil, errors.Join(err, operator.Terminate())
	}
	return namespace, echoes, operator, nil
}

// edit changes all of them.
func (s *server) edit(ctx context.Context, echoes []*echov1.Echo, change func(*echov1.EchoSpec)) error {
	return each(ctx, len(echoes), writers, func(ctx context.Context, i int) error {
		if err := s.plane.Client.Get(ctx, client.ObjectKeyFromObject(echoes[i]), echoes[i]); err != nil {
			return err
		}
		change(&echoes[i].Spec)
		return s.plane.Client.Update(ctx, echoes[i])
	})
}

// awaitAll waits until every Echo of the namespace is as it has to be. It looks at one Echo at a
// time, the last of those that are not: to list thousands would load the API server that is
// measured.
func (s *server) awaitAll(ctx context.Context, namespace string, operator *controlplane.Operator, is func(*echov1.Echo) bool) error {
	last, err := s.lastThatIsNot(ctx, namespace, is)
	for err == nil && last != nil {
		if err = s.await(ctx, last, operator, is); err != nil {
			return fmt.Errorf("wait for Echo %s: %w", last.Name, err)
		}
		last, err = s.lastThatIsNot(ctx, namespace, is)
	}
	return err
}

// lastThatIsNot finds the last Echo of the namespace that is not as it has to be, or none.
func (s *server) lastThatIsNot(ctx context.Context, namespace string, is func(*echov1.Echo) bool) (*echov1.Echo, error) {
	var echoes echov1.EchoList
	if err := s.plane.Client.List(ctx, &echoes, client.InNamespace(namespace)); err != nil {
		return nil, err
	}
	for _, echo := range slices.Backward(echoes.Items) {
		if !is(&echo) {
			return &echo, nil
		}
	}
	return nil, nil
}

// await waits until the Echo is as it has to be, or the operator has failed.
func (s *server) await(ctx context.Context, echo *echov1.Echo, operator *controlplane.Operator, is func(*echov1.Echo) bool) error {
	return wait.PollUntilContextTimeout(ctx, 500*time.Millisecond, timeout, true, func(ctx context.Context) (bool, error) {
		if operator != nil {
			if err := operator.Failed(); err != nil {
				return false, err
			}
		}
		err := s.plane.Client.Get(ctx, client.ObjectKeyFromObject(echo), echo)
		return err == nil && is(echo), err
	})
}

// isObserved tells whether the status speaks of the newest spec.
func isObserved(echo *echov1.Echo) bool { return echo.Status.ObservedGeneration == echo.Generation }

// clear deletes what is in the namespace, as no garbage collector does. The API server cuts off
// what takes longer than a minute; the next try goes on.
func (s *server) clear(ctx context.Context, namespace string) error {
	always := func(error) bool { return true }
	for _, object := range append(kinds(), &echov1.Echo{}) {
		if err := retry.OnError(retry.DefaultBackoff, always, func() error {
			return s.plane.Client.DeleteAllOf(ctx, object, client.InNamespace(namespace))
		}); err != nil {
			return err
		}
	}
	return nil
}
