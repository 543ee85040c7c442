package node

import (
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"github.com/kkloud-io/echo-operator/hack/local-cluster/internal/version"
)

const (
	configDir = "/etc/kubernetes"
	pkiDir    = configDir + "/pki"

	// AdminKubeconfig is the administrator's kubeconfig for use inside the sandbox.
	AdminKubeconfig = configDir + "/super-admin.conf"

	// CACertificate is the certificate of the CA that signs the API server's certificate.
	CACertificate = pkiDir + "/ca.crt"
)

//go:embed kubeadm.yaml
var kubeadmConfig string

// WriteCredentials creates all keys, certificates and kubeconfigs on the memory-backed file
// system of the sandbox.
func WriteCredentials() error {
	for _, phase := range []string{"certs", "kubeconfig"} {
		if _, err := kubeadm("init", "phase", phase, "all"); err != nil {
			return err
		}
	}
	// In a cluster of kubeadm, kube-proxy runs in a pod and needs no kubeconfig.
	kubeconfig, err := kubeadm("kubeconfig", "user", "--client-name=system:kube-proxy")
	if err != nil {
		return err
	}
	return os.WriteFile(configDir+"/proxy.conf", kubeconfig, 0o600)
}

func kubeadm(args ...string) ([]byte, error) {
	config, err := version.Expand(kubeadmConfig, BinDir)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(binary("kubeadm"), append(args, "--config=/dev/stdin")...)
	cmd.Stdin = strings.NewReader(config)
	output, err := cmd.Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return nil, fmt.Errorf("kubeadm %s: %w: %s", strings.Join(args, " "), err, exit.Stderr)
	}
	return output, err
}
