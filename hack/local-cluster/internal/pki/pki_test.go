package pki

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"strings"
	"testing"
)

func TestIssue(t *testing.T) {
	authority, err := NewAuthority("test")
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(authority.Cert) {
		t.Fatal("the authority's certificate cannot be parsed")
	}
	client := Subject{User: "admin", Groups: []string{"system:masters"}}
	server := Subject{User: "server", Names: []string{"localhost"}, IPs: []string{"127.0.0.1"}}

	verify := func(subject Subject, name string, usage x509.ExtKeyUsage) error {
		t.Helper()
		pair, err := authority.Issue(subject)
		if err != nil {
			t.Fatal(err)
		}
		certificate, err := tls.X509KeyPair(pair.Cert, pair.Key)
		if err != nil {
			t.Fatal(err)
		}
		_, err = certificate.Leaf.Verify(x509.VerifyOptions{
			Roots: roots, DNSName: name, KeyUsages: []x509.ExtKeyUsage{usage},
		})
		return err
	}
	if err := verify(client, "", x509.ExtKeyUsageClientAuth); err != nil {
		t.Errorf("a client is not accepted: %v", err)
	}
	if err := verify(server, "127.0.0.1", x509.ExtKeyUsageServerAuth); err != nil {
		t.Errorf("a server is not accepted by its address: %v", err)
	}
	if err := verify(server, "elsewhere", x509.ExtKeyUsageServerAuth); err == nil {
		t.Error("a server is accepted under another's name")
	}
	if err := verify(client, "", x509.ExtKeyUsageServerAuth); err == nil {
		t.Error("a client is accepted as a server")
	}
}

func TestKubeconfig(t *testing.T) {
	config := string(Kubeconfig("https://127.0.0.1:1", []byte("ca"), Pair{Cert: []byte("cert"), Key: []byte("key")}))
	for _, want := range []string{
		"server: https://127.0.0.1:1\n",
		"certificate-authority-data: " + base64.StdEncoding.EncodeToString([]byte("ca")) + "\n",
		"client-certificate-data: " + base64.StdEncoding.EncodeToString([]byte("cert")) + "\n",
		"client-key-data: " + base64.StdEncoding.EncodeToString([]byte("key")) + "\n",
	} {
		if !strings.Contains(config, want) {
			t.Errorf("the kubeconfig lacks %q:\n%s", want, config)
		}
	}
}
