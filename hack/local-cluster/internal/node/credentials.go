package node

import (
	"path/filepath"

	"github.com/kkloud-io/echo-operator/hack/local-cluster/internal/pki"
)

const (
	configDir = "/etc/kubernetes"
	pkiDir    = configDir + "/pki"

	// AdminKubeconfig is the administrator's kubeconfig for use inside the sandbox.
	AdminKubeconfig = configDir + "/admin.conf"

	// apiServer is the URL that the components use.
	apiServer = "https://127.0.0.1:6443"
)

// Credentials are the credentials that the host needs.
type Credentials struct {
	CA    []byte
	Admin pki.Pair
}

// kubeconfigs maps the base name of each component's kubeconfig to its user.
var kubeconfigs = map[string]pki.Subject{
	"controller-manager": {User: "system:kube-controller-manager"},
	"scheduler":          {User: "system:kube-scheduler"},
	"kubelet":            {User: "system:node:" + Name, Groups: []string{"system:nodes"}},
	"proxy":              {User: "system:kube-proxy"},
}

// certificates maps the base name of each certificate file to its subject.
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
	// The API server uses this client certificate for logs, exec and port-forward.
	"kubelet-client": {User: "kube-apiserver-kubelet-client", Groups: []string{"system:masters"}},
}

// WriteCredentials creates all keys and certificates on the memory-backed file system of
// the sandbox. Only the credentials that it returns reach a disk.
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

// writeFrontProxy creates the front proxy CA, which aggregated API servers trust for
// user names. With the cluster CA instead, any client could impersonate any user.
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
