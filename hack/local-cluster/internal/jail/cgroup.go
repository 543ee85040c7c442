//go:build linux

package jail

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

// podControllers are those of cgroup v2 that kubelet limits pods with.
var podControllers = []string{"cpu", "cpuset", "io", "memory", "pids"}

// createCgroup makes the cgroup below which kubelet puts the pods, in every
// hierarchy of the machine: one with cgroup v2, about a dozen with v1.
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

// RemoveCgroup removes the cgroup and all below it. The kernel takes a moment to
// let go of one whose last process has just died.
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

// cgroupHierarchies lists where the machine's cgroup file systems are mounted.
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

// copyCPUSet gives a cgroup of v1's cpuset hierarchy its parent's processors and
// memory nodes: it starts without any, and can then hold no process.
func copyCPUSet(from, to string) error {
	for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
		value, err := os.ReadFile(filepath.Join(from, file))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("read the processors of a cgroup: %w", err)
		}
		if err := os.WriteFile(filepath.Join(to, file), value, 0o644); err != nil {
			return fmt.Errorf("set the processors of a cgroup: %w", err)
		}
	}
	return nil
}

// enableControllers is v2's part: a controller works below a cgroup only where
// it is enabled in it. Hierarchies of v1 have no such file, and the one of v2
// that systemd keeps beside them has no controllers.
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

// removeTree removes a cgroup from the leaves up; its files go with it.
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
