// Package controlplane runs a real etcd, kube-apiserver and kube-controller-manager on this
// machine, and simulates the kubelet, because there are no nodes.
package controlplane

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/yaml"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
)

// controllers lists the controllers on which Echoes depend.
var controllers = []string{
	"deployment-controller", "replicaset-controller", "daemonset-controller", "garbage-collector-controller",
	"namespace-controller", "resourcequota-controller", "disruption-controller",
}

// ControlPlane is a running control plane.
type ControlPlane struct {
	// Config connects as the administrator.
	Config *rest.Config
	// Client acts as the administrator. Its scheme includes Echoes.
	Client client.WithWatch

	options     Options
	environment *envtest.Environment
	// stopClients stops the controller manager and the simulated kubelet.
	stopClients func() error
}

// stopTimeout is how long a program may take to stop before it is killed. An API server with
// open watches would take a minute.
const stopTimeout = 2 * time.Second

// startTimeout is how long a program may take to start on a busy or an emulated machine.
const startTimeout = 10 * time.Minute

// Options configure a control plane.
type Options struct {
	// Root is the root directory of the project, which contains the CRD.
	Root string
	// Bin is the directory of the programs.
	Bin string
	// Logs is the directory for logs and keys.
	Logs string
	// AuditLog is the file for the audit log. Empty disables it.
	AuditLog AuditLog
	// CRDs are installed in addition to that of Echoes.
	CRDs []*apiextensionsv1.CustomResourceDefinition
	// Bare runs no controllers and no simulated kubelet, so only the tests write.
	Bare bool
}

// Scheme returns a scheme with the types of Kubernetes, of the Gateway API and Echo.
func Scheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	utilruntime.Must(errors.Join(clientgoscheme.AddToScheme(scheme), echov1.AddToScheme(scheme), gatewayv1.Install(scheme)))
	return scheme
}

// Start starts a control plane. Unless Options.Bare is set, StartKubelet reports on its pods.
func Start(ctx context.Context, o Options) (*ControlPlane, error) {
	scheme := Scheme()
	c := &ControlPlane{options: o, environment: &envtest.Environment{
		UseExistingCluster:       new(false), // Not even where the variable of that name is true.
		Scheme:                   scheme,
		CRDDirectoryPaths:        []string{filepath.Join(o.Root, "config", "crd", "bases")},
		ErrorIfCRDPathMissing:    true,
		CRDs:                     o.CRDs,
		CRDInstallOptions:        envtest.CRDInstallOptions{MaxTime: startTimeout},
		BinaryAssetsDirectory:    o.Bin,
		ControlPlaneStartTimeout: startTimeout, ControlPlaneStopTimeout: stopTimeout,
	}}
	server := c.environment.ControlPlane.GetAPIServer()
	// With a fixed directory, the API server keeps its keys when it is restarted.
	server.CertDir = filepath.Join(o.Logs, "kube-apiserver")
	if err := os.MkdirAll(server.CertDir, 0o700); err != nil {
		return nil, err
	}
	server.Configure().
		Append("advertise-address", "192.0.2.1"). // Its default is an address with a default route, which a machine without a network lacks.
		Append("service-cluster-ip-range", "10.0.0.0/16").
		Append("delete-collection-workers", "8"). // Tests delete thousands of Echoes.
		Append("enable-admission-plugins", "OwnerReferencesPermissionEnforcement")
	c.environment.ControlPlane.Etcd = &envtest.Etcd{}
	// The default of 2 GiB is too little for several scenarios with hundreds of objects of 0.9 MB.
	c.environment.ControlPlane.Etcd.Configure().Append("quota-backend-bytes", "8589934592")
	if o.AuditLog != "" {
		policy := filepath.Join(o.Logs, "audit-policy.yaml")
		if err := os.WriteFile(policy, []byte(auditPolicy), 0o600); err != nil {
			return nil, err
		}
		server.Configure().Append("audit-policy-file", policy).Append("audit-log-path", string(o.AuditLog)).
			Append("audit-log-maxsize", "100000") // In MiB. AuditLog does not read rotated files.
	}
	var err error
	if c.Config, err = c.environment.Start(); err != nil {
		return nil, fmt.Errorf("start etcd and kube-apiserver: %w", err)
	}
	c.Config.QPS = -1
	if c.Client, err = client.NewWithWatch(c.Config, client.Options{Scheme: scheme}); err != nil {
		return nil, errors.Join(err, c.Stop(ctx))
	}
	if o.Bare {
		return c, nil
	}
	if err := errors.Join(addNodes(ctx, c.Client), c.startClients(ctx)); err != nil {
		return nil, errors.Join(err, c.Stop(ctx))
	}
	return c, nil
}

