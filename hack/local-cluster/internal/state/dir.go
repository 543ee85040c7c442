// Package state describes what a local cluster leaves on disk, and is the only
// channel between the program on the host and the one inside the jail.
package state

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Dir is a cluster's state directory. The same tree is seen under two paths: the
// host's, and a short constant one inside the jail.
type Dir string

// Abs resolves a directory given by a user, which need not exist yet, into the
// one spelling that identifies the cluster.
func Abs(path string) (Dir, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", fmt.Errorf("resolve %s: %w", path, err)
	}
	return Dir(resolve(abs)), nil
}

// resolve follows the symbolic links of as much of a path as exists.
func resolve(path string) string {
	if resolved, err := filepath.EvalSymlinks(path); err == nil {
		return resolved
	}
	parent := filepath.Dir(path)
	if parent == path {
		return path
	}
	return filepath.Join(resolve(parent), filepath.Base(path))
}

// Kubeconfig is the administrator's kubeconfig for use on the host.
func (d Dir) Kubeconfig() string { return d.join("kubeconfig") }

// APIServer holds the API server's address on the host.
func (d Dir) APIServer() string { return d.join("apiserver") }

// Registry holds the image registry's address on the host.
func (d Dir) Registry() string { return d.join("registry") }

// ReadAddress reads the address in one of the two files above.
func ReadAddress(path string) (string, error) {
	address, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("read an address: %w", err)
	}
	return strings.TrimSpace(string(address)), nil
}

// RegistryData is the registry's storage. It alone outlives the cluster.
func (d Dir) RegistryData() string { return d.join("registry-data") }

// Containerd is containerd's root: unpacked images and containers.
func (d Dir) Containerd() string { return d.join("containerd") }

// KubectlCache is kubectl's discovery cache, valid for one cluster.
func (d Dir) KubectlCache() string { return d.join("kubectl-cache") }

// Logs is the directory of the components' logs, the audit log and the pods'.
func (d Dir) Logs() string { return d.join("logs") }

// Log is the log of one component.
func (d Dir) Log(component string) string { return d.join("logs", component+".log") }

// CgroupName names the cluster's cgroup, so that two clones of the project on
// one machine do not share one.
func (d Dir) CgroupName() string {
	sum := sha256.Sum256([]byte(d))
	return "local-cluster-" + hex.EncodeToString(sum[:4])
}

// Prepare removes what an earlier run left, so that no step of the next one can
// mistake it for its own, and creates the directories that a run expects.
func (d Dir) Prepare() error {
	if err := d.RemoveVolatile(); err != nil {
		return err
	}
	if err := d.removeAll(d.Logs()); err != nil {
		return err
	}
	for _, dir := range []string{d.Logs(), d.Containerd(), d.RegistryData()} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("create %s: %w", dir, err)
		}
	}
	return nil
}

// RemoveVolatile removes what is of no use without a running cluster. The
// addresses stay, for the next run to listen on again, and so do the logs.
func (d Dir) RemoveVolatile() error {
	return d.removeAll(d.statusFile(), d.Kubeconfig(), d.Containerd(), d.KubectlCache())
}

func (d Dir) removeAll(paths ...string) error {
	for _, path := range paths {
		if err := os.RemoveAll(path); err != nil {
			return fmt.Errorf("remove %s: %w", path, err)
		}
	}
	return nil
}

func (d Dir) statusFile() string { return d.join("status.json") }

func (d Dir) join(elem ...string) string {
	return filepath.Join(append([]string{string(d)}, elem...)...)
}
