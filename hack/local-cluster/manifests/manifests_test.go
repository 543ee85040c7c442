package manifests

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"testing"

	"sigs.k8s.io/yaml"
)

// The API server calls catalogd's webhook only if it trusts the certificate.
func TestOLMV1CABundleVerifiesCertificatesInSecrets(t *testing.T) {
	secrets, caBundle, err := OLMV1Certificate()
	if err != nil {
		t.Fatal(err)
	}
	var list struct {
		Items []struct {
			Metadata struct{ Name string }
			Data     map[string]string
		}
	}
	if err := yaml.Unmarshal([]byte(secrets), &list); err != nil {
		t.Fatal(err)
	}
	servers := map[string]string{
		"catalogd-service-cert-git-version": "catalogd-service.olmv1-system.svc",
		"olmv1-cert":                        "operator-controller-service.olmv1-system.svc",
	}
	if len(list.Items) != len(servers) {
		t.Fatalf("OLMV1Certificate() returned %d Secrets, want %d", len(list.Items), len(servers))
	}
	for _, secret := range list.Items {
		pair, err := tls.X509KeyPair(decode(t, secret.Data["tls.crt"]), decode(t, secret.Data["tls.key"]))
		if err != nil {
			t.Fatal(err)
		}
		for _, ca := range []string{caBundle, secret.Data["ca.crt"]} {
			roots := x509.NewCertPool()
			roots.AppendCertsFromPEM(decode(t, ca))
			server := servers[secret.Metadata.Name]
			if _, err := pair.Leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: server}); err != nil {
				t.Errorf("Secret %s: certificate for %s: %v, want it to verify", secret.Metadata.Name, server, err)
			}
		}
	}
}

func decode(t *testing.T, text string) []byte {
	t.Helper()
	decoded, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	return decoded
}
