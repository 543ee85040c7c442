// Package version reads the versions of programs from their build information, so that
// images and manifests do not repeat the versions in the module files of the programs.
package version

import (
	"debug/buildinfo"
	"fmt"
	"path/filepath"
	"strings"
)

// source is a program and the module that has its version.
type source struct{ program, module string }

// variables maps each variable to the source of its value.
var variables = map[string]source{
	"${COREDNS_VERSION}":    {"coredns", "github.com/coredns/coredns"},
	"${GO_HTTPBIN_VERSION}": {"go-httpbin", "github.com/mccutchen/go-httpbin/v2"},
	"${HTTP_ECHO_VERSION}":  {"http-echo", "github.com/hashicorp/http-echo"},
	"${KUBERNETES_VERSION}": {"kubeadm", "k8s.io/kubernetes"},
	"${OLM_VERSION}":        {"olm", "github.com/operator-framework/operator-lifecycle-manager"},
	"${OLM_V1_VERSION}":     {"catalogd", "github.com/operator-framework/operator-controller"},
	"${OPM_VERSION}":        {"opm", "github.com/operator-framework/operator-registry"},
	"${TRAEFIK_VERSION}":    {"traefik", "github.com/traefik/traefik/v3"},
}

// Expand replaces the variables in a text with the versions of the programs in a directory,
// without the leading "v".
func Expand(text, binDir string) (string, error) {
	for variable, source := range variables {
		if !strings.Contains(text, variable) {
			continue
		}
		version, err := read(filepath.Join(binDir, source.program), source.module)
		if err != nil {
			return "", err
		}
		text = strings.ReplaceAll(text, variable, strings.TrimPrefix(version, "v"))
	}
	return text, nil
}

// read returns the version of a module that a program was built from.
func read(program, module string) (string, error) {
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return "", fmt.Errorf("read the version of %s: %w", program, err)
	}
	for _, dependency := range append(info.Deps, &info.Main) {
		if dependency.Path == module {
			return dependency.Version, nil
		}
	}
	return "", fmt.Errorf("%s was not built from module %s", program, module)
}
