//go:build linux

// Package jail keeps a whole cluster in one process tree with network, mount,
// PID, UTS and IPC namespaces of its own. Nothing in it changes the host, and
// the death of its first process takes everything with it: pods, mounts,
// interfaces and firewall rules.
package jail

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"syscall"
	"time"

	"github.com/kkloud-io/echo-operator/hack/local-cluster/internal/node"
	"github.com/kkloud-io/echo-operator/hack/local-cluster/internal/pki"
	"github.com/kkloud-io/echo-operator/hack/local-cluster/internal/state"
)

// Init is PID 1 of a jail: it furnishes the namespaces it was started in, starts
// the cluster's components, and then reaps and reports until it is killed.
func Init(hostDir state.Dir, hostBinDir string) error {
	listeners, err := inheritListeners(apiServerFD, registryFD)
	if err != nil {
		return err
	}
	if err := mountAll(string(hostDir), hostBinDir); err != nil {
		return err
	}
	if err := syscall.Sethostname([]byte(node.Name)); err != nil {
		return fmt.Errorf("set the host name: %w", err)
	}
	if err := configureNetwork(); err != nil {
		return err
	}
	if err := node.WriteConfig(); err != nil {
		return err
	}
	credentials, err := node.WriteCredentials()
	if err != nil {
		return err
	}
	for i, target := range []string{node.APIServerAddress, node.RegistryAddress} {
		go forward(listeners[i], target)
	}

	dir := state.Dir(node.StateDir)
	supervisor := newSupervisor(dir)
	go supervisor.reap()
	if err := supervisor.startAll(node.Foundation()); err != nil {
		return err
	}
	awaitReady(credentials)
	server := "https://" + listeners[0].Addr().String()
	kubeconfig := pki.Kubeconfig(server, credentials.CA, credentials.Admin)
	if err := os.WriteFile(dir.Kubeconfig(), kubeconfig, 0o600); err != nil {
		return fmt.Errorf("write the kubeconfig: %w", err)
	}
	if err := supervisor.startAll(node.Machinery(hostDir.CgroupName())); err != nil {
		return err
	}
	if err := supervisor.setRunning(); err != nil {
		return err
	}
	select {}
}

// inheritListeners takes over descriptors that were passed in, and keeps them
// from being passed on: a component that held one would keep the port busy.
func inheritListeners(fds ...int) ([]net.Listener, error) {
	var listeners []net.Listener
	for _, fd := range fds {
		syscall.CloseOnExec(fd)
		file := os.NewFile(uintptr(fd), "listener")
		listener, err := net.FileListener(file)
		file.Close()
		if err != nil {
			return nil, fmt.Errorf("take over listener %d: %w", fd, err)
		}
		listeners = append(listeners, listener)
	}
	return listeners, nil
}

// awaitReady waits for the API server. It has no limit of its own: the caller on
// the host watches the status, has its deadline, and kills the jail if need be.
func awaitReady(credentials node.Credentials) {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(credentials.CA)
	client := http.Client{
		Timeout:   time.Second,
		Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}},
	}
	defer client.CloseIdleConnections()
	for {
		response, err := client.Get("https://" + node.APIServerAddress + "/readyz")
		if err == nil {
			response.Body.Close()
			if response.StatusCode == http.StatusOK {
				log.Print("the API server is ready")
				return
			}
		}
		time.Sleep(100 * time.Millisecond)
	}
}
