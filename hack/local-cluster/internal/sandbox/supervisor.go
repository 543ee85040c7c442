//go:build linux

package sandbox

import (
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"
	"sync"
	"syscall"

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
	dir     state.Dir
	signals chan os.Signal

	mu     sync.Mutex
	status state.Status
}

func newSupervisor(dir state.Dir) *supervisor {
	s := &supervisor{dir: dir, signals: make(chan os.Signal, 1)}
	signal.Notify(s.signals, syscall.SIGCHLD)
	return s
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
	input, err := os.Open(os.DevNull)
	if err != nil {
		return fmt.Errorf("open its input: %w", err)
	}
	defer input.Close()

	// The lock ensures that the child is in the list before reap records its exit.
	s.mu.Lock()
	defer s.mu.Unlock()
	process, err := os.StartProcess(component.Path, append([]string{component.Path}, component.Args...), &os.ProcAttr{
		Dir:   "/",
		Env:   environment,
		Files: []*os.File{input, output, output},
	})
	if err != nil {
		return err
	}
	s.status.Components = append(s.status.Components, state.Component{Name: component.Name, PID: process.Pid})
	log.Printf("started %s as %d", component.Name, process.Pid)
	if err := s.dir.WriteStatus(s.status); err != nil {
		return err
	}
	// reap waits for all children.
	return process.Release()
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
	for range s.signals {
		for {
			var status syscall.WaitStatus
			pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil)
			if errors.Is(err, syscall.EINTR) {
				continue
			}
			if err != nil || pid <= 0 {
				break
			}
			s.recordExit(pid, status)
		}
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
