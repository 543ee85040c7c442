package node

import (
	"path/filepath"

	"github.com/kkloud-io/echo-operator/hack/local-cluster/internal/pki"
)

const (
	configDir = "/etc/kubernetes"
	pkiDir    = configDir + "/pki"

	// AdminKubeconfig is the administrator's kubeconfig for use inside the jail.
	AdminKubeconfig = configDir + "/admin.conf"

	// apiServer is where the components find the API server.
	apiServer = "https://127.0.0.1:6443"
)

// Credentials are those that the host needs.
type Credentials struct {
	CA    []byte
	Admin pki.Pair
}

// kubeconfigs are the clients that read their credentials from a kubeconfig, by
// its base name.
var kubeconfigs = map[string]pki.Subject{
	"controller-manager": {User: "system:kube-controller-manager"},
	"scheduler":          {User: "system:kube-scheduler"},
	"kubelet":            {User: "system:node:" + Name, Groups: []string{"system:nodes"}},
	"proxy":              {User: "system:kube-proxy"},
}

// certificates are those that are read from plain files, by their base name.
var certificates = map[string]pki.Subject{
	"apiserver": {
		User: "kube-apiserver",
		Names: []string{
			"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc",
			"kubernetes.default.svc.cluster.local",
		},
		IPs: []string{"127.0.0.1", "10.96.0.1", IP},
	},
	"kubelet": {User: "system:node:" + Name, Names: []string{Name}, IPs: []string{IP}},
	// The API server's own client towards the kubelet: logs, exec, port-forward.
	"kubelet-client": {User: "kube-apiserver-kubelet-client", Groups: []string{"system:masters"}},
}

// WriteCredentials creates the cluster's whole key material, on the jail's
// memory-backed file system: only what it returns ever reaches a disk.
func WriteCredentials() (Credentials, error) {
	if err := mkdir(pkiDir); err != nil {
		return Credentials{}, err
	}
	ca, err := pki.NewAuthority("kubernetes")
	if err != nil {
		return Credentials{}, err
	}
	if err := writePair("ca", ca.Pair); err != nil {
		return Credentials{}, err
	}
	for name, subject := range certificates {
		if err := issue(ca, name, subject); err != nil {
			return Credentials{}, err
		}
	}
	for name, subject := range kubeconfigs {
		if _, err := writeKubeconfig(ca, name, subject); err != nil {
			return Credentials{}, err
		}
	}
	if err := writeFrontProxy(); err != nil {
		return Credentials{}, err
	}
	if err := writeServiceAccountKey(); err != nil {
		return Credentials{}, err
	}
	admin, err := writeKubeconfig(ca, "admin", pki.Subject{User: "admin", Groups: []string{"system:masters"}})
	return Credentials{CA: ca.Cert, Admin: admin}, err
}

// writeFrontProxy creates the authority that aggregated API servers trust to
// name the user: one of its own, or any client could impersonate anyone there.
func writeFrontProxy() error {
	ca, err := pki.NewAuthority("front-proxy")
	if err != nil {
		return err
	}
	if err := writePair("front-proxy-ca", ca.Pair); err != nil {
		return err
	}
	return issue(ca, "front-proxy-client", pki.Subject{User: "front-proxy-client"})
}

func writeServiceAccountKey() error {
	public, private, err := pki.NewSigningKey()
	if err != nil {
		return err
	}
	if err := writeFile(filepath.Join(pkiDir, "service-account.pub"), public, 0o644); err != nil {
		return err
	}
	return writeFile(filepath.Join(pkiDir, "service-account.key"), private, 0o600)
}

func writeKubeconfig(ca *pki.Authority, name string, subject pki.Subject) (pki.Pair, error) {
	pair, err := ca.Issue(subject)
	if err != nil {
		return pki.Pair{}, err
	}
	path := filepath.Join(configDir, name+".conf")
	return pair, writeFile(path, pki.Kubeconfig(apiServer, ca.Cert, pair), 0o600)
}

func issue(ca *pki.Authority, name string, subject pki.Subject) error {
	pair, err := ca.Issue(subject)
	if err != nil {
		return err
	}
	return writePair(name, pair)
}

func writePair(name string, pair pki.Pair) error {
	if err := writeFile(filepath.Join(pkiDir, name+".crt"), pair.Cert, 0o644); err != nil {
		return err
	}
	return writeFile(filepath.Join(pkiDir, name+".key"), pair.Key, 0o600)
}
