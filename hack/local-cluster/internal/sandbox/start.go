//go:build linux

package sandbox

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"syscall"

	"github.com/kkloud-io/echo-operator/hack/local-cluster/internal/state"
)

// The descriptors that init inherits in addition to the standard three.
const (
	apiServerFD = 3 + iota
	registryFD
)

// Start starts a sandbox that outlives the caller. The caller waits for the command to learn that the sandbox
// exits first.
//
// Clients on the host reach the sandbox through two listeners on the host's loopback
// interface. Start opens them and init inherits them: a socket stays in the network
// namespace that created it, so init accepts connections of the host. The alternatives
// are worse: entering the namespaces for every command would put kubectl, the tests and
// every debugger inside, and a veth pair would change the network of the host.
func Start(dir state.Dir, binDir string) (*exec.Cmd, error) {
	if err := removeRemains(dir); err != nil {
		return nil, err
	}
	if err := dir.Prepare(); err != nil {
		return nil, err
	}
	cgroup, err := podCgroup(dir)
	if err != nil {
		return nil, err
	}
	const noProcess = -1
	if err := cgroup.Apply(noProcess); err != nil {
		return nil, fmt.Errorf("create the cgroup of the pods: %w", err)
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
		return nil, fmt.Errorf("create the log of init: %w", err)
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
		return nil, fmt.Errorf("start the sandbox: %w", err)
	}
	return cmd, nil
}

// listen opens the address recorded in a file, so that a copied kubeconfig stays valid
// after a restart. If that port is in use, listen opens any free port.
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
		return nil, fmt.Errorf("listen on the loopback interface of the host: %w", err)
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
