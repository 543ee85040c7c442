//go:build linux

package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// debianPackages maps a file of each required Debian package to the package.
var debianPackages = map[string]string{
	"/sbin/ip":                 "iproute2",
	"/usr/bin/docker-registry": "docker-registry",
	"/usr/lib/cni/bridge":      "containernetworking-plugins",
	"/usr/sbin/conntrack":      "conntrack",
	"/usr/sbin/iptables":       "iptables",
	"/usr/sbin/runc":           "runc",
	// Package busybox has the same program, but dynamically linked: an image has no C library.
	"/var/lib/dpkg/info/busybox-static.list": "busybox-static",
}

// kernelModules maps a file that exists while the kernel has a required feature to the module
// of the feature, which may be built in. The kernel loads all other modules on first use.
var kernelModules = map[string]string{
	"/proc/sys/net/bridge/bridge-nf-call-iptables":                 "br_netfilter",
	"/proc/sys/net/netfilter/nf_conntrack_tcp_timeout_established": "nf_conntrack",
	"/sys/module/overlay": "overlay",
}

const modprobe = "/sbin/modprobe"

// binFiles lists the programs and manifests that the bin directory must contain.
var binFiles = []string{
	"catalog", "containerd", "containerd-shim-runc-v2", "copy-content", "coredns", "cpb", "etcd", "grpc-health-probe",
	"kube-apiserver", "kube-controller-manager", "kube-proxy", "kube-scheduler", "kubeadm", "kubelet",
	"olm", "olm-crds.yaml", "olm.yaml", "opm", "package-server", "pause",
}

// preflight checks the prerequisites before up starts anything. Its errors name the
// command that fixes the problem.
func (c *cluster) preflight() error {
	if missing := missingValues(debianPackages); len(missing) > 0 {
		return fmt.Errorf("missing Debian packages; run: apt-get install -y --no-install-recommends %s",
			strings.Join(missing, " "))
	}
	if err := loadModules(modprobe, kernelModules); err != nil {
		return err
	}
	var missing []string
	for _, name := range binFiles {
		if !exists(filepath.Join(c.binDir, name)) {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("missing files in %s: %s; run: make cluster-tools", c.binDir, strings.Join(missing, ", "))
	}
	return nil
}

// loadModules loads the modules of missing files. It does not run modprobe, which may not be
// installed, if no file is missing.
func loadModules(modprobe string, byFile map[string]string) error {
	missing := missingValues(byFile)
	if len(missing) == 0 {
		return nil
	}
	output, err := exec.Command(modprobe, append([]string{"-a"}, missing...)...).CombinedOutput()
	// modprobe can load some of the modules and fail for others.
	if missing = missingValues(byFile); len(missing) == 0 {
		return nil
	}
	return fmt.Errorf("missing kernel modules; run on the host, not in a container: modprobe -a %s\n%s: %w: %s",
		strings.Join(missing, " "), modprobe, cmp.Or(err, errors.New("succeeded without effect")), strings.TrimSpace(string(output)))
}

// missingValues returns the sorted values of the files that do not exist.
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
