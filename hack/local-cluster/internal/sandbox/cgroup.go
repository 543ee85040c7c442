//go:build linux

package sandbox

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// podControllers are the cgroup v2 controllers that the kubelet limits pods with.
var podControllers = []string{"cpu", "cpuset", "io", "memory", "pids"}

// createCgroup creates the parent cgroup of the pods in every hierarchy of the machine:
// cgroup v2 has one, v1 about a dozen.
func createCgroup(name string) error {
	hierarchies, err := cgroupHierarchies()
	if err != nil {
		return err
	}
	for _, root := range hierarchies {
		if err := os.MkdirAll(filepath.Join(root, name), 0o755); err != nil {
			return fmt.Errorf("create a cgroup: %w", err)
		}
		if err := copyCPUSet(root, filepath.Join(root, name)); err != nil {
			return err
		}
		for _, dir := range []string{root, filepath.Join(root, name)} {
			if err := enableControllers(dir); err != nil {
				return err
			}
		}
	}
	return nil
}

// RemoveCgroup removes the cgroup and its descendants. It retries on EBUSY, because the
// kernel releases a cgroup shortly after its last process exits.
func RemoveCgroup(ctx context.Context, name string) error {
	hierarchies, err := cgroupHierarchies()
	if err != nil {
		return err
	}
	for _, root := range hierarchies {
		for {
			err := removeTree(filepath.Join(root, name))
			if err == nil {
				break
			}
			if !errors.Is(err, unix.EBUSY) || ctx.Err() != nil {
				return fmt.Errorf("remove a cgroup: %w", err)
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
	return nil
}

// cgroupHierarchies lists the mount points of the cgroup file systems.
func cgroupHierarchies() ([]string, error) {
	mounts, err := os.Open("/proc/self/mounts")
	if err != nil {
		return nil, fmt.Errorf("list the mounts: %w", err)
	}
	defer mounts.Close()

	var roots []string
	for scanner := bufio.NewScanner(mounts); scanner.Scan(); {
		// device, mount point, type, options, …
		fields := strings.Fields(scanner.Text())
		if len(fields) > 2 && (fields[2] == "cgroup" || fields[2] == "cgroup2") {
			roots = append(roots, fields[1])
		}
	}
	if len(roots) == 0 {
		return nil, errors.New("no cgroup file system is mounted")
	}
	return roots, nil
}

// copyCPUSet copies the CPUs and memory nodes of the parent to a new cgroup in the cpuset
// hierarchy of v1. A new cgroup has none, and cannot contain processes without them.
func copyCPUSet(from, to string) error {
	for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
		value, err := os.ReadFile(filepath.Join(from, file))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("read the cpuset of a cgroup: %w", err)
		}
		if err := os.WriteFile(filepath.Join(to, file), value, 0o644); err != nil {
			return fmt.Errorf("set the cpuset of a cgroup: %w", err)
		}
	}
	return nil
}

// enableControllers enables the cgroup v2 controllers for the children of a cgroup.
// Hierarchies of v1 have no such file, and the v2 hierarchy that systemd mounts in
// addition to v1 has no controllers.
func enableControllers(dir string) error {
	available, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the controllers of a cgroup: %w", err)
	}
	control := filepath.Join(dir, "cgroup.subtree_control")
	for controller := range strings.FieldsSeq(string(available)) {
		if !slices.Contains(podControllers, controller) {
			continue
		}
		if err := os.WriteFile(control, []byte("+"+controller), 0o644); err != nil {
			return fmt.Errorf("enable the %s controller: %w", controller, err)
		}
	}
	return nil
}

// removeTree removes a cgroup, descendants first. The kernel removes its files.
func removeTree(root string) error {
	var dirs []string
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() {
			dirs = append(dirs, path)
		}
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, dir := range slices.Backward(dirs) {
		if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}
