//go:build linux

package jail

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"syscall"

	"github.com/kkloud-io/echo-operator/hack/local-cluster/internal/state"
)

// The descriptors that a jail's init finds open besides the standard three.
const (
	apiServerFD = 3 + iota
	registryFD
)

// Spawn starts a jail that outlives the caller, and returns a channel that
// yields its end should it come while the caller is still there.
//
// The jail is reached through listeners on the host's loopback that are opened
// here and passed in: a socket stays in the network namespace it was made in,
// whoever accepts on it. Entering the namespaces for every command instead would
// put kubectl, the tests and every debugger inside; a veth pair would change the
// host's network. This way the host has two ordinary ports, for as long as the
// jail lives, and any client works.
func Spawn(dir state.Dir, binDir string) (<-chan error, error) {
	if err := dir.Prepare(); err != nil {
		return nil, err
	}
	if err := createCgroup(dir.CgroupName()); err != nil {
		return nil, err
	}
	executable, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find the executable: %w", err)
	}
	apiServer, err := listen(dir.APIServer())
	if err != nil {
		return nil, err
	}
	defer apiServer.Close()
	registry, err := listen(dir.Registry())
	if err != nil {
		return nil, err
	}
	defer registry.Close()
	log, err := os.Create(dir.Log(InitCommand))
	if err != nil {
		return nil, fmt.Errorf("create the jail's log: %w", err)
	}
	defer log.Close()

	cmd := &exec.Cmd{
		Path:       executable,
		Args:       append(initArgs(dir), binDir),
		Stdout:     log,
		Stderr:     log,
		ExtraFiles: []*os.File{apiServerFD - 3: apiServer, registryFD - 3: registry},
		SysProcAttr: &syscall.SysProcAttr{
			Setsid: true,
			Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNET | syscall.CLONE_NEWNS |
				syscall.CLONE_NEWUTS | syscall.CLONE_NEWIPC,
		},
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the jail: %w", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	return ended, nil
}

// listen opens the address recorded in a file, so that a kubeconfig copied
// elsewhere still holds after a restart; where that is taken, any free port.
func listen(record string) (*os.File, error) {
	const anyPort = "127.0.0.1:0"
	address, err := state.ReadAddress(record)
	if err != nil {
		address = anyPort
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		listener, err = net.Listen("tcp", anyPort)
	}
	if err != nil {
		return nil, fmt.Errorf("listen on the host's loopback: %w", err)
	}
	defer listener.Close()
	if err := os.WriteFile(record, []byte(listener.Addr().String()+"\n"), 0o644); err != nil {
		return nil, fmt.Errorf("record the address: %w", err)
	}
	file, err := listener.(*net.TCPListener).File()
	if err != nil {
		return nil, fmt.Errorf("take the listener's descriptor: %w", err)
	}
	return file, nil
}
