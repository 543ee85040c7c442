//go:build linux

package sandbox

import (
	"fmt"
	"log"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"github.com/kkloud-io/echo-operator/hack/local-cluster/internal/node"
	"github.com/kkloud-io/echo-operator/hack/local-cluster/internal/state"
)

// tempDir keeps temporary files of the components out of the /tmp of the host.
const tempDir = "/run/cluster/tmp"

// environment is the complete environment of the components. They do not inherit the
// caller's, which may name a proxy.
var environment = []string{"PATH=" + node.Path, "HOME=" + tempDir, "TMPDIR=" + tempDir}

// supervisor starts the components and records their exits. It restarts nothing: in a
// disposable cluster, a component that exits is a failure to report.
type supervisor struct {
	dir state.Dir

	mu     sync.Mutex
	status state.Status
}

func (s *supervisor) startAll(components []node.Component) error {
	for _, component := range components {
		if err := s.start(component); err != nil {
			return fmt.Errorf("start %s: %w", component.Name, err)
		}
	}
	return nil
}

func (s *supervisor) start(component node.Component) error {
	output, err := os.Create(s.dir.Log(component.Name))
	if err != nil {
		return fmt.Errorf("create its log: %w", err)
	}
	defer output.Close()

	// The lock ensures that the child is in the list before reap records its exit.
	s.mu.Lock()
	defer s.mu.Unlock()
	cmd := exec.Command(component.Path, component.Args...)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = "/", environment, output, output
	if err := cmd.Start(); err != nil {
		return err
	}
	s.status.Components = append(s.status.Components, state.Component{Name: component.Name, PID: cmd.Process.Pid})
	log.Printf("started %s as %d", component.Name, cmd.Process.Pid)
	if err := s.dir.WriteStatus(s.status); err != nil {
		return err
	}
	// reap waits for all children.
	return cmd.Process.Release()
}

func (s *supervisor) setRunning() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.status.Running = true
	return s.dir.WriteStatus(s.status)
}

// reap waits for exited children: the components, and the orphans of the sandbox, which
// the kernel makes children of PID 1.
func (s *supervisor) reap() {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		if err != nil {
			// There is no child yet, or a signal interrupted the wait.
			time.Sleep(100 * time.Millisecond)
			continue
		}
		s.recordExit(pid, status)
	}
}

func (s *supervisor) recordExit(pid int, status syscall.WaitStatus) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.status.Components {
		component := &s.status.Components[i]
		if component.PID != pid || component.Exited != "" {
			continue
		}
		component.Exited = describe(status)
		log.Printf("%s exited: %s", component.Name, component.Exited)
		if err := s.dir.WriteStatus(s.status); err != nil {
			log.Print(err)
		}
	}
}

func describe(status syscall.WaitStatus) string {
	if status.Signaled() {
		return fmt.Sprintf("killed by signal %d (%s)", status.Signal(), status.Signal())
	}
	return fmt.Sprintf("exit status %d", status.ExitStatus())
}
