// Package node describes the only node of the cluster: the programs that it runs, their
// arguments, configuration and certificates. All its paths are paths inside the sandbox,
// and so are constants.
package node

import (
	"embed"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/kkloud-io/echo-operator/hack/local-cluster/internal/version"
)

// rootfs is copied to the root directory of the sandbox.
//
//go:embed all:rootfs
var rootfs embed.FS

// WriteConfig writes the configuration files to their well-known paths. It must only run
// inside the sandbox: on the host it would overwrite files in /etc.
func WriteConfig() error {
	tree, err := fs.Sub(rootfs, "rootfs")
	if err != nil {
		return fmt.Errorf("open the embedded configuration: %w", err)
	}
	return fs.WalkDir(tree, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return fmt.Errorf("read the embedded configuration: %w", err)
		}
		target := filepath.Join("/", path)
		if entry.IsDir() {
			return mkdir(target)
		}
		data, err := fs.ReadFile(tree, path)
		if err != nil {
			return fmt.Errorf("read the embedded %s: %w", path, err)
		}
		text, err := version.Expand(string(data), BinDir)
		if err != nil {
			return err
		}
		// Remove the old file first, because /etc/resolv.conf is often a symbolic link.
		if err := os.RemoveAll(target); err != nil {
			return fmt.Errorf("remove %s: %w", target, err)
		}
		return writeFile(target, []byte(text), 0o644)
	})
}

func mkdir(path string) error {
	if err := os.MkdirAll(path, 0o755); err != nil {
		return fmt.Errorf("create %s: %w", path, err)
	}
	return nil
}

func writeFile(path string, data []byte, mode fs.FileMode) error {
	if err := os.WriteFile(path, data, mode); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}
