// Package controlplane runs a real etcd, kube-apiserver and kube-controller-manager on this
// machine, and stands in for the only part of a cluster that is missing then, the nodes.
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
	"k8s.io/apimachinery/pkg/util/wait"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/yaml"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
)

// controllers are those on which Echoes depend.
var controllers = []string{
	"deployment-controller", "replicaset-controller", "garbage-collector-controller",
	"namespace-controller", "resourcequota-controller", "disruption-controller",
}

// ControlPlane is a running one.
type ControlPlane struct {
	// Config is the administrator's.
	Config *rest.Config
	// Client is the administrator's; it knows Echoes.
	Client client.WithWatch

	options     Options
	environment *envtest.Environment
	// stopOthers ends what works beside the API server.
	stopOthers func() error
}

// stopTimeout is how long a program may take to stop before it is killed: an API server with
// open watches would take a minute.
const stopTimeout = 2 * time.Second

// Options say what a control plane is made of.
type Options struct {
	// Root is the directory of the tree that has the CRD of Echoes.
	Root string
	// Bin is the directory of its programs.
	Bin string
	// Logs is the directory for its logs and keys.
	Logs string
	// AuditLog is where the API server keeps one; nowhere where it is empty.
	AuditLog AuditLog
	// CRDs are those beside that of Echoes.
	CRDs []*apiextensionsv1.CustomResourceDefinition
	// Bare leaves controllers and pods out: nobody writes but the tests.
	Bare bool
}

// Start starts one that reports pods as StartKubelet does.
func Start(ctx context.Context, o Options) (*ControlPlane, error) {
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), echov1.AddToScheme(scheme)); err != nil {
		return nil, err
	}
	c := &ControlPlane{options: o, environment: &envtest.Environment{
		Scheme:                  scheme,
		CRDDirectoryPaths:       []string{filepath.Join(o.Root, "config", "crd", "bases")},
		ErrorIfCRDPathMissing:   true,
		CRDs:                    o.CRDs,
		BinaryAssetsDirectory:   o.Bin,
		ControlPlaneStopTimeout: stopTimeout,
	}}
	server := c.environment.ControlPlane.GetAPIServer()
	// A directory of its own lets it be stopped and started again as the same one.
	server.CertDir = filepath.Join(o.Logs, "kube-apiserver")
	if err := os.MkdirAll(server.CertDir, 0o700); err != nil {
		return nil, err
	}
	server.Configure().
		Append("service-cluster-ip-range", "10.0.0.0/16").
		Append("delete-collection-workers", "8"). // To clear up after thousands of Echoes.
		Append("enable-admission-plugins", "OwnerReferencesPermissionEnforcement")
	if o.AuditLog != "" {
		policy := filepath.Join(o.Logs, "audit-policy.yaml")
		if err := os.WriteFile(policy, []byte(auditPolicy), 0o600); err != nil {
			return nil, err
		}
		server.Configure().Append("audit-policy-file", policy).Append("audit-log-path", string(o.AuditLog)).
			Append("audit-log-maxsize", "100000") // In MiB: nobody looks for a second file.
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
	if err := c.startOthers(ctx); err != nil {
		return nil, errors.Join(err, c.Stop(ctx))
	}
	return c, nil
}

// startOthers starts what works beside the API server: controllers and the kubelet.
func (c *ControlPlane) startOthers(ctx context.Context) error {
	manager, err := c.startControllerManager()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx)) // They go on until Stop.
	c.stopOthers = func() error {
		cancel()
		err := manager.Process.Kill()
		_ = manager.Wait() // It was killed.
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
	manager := exec.Command(filepath.Join(c.options.Bin, "kube-controller-manager"), //nolint:gosec // The caller chose the programs.
		"--kubeconfig="+kubeconfig, "--leader-elect=false", "--use-service-account-credentials=false",
		"--bind-address=127.0.0.1", "--secure-port="+port, "--cert-dir="+c.options.Logs,
		"--kube-api-qps=500", "--kube-api-burst=500",
		// As many as have something to roll out when the API server is back.
		"--concurrent-deployment-syncs=20", "--concurrent-replicaset-syncs=20",
		"--controllers="+strings.Join(controllers, ","))
	manager.Stdout, manager.Stderr = log, log
	return manager, errors.Join(manager.Start(), log.Close())
}

// FreePort returns a TCP port of the loopback interface that nobody listens on.
func FreePort() (string, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	_, port, err := net.SplitHostPort(listener.Addr().String())
	return port, errors.Join(err, listener.Close())
}

// AddUser makes a user who has the rights of the ClusterRoles in the files, and no others.
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
	return c.AddStranger(name)
}

// AddStranger makes a user who has no rights.
func (c *ControlPlane) AddStranger(name string) (*rest.Config, error) {
	user, err := c.environment.AddUser(envtest.User{Name: name}, c.Config)
	if err != nil {
		return nil, err
	}
	config := user.Config()
	config.QPS = -1
	return config, nil
}

// StopAPIServer ends the API server; etcd keeps what it knows.
func (c *ControlPlane) StopAPIServer(ctx context.Context) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, 10*time.Second, true, func(context.Context) (bool, error) {
		last = c.environment.ControlPlane.GetAPIServer().Stop() // It is killed where it does not stop in time.
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("stop kube-apiserver: %w", errors.Join(err, last))
	}
	return nil
}

// StartAPIServer brings it back, at the same address. The controllers and the kubelet start
// anew: they would take up to a minute to notice.
func (c *ControlPlane) StartAPIServer(ctx context.Context) error {
	if err := errors.Join(c.stopOthers(), c.environment.ControlPlane.GetAPIServer().Start()); err != nil {
		return fmt.Errorf("start kube-apiserver again: %w", err)
	}
	return c.startOthers(ctx)
}

// Stop ends everything, also when the context has ended.
func (c *ControlPlane) Stop(ctx context.Context) error {
	var err error
	if c.stopOthers != nil {
		err = c.stopOthers()
	}
	return errors.Join(err, c.StopAPIServer(context.WithoutCancel(ctx)), c.environment.Stop())
}
