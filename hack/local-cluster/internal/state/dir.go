// Package state describes the files of a local cluster. They are the only channel between
// the program on the host and the init inside the sandbox.
package state

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Dir is the state directory of a cluster. It has two paths: an absolute one on the host, which identifies
// the cluster, and a constant one inside the sandbox.
type Dir string

// Kubeconfig is the path of the administrator's kubeconfig for use on the host.
func (d Dir) Kubeconfig() string { return d.join("kubeconfig") }

// APIServer is the path of the file with the address of the API server on the host.
func (d Dir) APIServer() string { return d.join("apiserver") }

// Registry is the path of the file with the address of the image registry on the host.
func (d Dir) Registry() string { return d.join("registry") }

// ReadAddress reads an address from the file APIServer or Registry.
func ReadAddress(path string) (string, error) {
	address, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("read an address: %w", err)
	}
	return strings.TrimSpace(string(address)), nil
}

// RegistryData is the storage of the registry. It outlives the cluster.
func (d Dir) RegistryData() string { return d.join("registry-data") }

// Containerd is the root directory of containerd, with unpacked images and containers.
func (d Dir) Containerd() string { return d.join("containerd") }

// KubectlCache is the discovery cache of kubectl, which is valid for one cluster.
func (d Dir) KubectlCache() string { return d.join("kubectl-cache") }

// Logs is the directory of the component logs, the audit log and the pod logs.
func (d Dir) Logs() string { return d.join("logs") }

// Log is the path of the log of a component.
func (d Dir) Log(component string) string { return d.join("logs/" + component + ".log") }

// CgroupName returns a name for the cgroup of the cluster that is unique among the clones
// of the project on a machine.
func (d Dir) CgroupName() string {
	sum := sha256.Sum256([]byte(d))
	return "local-cluster-" + hex.EncodeToString(sum[:4])
}

// Prepare removes the logs of an earlier run and creates the directories that a run requires.
func (d Dir) Prepare() error {
	if err := os.RemoveAll(d.Logs()); err != nil {
		return err
	}
	for _, dir := range []string{d.Logs(), d.Containerd(), d.RegistryData()} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	return nil
}

// RemoveVolatile removes the files that only a running cluster uses, and that a new run would mistake for its own. It
// keeps the logs, and the addresses for the next run to listen on.
func (d Dir) RemoveVolatile() error {
	for _, path := range []string{d.statusFile(), d.Kubeconfig(), d.Containerd(), d.KubectlCache()} {
		if err := os.RemoveAll(path); err != nil {
			return err
		}
	}
	return nil
}

func (d Dir) statusFile() string { return d.join("status.json") }

func (d Dir) join(path string) string { return filepath.Join(string(d), path) }
