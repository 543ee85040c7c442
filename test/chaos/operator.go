package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kkloud-io/echo-operator/test/chaos/proxy"
)

// serverImage is the default server of the operators under test.
const serverImage = "docker.io/hashicorp/http-echo:1.0.0"

// stopTimeout is how long an operator may take to stop gracefully.
const stopTimeout = 15 * time.Second

// process is a running operator: the real program.
type process struct {
	command *exec.Cmd
	// done is closed when it has ended.
	done chan struct{}
	// ordered is true when somebody has ended it.
	ordered atomic.Bool
	log     string
}

// started counts processes, so that each has a log of its own.
var started atomic.Int64

// startOperator runs the program behind a proxy. Without a list of namespaces it watches all.
// Its own namespace, where its lease is, is the first of them.
func startOperator(program, directory string, p *proxy.Proxy, namespaces []string, args ...string) (*process, error) {
	id := started.Add(1)
	kubeconfig := filepath.Join(directory, fmt.Sprintf("operator-%d.kubeconfig", id))
	if err := clientcmd.WriteToFile(*p.Kubeconfig(), kubeconfig); err != nil {
		return nil, err
	}
	logName := filepath.Join(directory, fmt.Sprintf("operator-%d.log", id))
	log, err := os.Create(logName) //nolint:gosec // A directory of our own.
	if err != nil {
		return nil, err
	}
	o := &process{done: make(chan struct{}), log: logName}
	o.command = exec.Command(program, append([]string{ //nolint:gosec // The operator under test.
		"--metrics-bind-address=0", "--health-probe-bind-address=0"}, args...)...)
	o.command.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig, "RELATED_IMAGE_HTTP_ECHO="+serverImage,
		"WATCH_NAMESPACE="+strings.Join(namespaces, ","), "POD_NAMESPACE="+append(slices.Clone(namespaces), metav1.NamespaceDefault)[0])
	o.command.Stdout, o.command.Stderr = log, log
	if err := o.command.Start(); err != nil {
		return nil, err
	}
	go func() {
		_ = o.command.Wait() // How it ended is told by hasFailed, and by its log.
		_ = log.Close()
		close(o.done)
	}()
	return o, nil
}

// kill ends it at once, with whatever it was doing.
func (o *process) kill() {
	o.ordered.Store(true)
	_ = o.command.Process.Kill() // It may have ended.
	<-o.done
}

// terminate lets it stop gracefully, and tells how it did not.
func (o *process) terminate() error {
	o.ordered.Store(true)
	if err := o.command.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case <-o.done:
	case <-time.After(stopTimeout):
		o.kill()
		return fmt.Errorf("the operator did not stop within %s of SIGTERM", stopTimeout)
	}
	if code := o.command.ProcessState.ExitCode(); code != 0 {
		return fmt.Errorf("the operator exited with code %d on SIGTERM: %s", code, o.tail())
	}
	return nil
}

// hasEnded tells whether it does not run any more.
func (o *process) hasEnded() bool {
	select {
	case <-o.done:
		return true
	default:
		return false
	}
}

// hasFailed tells of an operator that ended by itself.
func (o *process) hasFailed() error {
	if o.hasEnded() && !o.ordered.Load() {
		return fmt.Errorf("the operator ended by itself (%s): %s", o.command.ProcessState, o.tail())
	}
	return nil
}

// tail returns the end of its log.
func (o *process) tail() string {
	const most = 2000
	log, err := os.ReadFile(o.log) //nolint:gosec // Its own log.
	if err != nil {
		return err.Error()
	}
	return string(log[max(0, len(log)-most):])
}
