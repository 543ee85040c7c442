package controlplane

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// ServerImage is the default server image of the operators under test.
const ServerImage = "docker.io/hashicorp/http-echo:1.0.0"

// VerifierImage is the image of verifiers of the operators under test.
const VerifierImage = "ghcr.io/kkloud-io/echo-operator-verifier:test"

// gracefulStop is how long an operator may take to stop after SIGTERM.
const gracefulStop = 15 * time.Second

// OperatorOptions configure an operator process.
type OperatorOptions struct {
	// Program is the operator's executable.
	Program string
	// Directory is where its kubeconfig and its log are written.
	Directory string
	// Config connects it to an API server. Of credentials, only a client certificate is used.
	Config *rest.Config
	// Watched lists the namespaces that it watches. Empty means all.
	Watched []string
	// Namespace is where it runs and keeps its lease.
	Namespace string
	// Args are additional command line arguments.
	Args []string
}

// Operator is a process of the real operator program.
type Operator struct {
	// Done is closed when the process has exited.
	Done chan struct{}
	// Log is its log file.
	Log string

	command *exec.Cmd
	// stopRequested is true after Kill or Terminate.
	stopRequested atomic.Bool
}

// started counts operators, so that each has its own log.
var started atomic.Int64

// StartOperator starts an operator.
func StartOperator(o OperatorOptions) (*Operator, error) {
	name := filepath.Join(o.Directory, fmt.Sprintf("operator-%d", started.Add(1)))
	if err := clientcmd.WriteToFile(kubeconfig(o.Config), name+".kubeconfig"); err != nil {
		return nil, err
	}
	log, err := os.Create(name + ".log") //nolint:gosec // The caller chose the directory.
	if err != nil {
		return nil, err
	}
	operator := &Operator{Done: make(chan struct{}), Log: log.Name()}
	operator.command = exec.Command(o.Program, append([]string{"--health-probe-bind-address=0"}, o.Args...)...) //nolint:gosec // The caller chose the program.
	operator.command.Env = append(os.Environ(), "KUBECONFIG="+name+".kubeconfig", "RELATED_IMAGE_HTTP_ECHO="+ServerImage,
		"RELATED_IMAGE_VERIFIER="+VerifierImage, "GOGC=50", // As in config/manager.
		"WATCH_NAMESPACE="+strings.Join(o.Watched, ","), "POD_NAMESPACE="+o.Namespace)
	operator.command.Stdout, operator.command.Stderr = log, log
	if err := operator.command.Start(); err != nil {
		return nil, err
	}
	go func() {
		_ = operator.command.Wait() // Failed reports the exit status.
		_ = log.Close()
		close(operator.Done)
	}()
	return operator, nil
}

func kubeconfig(c *rest.Config) clientcmdapi.Config {
	file := clientcmdapi.NewConfig()
	file.Clusters["server"] = &clientcmdapi.Cluster{Server: c.Host, CertificateAuthorityData: c.CAData}
	file.AuthInfos["operator"] = &clientcmdapi.AuthInfo{ClientCertificateData: c.CertData, ClientKeyData: c.KeyData}
	file.Contexts["operator"] = &clientcmdapi.Context{Cluster: "server", AuthInfo: "operator"}
	file.CurrentContext = "operator"
	return *file
}

// PID returns its process ID.
func (o *Operator) PID() int { return o.command.Process.Pid }

// Signal sends a signal. It ignores that the process has exited.
func (o *Operator) Signal(signal os.Signal) { _ = o.command.Process.Signal(signal) }

// Kill kills the process immediately.
func (o *Operator) Kill() {
	o.stopRequested.Store(true)
	_ = o.command.Process.Kill() // It may have exited.
	<-o.Done
}

// Terminate sends SIGTERM, and fails unless the process exits in time with code 0.
func (o *Operator) Terminate() error {
	o.stopRequested.Store(true)
	if err := o.command.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case <-o.Done:
	case <-time.After(gracefulStop):
		o.Kill()
		return fmt.Errorf("the operator did not stop within %s of SIGTERM", gracefulStop)
	}
	if code := o.command.ProcessState.ExitCode(); code != 0 {
		return fmt.Errorf("the operator exited with code %d on SIGTERM: %s", code, o.tail())
	}
	return nil
}

// Exited reports whether the process has exited.
func (o *Operator) Exited() bool {
	select {
	case <-o.Done:
		return true
	default:
		return false
	}
}

// Failed returns an error if the process exited without Kill or Terminate.
func (o *Operator) Failed() error {
	if o.Exited() && !o.stopRequested.Load() {
		return fmt.Errorf("the operator exited unexpectedly (%s): %s", o.command.ProcessState, o.tail())
	}
	return nil
}

// tail returns the end of the log.
func (o *Operator) tail() string {
	const limit = 2000
	log, err := os.ReadFile(o.Log)
	if err != nil {
		return err.Error()
	}
	return string(log[max(0, len(log)-limit):])
}
