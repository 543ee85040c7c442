package pki

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"strings"
	"testing"
)

func TestIssuedCertificateIsValidOnlyForItsSubject(t *testing.T) {
	authority, err := NewAuthority("test")
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(authority.Cert) {
		t.Fatal("certificate of the authority: AppendCertsFromPEM() = false, want true")
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
		t.Errorf("client certificate for client authentication: %v, want it to verify", err)
	}
	if err := verify(server, "127.0.0.1", x509.ExtKeyUsageServerAuth); err != nil {
		t.Errorf("server certificate for its own address: %v, want it to verify", err)
	}
	if err := verify(server, "other.example", x509.ExtKeyUsageServerAuth); err == nil {
		t.Error("server certificate for another name: verified, want an error")
	}
	if err := verify(client, "", x509.ExtKeyUsageServerAuth); err == nil {
		t.Error("client certificate for server authentication: verified, want an error")
	}
}

func TestKubeconfigContainsServerAndCredentials(t *testing.T) {
	config := string(Kubeconfig("https://127.0.0.1:1", []byte("ca"), Pair{Cert: []byte("cert"), Key: []byte("key")}))
	for _, want := range []string{
		"server: https://127.0.0.1:1\n",
		"certificate-authority-data: " + base64.StdEncoding.EncodeToString([]byte("ca")) + "\n",
		"client-certificate-data: " + base64.StdEncoding.EncodeToString([]byte("cert")) + "\n",
		"client-key-data: " + base64.StdEncoding.EncodeToString([]byte("key")) + "\n",
	} {
		if !strings.Contains(config, want) {
			t.Errorf("kubeconfig does not contain %q:\n%s", want, config)
		}
	}
}
