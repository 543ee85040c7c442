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
// host's.
func mountAll(stateDir, binDir string) error {
	// The propagation lets the kubelet's mounts reach the containers, but not the host.
	if err := newPeerGroup("/", unix.MS_REC); err != nil {
		return err
	}
	if err := mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return err
	}
	// Open the directories of the host first, because a later mount may cover their paths.
	state, err := os.Open(stateDir)
	if err != nil {
		return err
	}
	defer state.Close()
	bin, err := os.Open(binDir)
	if err != nil {
		return err
	}
	defer bin.Close()
	if err := mount("tmpfs", "/run", "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0755"); err != nil {
		return err
	}
	if err := bind(state, node.StateDir); err != nil {
		return err
	}
	if err := bind(bin, node.BinDir); err != nil {
		return err
	}
	if err := os.MkdirAll(tempDir, 0o755); err != nil {
		return err
	}
	if err := mountOverlays(); err != nil {
		return err
	}
	return maskKernelSettings()
}

// newPeerGroup separates the mount at a path from those that it was copied from, and lets later copies
// share the mounts below it.
func newPeerGroup(path string, flags uintptr) error {
	for _, propagation := range []uintptr{unix.MS_PRIVATE, unix.MS_SHARED} {
		if err := unix.Mount("", path, "", propagation|flags, ""); err != nil {
			return fmt.Errorf("change the propagation of %s: %w", path, err)
		}
	}
	return nil
}

// bind mounts a directory at another path in its own peer group, so that mounts below
// the new path do not appear below the old one.
func bind(directory *os.File, target string) error {
	if err := os.MkdirAll(target, 0o755); err != nil {
		return err
	}
	if err := mount(fmt.Sprintf("/proc/self/fd/%d", directory.Fd()), target, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("%s: %w", directory.Name(), err)
	}
	return newPeerGroup(target, 0)
}

// mountOverlays adds the files of node.Rootfs, and what the components write, to the directories of the host.
func mountOverlays() error {
	if err := os.CopyFS("/run/cluster", node.Rootfs); err != nil {
		return fmt.Errorf("write the configuration: %w", err)
	}
	for _, path := range overlaid {
		upper, work := filepath.Join("/run/cluster/rootfs", path), filepath.Join("/run/cluster/work", path)
		for _, dir := range []string{upper, work} {
			if err := os.MkdirAll(dir, 0o755); err != nil {
				return err
			}
		}
		options := fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s", path, upper, work)
		if err := mount("overlay", path, "overlay", 0, options); err != nil {
			return err
		}
	}
	return nil
}

func maskKernelSettings() error {
	for path, value := range kernelSettings {
		mask := filepath.Join(tempDir, filepath.Base(path))
		if err := os.WriteFile(mask, []byte(value+"\n"), 0o644); err != nil {
			return err
		}
		if err := mount(mask, path, "", unix.MS_BIND, ""); err != nil {
			return err
		}
	}
	return nil
}

func mount(source, target, fstype string, flags uintptr, options string) error {
	if err := unix.Mount(source, target, fstype, flags, options); err != nil {
		return fmt.Errorf("mount %s on %s: %w", source, target, err)
	}
	return nil
}
