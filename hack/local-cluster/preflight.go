//go:build linux

package main

import (
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// debianPackages are what the jail runs of the machine's own, by a file of each.
var debianPackages = map[string]string{
	"/bin/busybox":             "busybox-static",
	"/sbin/ip":                 "iproute2",
	"/usr/bin/docker-registry": "docker-registry",
	"/usr/lib/cni/bridge":      "containernetworking-plugins",
	"/usr/sbin/conntrack":      "conntrack",
	"/usr/sbin/iptables":       "iptables",
	"/usr/sbin/runc":           "runc",
}

// kernelModules are those that must be loaded, by a file that shows it.
var kernelModules = map[string]string{
	"/proc/sys/net/bridge/bridge-nf-call-iptables": "br_netfilter",
	"/sys/module/overlay":                          "overlay",
}

// programs are what the bin directory must hold.
var programs = []string{
	"catalog", "containerd", "containerd-shim-runc-v2", "copy-content", "coredns", "cpb", "etcd",
	"grpc-health-probe", "http-echo", "kube-apiserver", "kube-controller-manager", "kube-proxy",
	"kube-scheduler", "kubectl", "kubelet", "nginx", "olm", "opm", "package-server", "pause",
}

// preflight finds what is missing before anything is started, and says how to
// get it.
func (c *cluster) preflight() error {
	if os.Geteuid() != 0 {
		return errors.New("namespaces and mounts need root: run it with sudo")
	}
	if missing := missingValues(debianPackages); len(missing) > 0 {
		return fmt.Errorf("packages of Debian are missing; run: apt-get install -y --no-install-recommends %s",
			strings.Join(missing, " "))
	}
	if missing := missingValues(kernelModules); len(missing) > 0 {
		return fmt.Errorf("kernel modules are not loaded; run: modprobe -a %s", strings.Join(missing, " "))
	}
	if err := requireStatic("/bin/busybox"); err != nil {
		return err
	}
	var missing []string
	for _, program := range programs {
		if !exists(filepath.Join(c.binDir, program)) {
			missing = append(missing, program)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("%s lacks %s; run: make cluster-tools", c.binDir, strings.Join(missing, ", "))
	}
	return nil
}

// requireStatic refuses Debian's other busybox, which has the same path: in an
// image without a C library it would fail as "no such file or directory".
func requireStatic(path string) error {
	file, err := elf.Open(path)
	if err != nil {
		return fmt.Errorf("inspect %s: %w", path, err)
	}
	defer file.Close()
	for _, segment := range file.Progs {
		if segment.Type == elf.PT_INTERP {
			return fmt.Errorf("%s is not the static one; run: apt-get install -y busybox-static", path)
		}
	}
	return nil
}

// missingValues returns, sorted, the values of the files that do not exist.
func missingValues(byFile map[string]string) []string {
	var missing []string
	for file, value := range byFile {
		if !exists(file) {
			missing = append(missing, value)
		}
	}
	slices.Sort(missing)
	return missing
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
