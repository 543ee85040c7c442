//go:build linux

package sandbox

import (
	"fmt"

	"github.com/opencontainers/cgroups"
	"github.com/opencontainers/cgroups/manager"
)

// createCgroup creates the parent cgroup of the pods.
func createCgroup(name string) error {
	cgroup, err := openCgroup(name)
	if err != nil {
		return err
	}
	const noProcess = -1
	if err := cgroup.Apply(noProcess); err != nil {
		return fmt.Errorf("create cgroup %s: %w", name, err)
	}
	return nil
}

// RemoveCgroup removes the cgroup and its descendants, if they exist.
func RemoveCgroup(name string) error {
	cgroup, err := openCgroup(name)
	if err != nil {
		return err
	}
	if err := cgroup.Destroy(); err != nil {
		return fmt.Errorf("remove cgroup %s: %w", name, err)
	}
	return nil
}

// openCgroup supports cgroup v1, with a hierarchy per controller, and v2.
func openCgroup(name string) (cgroups.Manager, error) {
	cgroup, err := manager.New(&cgroups.Cgroup{Path: "/" + name, Resources: &cgroups.Resources{}})
	if err != nil {
		return nil, fmt.Errorf("open cgroup %s: %w", name, err)
	}
	return cgroup, nil
}
