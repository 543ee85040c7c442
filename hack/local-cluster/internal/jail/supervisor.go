//go:build linux

package jail

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

// tempDir keeps the components' temporary files off the host's /tmp.
const tempDir = "/run/cluster/tmp"

// environment of the components: whole, because the caller's may hold a proxy
// that they would send their traffic to.
var environment = []string{"PATH=" + node.Path, "HOME=" + tempDir, "TMPDIR=" + tempDir}

// supervisor starts the components and notes their end. It restarts nothing: on
// a disposable cluster a component that died is a finding.
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

	// Held while starting, so that the child is listed before it can be reaped.
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
	// The wait is reap's, for all children at once.
	return process.Release()
}

func (s *supervisor) setRunning() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.status.Running = true
	return s.dir.WriteStatus(s.status)
}

// reap collects the dead: the components, and every orphan of the jail, which
// the kernel makes a child of PID 1.
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
			s.noteExit(pid, status)
		}
	}
}

func (s *supervisor) noteExit(pid int, status syscall.WaitStatus) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.status.Components {
		component := &s.status.Components[i]
		if component.PID != pid || component.Exited != "" {
			continue
		}
		component.Exited = describe(status)
		log.Printf("%s ended: %s", component.Name, component.Exited)
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
