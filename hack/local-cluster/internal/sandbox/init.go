//go:build linux

// Package sandbox runs a whole cluster in one process tree with its own network,
// mount, PID, UTS and IPC namespaces. The sandbox changes nothing on the host. When
// its first process exits, the kernel removes everything in it: pods, mounts,
// interfaces and firewall rules.
package sandbox

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log"
	"net/http"
	"os"
	"syscall"
	"time"

	"github.com/kkloud-io/echo-operator/hack/local-cluster/internal/node"
	"github.com/kkloud-io/echo-operator/hack/local-cluster/internal/state"
)

// Init is PID 1 of a sandbox: it sets up its namespaces, starts the components of the
// cluster, and then reaps processes and reports their exits until it is killed.
func Init(hostDir state.Dir, hostBinDir string) error {
	if err := mountAll(string(hostDir), hostBinDir); err != nil {
		return err
	}
	if err := syscall.Sethostname([]byte(node.Name)); err != nil {
		return fmt.Errorf("set the host name: %w", err)
	}
	if err := configureNetwork(); err != nil {
		return err
	}
	if err := node.WriteCredentials(); err != nil {
		return err
	}
	if err := forward(apiServerFD, node.APIServerAddress); err != nil {
		return err
	}
	if err := forward(registryFD, node.RegistryAddress); err != nil {
		return err
	}

	dir := state.Dir(node.StateDir)
	supervisor := &supervisor{dir: dir}
	go supervisor.reap()
	if err := supervisor.startAll(node.ServerComponents()); err != nil {
		return err
	}
	if err := waitForAPIServer(); err != nil {
		return err
	}
	if err := writeHostKubeconfig(dir); err != nil {
		return err
	}
	if err := supervisor.startAll(node.ClientComponents(hostDir.CgroupName())); err != nil {
		return err
	}
	if err := supervisor.setRunning(); err != nil {
		return err
	}
	select {}
}

// writeHostKubeconfig writes the administrator's kubeconfig with the address of the API
// server on the host.
func writeHostKubeconfig(dir state.Dir) error {
	address, err := state.ReadAddress(dir.APIServer())
	if err != nil {
		return err
	}
	kubeconfig, err := os.ReadFile(node.AdminKubeconfig)
	if err != nil {
		return fmt.Errorf("read the kubeconfig: %w", err)
	}
	kubeconfig = bytes.ReplaceAll(kubeconfig, []byte(node.APIServerAddress), []byte(address))
	if err := os.WriteFile(dir.Kubeconfig(), kubeconfig, 0o600); err != nil {
		return fmt.Errorf("write the kubeconfig: %w", err)
	}
	return nil
}

// waitForAPIServer waits without a timeout until the API server is ready. The caller on
// the host watches the status, has a deadline, and can kill the sandbox.
func waitForAPIServer() error {
	ca, err := os.ReadFile(node.CACertificate)
	if err != nil {
		return fmt.Errorf("read the CA certificate: %w", err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	client := http.Client{
		// A slow machine needs seconds for one response.
		Timeout:   30 * time.Second,
		Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}},
	}
	for {
		response, err := client.Get("https://" + node.APIServerAddress + "/readyz")
		if err == nil {
			response.Body.Close()
			if response.StatusCode == http.StatusOK {
				log.Print("the API server is ready")
				return nil
			}
		}
		time.Sleep(100 * time.Millisecond)
	}
}