// startClients starts the controller manager and the simulated kubelet.
func (c *ControlPlane) startClients(ctx context.Context) error {
	manager, err := c.startControllerManager()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx)) // They run until Stop.
	c.stopClients = func() error {
		cancel()
		err := manager.Process.Kill()
		_ = manager.Wait() // The error is that it was killed.
		return err
	}
	return StartKubelet(ctx, c.Config, c.Client.Scheme())
}

func (c *ControlPlane) startControllerManager() (*exec.Cmd, error) {
	kubeconfig := filepath.Join(c.options.Logs, "kube-controller-manager.kubeconfig")
	if err := os.WriteFile(kubeconfig, c.environment.KubeConfig, 0o600); err != nil {
		return nil, err
	}
	port, err := FreePort()
	if err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(c.options.Logs, "kube-controller-manager.log"))
	if err != nil {
		return nil, err
	}
	program := filepath.Join(c.options.Bin, "kube-controller-manager")
	arguments := []string{
		"--kubeconfig=" + kubeconfig, "--leader-elect=false", "--use-service-account-credentials=false",
		"--bind-address=127.0.0.1", "--secure-port=" + port, "--cert-dir=" + c.options.Logs,
		"--kube-api-qps=500", "--kube-api-burst=500",
		// Hundreds of Deployments and DaemonSets roll out when the API server is available again.
		"--concurrent-deployment-syncs=20", "--concurrent-replicaset-syncs=20",
		"--controllers=" + strings.Join(controllers, ","),
	}
	const syncs = "--concurrent-daemonset-syncs"          // Kubernetes 1.30 has no such flag.
	help, err := exec.Command(program, "--help").Output() //nolint:gosec // The caller chose the programs.
	if err != nil {
		return nil, err
	}
	if strings.Contains(string(help), syncs) {
		arguments = append(arguments, syncs+"=20")
	}
	manager := exec.Command(program, arguments...) //nolint:gosec // The caller chose the programs.
	manager.Stdout, manager.Stderr = log, log
	return manager, errors.Join(manager.Start(), log.Close())
}

// FreePort returns an unused TCP port of the loopback interface.
func FreePort() (string, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	_, port, err := net.SplitHostPort(listener.Addr().String())
	return port, errors.Join(err, listener.Close())
}

// AddUser adds a user who has exactly the permissions of the ClusterRoles in the files.
func (c *ControlPlane) AddUser(ctx context.Context, name string, roleFiles ...string) (*rest.Config, error) {
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for _, roleFile := range roleFiles {
		text, err := os.ReadFile(roleFile) //nolint:gosec // The caller chose the file.
		if err != nil {
			return nil, err
		}
		var file rbacv1.ClusterRole
		if err := yaml.UnmarshalStrict(text, &file); err != nil {
			return nil, fmt.Errorf("read %s: %w", roleFile, err)
		}
		role.Rules = append(role.Rules, file.Rules...)
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name}},
	}
	if err := errors.Join(c.Client.Create(ctx, role), c.Client.Create(ctx, binding)); err != nil {
		return nil, err
	}
	return c.AddUnprivilegedUser(name)
}

// AddUnprivilegedUser adds a user without permissions. Like a service account, it shares the API
// server with the group of service accounts: the share of other users is a fifth of that.
func (c *ControlPlane) AddUnprivilegedUser(name string) (*rest.Config, error) {
	user, err := c.environment.AddUser(envtest.User{Name: name, Groups: []string{"system:serviceaccounts"}}, c.Config)
	if err != nil {
		return nil, err
	}
	config := user.Config()
	config.QPS = -1
	return config, nil
}

// StopAPIServer stops the API server. etcd keeps its data.
func (c *ControlPlane) StopAPIServer(ctx context.Context) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, 10*time.Second, true, func(context.Context) (bool, error) {
		last = c.environment.ControlPlane.GetAPIServer().Stop() // Stop kills it after stopTimeout.
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("stop kube-apiserver: %w", errors.Join(err, last))
	}
	return nil
}

// StartAPIServer starts the API server again, at the same address. It restarts the controller
// manager and the simulated kubelet, which would take up to a minute to reconnect.
func (c *ControlPlane) StartAPIServer(ctx context.Context) error {
	if err := errors.Join(c.stopClients(), c.environment.ControlPlane.GetAPIServer().Start()); err != nil {
		return fmt.Errorf("start kube-apiserver again: %w", err)
	}
	return c.startClients(ctx)
}

// Stop stops all programs, even if the context is done.
func (c *ControlPlane) Stop(ctx context.Context) error {
	var err error
	if c.stopClients != nil {
		err = c.stopClients()
	}
	return errors.Join(err, c.StopAPIServer(context.WithoutCancel(ctx)), c.environment.Stop())
}
