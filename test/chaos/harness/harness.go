// Package harness runs scenarios: it starts a control plane, gives each scenario an environment
// with an operator behind a fault proxy, and has the oracle evaluate what the operator did.
package harness

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kkloud-io/echo-operator/internal/testing/controlplane"
	"github.com/kkloud-io/echo-operator/test/chaos/proxy"
)

// OperatorUser is the user of the operators. It has the permissions of their role.
const OperatorUser = "operator"

const (
	// SteadyPeriod is how long a converged operator must make no writes.
	SteadyPeriod = 1500 * time.Millisecond

	// ConvergenceTimeout is the guarantee: the operator converges so long after the last fault.
	ConvergenceTimeout = time.Minute

	pollInterval = 100 * time.Millisecond
)

// Harness is what all scenarios share.
type Harness struct {
	// Client acts as the administrator.
	Client client.WithWatch
	// Plane is the control plane.
	Plane *controlplane.ControlPlane
	// Root is the root directory of the project.
	Root string
	// Program is the operator's executable.
	Program string
	// Directory is where logs are written.
	Directory string
	// Convergence is how long after the last fault the operator has to converge.
	Convergence time.Duration

	user *rest.Config
	// controlOperator reconciles the control namespaces. It sees no faults.
	controlOperator   *controlplane.Operator
	controlProxy      *proxy.Proxy
	controlNamespaces []string
}

// Start starts the control plane and the control operator.
func Start(ctx context.Context, root, directory string) (*Harness, error) {
	bin, err := filepath.Abs(filepath.Join(root, "bin"))
	if err != nil {
		return nil, err
	}
	fmt.Println("Starting etcd, kube-apiserver and kube-controller-manager ...")
	crds, err := controlplane.GatewayCRDs(root, "httproutes")
	if err != nil {
		return nil, err
	}
	plane, err := controlplane.Start(ctx, controlplane.Options{Root: root, Bin: bin, Logs: directory, CRDs: crds})
	if err != nil {
		return nil, err
	}
	plane.StartGateways(ctx)
	h := &Harness{
		Plane: plane, Client: plane.Client, Root: root, Program: filepath.Join(bin, "manager"), Directory: directory,
		Convergence: ConvergenceTimeout,
	}
	if err := h.setUp(ctx); err != nil {
		return nil, errors.Join(err, h.Stop(ctx))
	}
	return h, nil
}

// setUp creates the user and the namespaces, and starts the control operator.
func (h *Harness) setUp(ctx context.Context) (err error) {
	if h.user, err = h.Plane.AddUser(ctx, OperatorUser, filepath.Join(h.Root, "config", "rbac", "role.yaml")); err != nil {
		return err
	}
	for i := range workers {
		h.controlNamespaces = append(h.controlNamespaces, controlNamespace(i))
		for _, name := range []string{subjectNamespace(i), controlNamespace(i)} {
			if err := h.Client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
				Name: name, Labels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted"},
			}}); err != nil {
				return err
			}
		}
	}
	if h.controlProxy, err = proxy.New(h.user); err != nil {
		return err
	}
	return h.RestartControlOperator()
}

// KillControlOperator kills the control operator, until RestartControlOperator.
func (h *Harness) KillControlOperator() { h.controlOperator.Kill() }

// RestartControlOperator starts the control operator, and kills it first if it runs.
func (h *Harness) RestartControlOperator() (err error) {
	if h.controlOperator != nil {
		h.controlOperator.Kill()
	}
	h.controlOperator, err = h.startOperator(h.Program, h.controlProxy.Config(), h.controlNamespaces)
	return err
}

// Stop stops everything.
func (h *Harness) Stop(ctx context.Context) error {
	if h.controlOperator != nil {
		h.controlOperator.Kill()
	}
	if h.controlProxy != nil {
		h.controlProxy.Close()
	}
	return h.Plane.Stop(ctx)
}

// startOperator runs the program with a client configuration. Without namespaces it watches all. It keeps its
// lease in the first of them.
func (h *Harness) startOperator(program string, config *rest.Config, namespaces []string, args ...string) (*controlplane.Operator, error) {
	return controlplane.StartOperator(controlplane.OperatorOptions{
		Program:   program,
		Directory: h.Directory,
		Config:    config,
		Watched:   namespaces,
		Namespace: append(slices.Clone(namespaces), metav1.NamespaceDefault)[0],
		Args:      append([]string{"--metrics-bind-address=0", "--allow-every-node-verification"}, args...),
	})
}

func subjectNamespace(i int) string { return fmt.Sprintf("subject-%d", i) }
func controlNamespace(i int) string { return fmt.Sprintf("control-%d", i) }

func writesIn(p *proxy.Proxy, namespace string) (count int) {
	for _, write := range p.Writes() {
		if write.Namespace == namespace {
			count++
		}
	}
	return count
}

// Pause waits for a duration, or until the context is done.
func Pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
