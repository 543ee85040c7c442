package manifests

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// The API server calls catalogd's webhook only if it trusts the certificate.
func TestOLMV1WebhookConfigurationTrustsIssuedCertificate(t *testing.T) {
	stream, err := OLMV1Certificates()
	if err != nil {
		t.Fatal(err)
	}
	documents := strings.Split(stream, "\n---\n")
	if len(documents) != 2 {
		t.Fatalf("OLMV1Certificates() has %d objects, want 2: a Secret and a webhook configuration", len(documents))
	}
	var secret struct{ Data map[string]string }
	var configuration struct {
		Webhooks []struct {
			ClientConfig struct {
				CABundle string
				Service  struct{ Name, Namespace string }
			}
		}
	}
	if err := yaml.Unmarshal([]byte(documents[0]), &secret); err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal([]byte(documents[1]), &configuration); err != nil {
		t.Fatal(err)
	}
	client := configuration.Webhooks[0].ClientConfig
	pair, err := tls.X509KeyPair(decode(t, secret.Data["tls.crt"]), decode(t, secret.Data["tls.key"]))
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(decode(t, client.CABundle))
	if _, err := pair.Leaf.Verify(x509.VerifyOptions{
		Roots: roots, DNSName: client.Service.Name + "." + client.Service.Namespace + ".svc",
	}); err != nil {
		t.Errorf("certificate of catalogd: %v, want it to verify against the caBundle", err)
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
