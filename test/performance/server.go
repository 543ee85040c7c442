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
	"github.com/kkloud-io/echo-operator/internal/testing/controlplane"
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

// awaitAll waits until every Echo of the namespace is as it has to be. It looks at them only when
// the API server was asked nothing for a moment: to list thousands, again and again, would load
// what is measured.
func (s *server) awaitAll(ctx context.Context, namespace string, operator *controlplane.Operator, is func(*echov1.Echo) bool) error {
	ctx, stop := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("not every Echo was as it has to be within %s", timeout))
	defer stop()
	for {
		if err := s.awaitSilence(ctx, operator); err != nil {
			return errors.Join(err, context.Cause(ctx))
		}
		var echoes echov1.EchoList
		if err := s.plane.Client.List(ctx, &echoes, client.InNamespace(namespace)); err != nil {
			return err
		}
		if !slices.ContainsFunc(echoes.Items, func(echo echov1.Echo) bool { return !is(&echo) }) {
			return nil
		}
	}
}

// awaitSilence waits until the audit log has not grown for half a second, or the operator has
// failed.
func (s *server) awaitSilence(ctx context.Context, operator *controlplane.Operator) error {
	var size int64
	var grown time.Time
	return wait.PollUntilContextCancel(ctx, 50*time.Millisecond, true, func(context.Context) (bool, error) {
		if operator != nil {
			if err := operator.Failed(); err != nil {
				return false, err
			}
		}
		log, err := os.Stat(string(s.audit))
		if err != nil {
			return false, err
		}
		if log.Size() != size {
			size, grown = log.Size(), time.Now()
		}
		return time.Since(grown) > 500*time.Millisecond, nil
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
