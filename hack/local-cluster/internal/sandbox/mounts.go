//go:build linux

package sandbox

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/kkloud-io/echo-operator/hack/local-cluster/internal/node"
)

// overlaid are the directories of the host that contain the well-known paths of the
// components. The sandbox sees the content of the host, and writes to memory.
var overlaid = []string{"/etc", "/opt", "/var"}

// kernelSettings are the settings that the kubelet requires. They are global to the
// machine, so the sandbox bind-mounts a file with the required value over each one
// and leaves the setting of the machine unchanged.
var kernelSettings = map[string]string{
	"/proc/sys/kernel/keys/root_maxbytes": "25000000",
	"/proc/sys/kernel/keys/root_maxkeys":  "1000000",
	"/proc/sys/kernel/panic":              "10",
	"/proc/sys/kernel/panic_on_oops":      "1",
	"/proc/sys/vm/overcommit_memory":      "1",
	"/proc/sys/vm/panic_on_oom":           "0",
}

// mountAll sets up the mount namespace of the sandbox, which starts as a copy of the
// host's. It opens the directories of the host first, because a later mount may cover
// their paths.
func mountAll(stateDir, binDir string) error {
	// Without the private propagation first, the next call would share the mounts with
	// the host. The shared propagation lets the kubelet's mounts reach the containers.
	if err := setPropagation("/", unix.MS_REC|unix.MS_PRIVATE); err != nil {
		return err
	}
	if err := setPropagation("/", unix.MS_REC|unix.MS_SHARED); err != nil {
		return err
	}
	if err := mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return err
	}
	opened := map[string]*os.File{}
	for target, path := range map[string]string{node.StateDir: stateDir, node.BinDir: binDir} {
		directory, err := os.Open(path)
		if err != nil {
			return fmt.Errorf("open %s: %w", path, err)
		}
		defer directory.Close()
		opened[target] = directory
	}
	if err := mount("tmpfs", "/run", "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0755"); err != nil {
		return err
	}
	for target, directory := range opened {
		if err := bind(fmt.Sprintf("/proc/self/fd/%d", directory.Fd()), target); err != nil {
			return err
		}
	}
	for _, path := range overlaid {
		if err := overlay(path); err != nil {
			return err
		}
	}
	if err := mkdir(tempDir); err != nil {
		return err
	}
	return maskKernelSettings()
}

// bind mounts a directory at another path in its own peer group, so that mounts below
// the new path do not appear below the old one.
func bind(source, target string) error {
	if err := mkdir(target); err != nil {
		return err
	}
	if err := mount(source, target, "", unix.MS_BIND, ""); err != nil {
		return err
	}
	if err := setPropagation(target, unix.MS_PRIVATE); err != nil {
		return err
	}
	return setPropagation(target, unix.MS_SHARED)
}

func overlay(path string) error {
	base := filepath.Join("/run/cluster/overlay", path)
	upper, work := filepath.Join(base, "upper"), filepath.Join(base, "work")
	for _, dir := range []string{upper, work} {
		if err := mkdir(dir); err != nil {
			return err
		}
	}
	options := fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s", path, upper, work)
	return mount("overlay", path, "overlay", 0, options)
}

func maskKernelSettings() error {
	for path, value := range kernelSettings {
		mask := filepath.Join("/run/cluster/settings", filepath.Base(path))
		if err := mkdir(filepath.Dir(mask)); err != nil {
			return err
		}
		if err := os.WriteFile(mask, []byte(value+"\n"), 0o644); err != nil {
			return fmt.Errorf("write %s: %w", mask, err)
		}
		if err := mount(mask, path, "", unix.MS_BIND, ""); err != nil {
			return err
		}
	}
	return nil
}

func mkdir(path string) error {
	if err := os.MkdirAll(path, 0o755); err != nil {
		return fmt.Errorf("create %s: %w", path, err)
	}
	return nil
}

func setPropagation(path string, flags uintptr) error {
	if err := unix.Mount("", path, "", flags, ""); err != nil {
		return fmt.Errorf("change the propagation of %s: %w", path, err)
	}
	return nil
}

func mount(source, target, fstype string, flags uintptr, options string) error {
	if err := unix.Mount(source, target, fstype, flags, options); err != nil {
		return fmt.Errorf("mount %s on %s: %w", source, target, err)
	}
	return nil
}
