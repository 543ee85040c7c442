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

// ServerImage is the default server of the operators under test.
const ServerImage = "docker.io/hashicorp/http-echo:1.0.0"

// gracefulStop is how long an operator may take to stop.
const gracefulStop = 15 * time.Second

// OperatorOptions say which operator runs, and how.
type OperatorOptions struct {
	// Program is the operator's file.
	Program string
	// Directory takes its kubeconfig and its log.
	Directory string
	// Config says where its API server is, and who it is: by a client certificate, if by any.
	Config *rest.Config
	// Watched are the namespaces that it watches; none means all.
	Watched []string
	// Namespace is its own, where its lease is.
	Namespace string
	// Args are flags beside those that turn its health endpoint off.
	Args []string
}

// Operator is a running operator: the real program, as a process.
type Operator struct {
	// Done is closed when it has ended.
	Done chan struct{}
	// Log is the file that it logs to.
	Log string

	command *exec.Cmd
	// ordered is true when somebody has ended it.
	ordered atomic.Bool
}

// started counts operators, so that each has a log of its own.
var started atomic.Int64

// StartOperator starts one.
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
		"WATCH_NAMESPACE="+strings.Join(o.Watched, ","), "POD_NAMESPACE="+o.Namespace)
	operator.command.Stdout, operator.command.Stderr = log, log
	if err := operator.command.Start(); err != nil {
		return nil, err
	}
	go func() {
		_ = operator.command.Wait() // How it ended is told by Failed, and by its log.
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

// PID is the id of its process.
func (o *Operator) PID() int { return o.command.Process.Pid }

// Signal sends it a signal; it may have ended.
func (o *Operator) Signal(signal os.Signal) { _ = o.command.Process.Signal(signal) }

// Kill ends it at once, with whatever it was doing.
func (o *Operator) Kill() {
	o.ordered.Store(true)
	_ = o.command.Process.Kill() // It may have ended.
	<-o.Done
}

// Terminate lets it stop gracefully, and tells how it did not.
func (o *Operator) Terminate() error {
	o.ordered.Store(true)
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

// Ended tells whether it does not run any more.
func (o *Operator) Ended() bool {
	select {
	case <-o.Done:
		return true
	default:
		return false
	}
}

// Failed tells of an operator that ended by itself.
func (o *Operator) Failed() error {
	if o.Ended() && !o.ordered.Load() {
		return fmt.Errorf("the operator ended by itself (%s): %s", o.command.ProcessState, o.tail())
	}
	return nil
}

// tail returns the end of its log.
func (o *Operator) tail() string {
	const most = 2000
	log, err := os.ReadFile(o.Log)
	if err != nil {
		return err.Error()
	}
	return string(log[max(0, len(log)-most):])
}
