// Package node knows what runs on the cluster's one machine: which programs,
// with which arguments, configuration and certificates. Every path in it is one
// inside the jail, and so a constant.
package node

import (
	"embed"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// rootfs is laid over the jail's root directory as it is.
//
//go:embed all:rootfs
var rootfs embed.FS

// WriteConfig puts the configuration files in their well-known places. Inside
// the jail these are private; on a host this would overwrite /etc.
func WriteConfig() error {
	tree, err := fs.Sub(rootfs, "rootfs")
	if err != nil {
		return fmt.Errorf("open the embedded configuration: %w", err)
	}
	return fs.WalkDir(tree, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return fmt.Errorf("walk the embedded configuration: %w", err)
		}
		target := filepath.Join("/", path)
		if entry.IsDir() {
			return mkdir(target)
		}
		data, err := fs.ReadFile(tree, path)
		if err != nil {
			return fmt.Errorf("read the embedded %s: %w", path, err)
		}
		// The old file goes first: /etc/resolv.conf is often a link elsewhere.
		if err := os.RemoveAll(target); err != nil {
			return fmt.Errorf("remove %s: %w", target, err)
		}
		return writeFile(target, data, 0o644)
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
