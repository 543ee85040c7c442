// Package manifests contains the manifests that `up` and `olm-v1` apply.
package manifests

import (
	_ "embed"
	"encoding/base64"
	"fmt"
	"strings"
	"text/template"

	"k8s.io/client-go/util/cert"
)

// Kubeadm contains the objects that the phases of kubeadm in use do not create.
//
//go:embed kubeadm.yaml
var Kubeadm string

// CoreDNS provides the DNS of the cluster.
//
//go:embed coredns.yaml
var CoreDNS string

// OLMV1 is OLM v1 without its CRDs and certificates.
//
//go:embed olm-v1.yaml
var OLMV1 string

//go:embed olm-v1-certificates.yaml
var olmV1Certificates string

// OLMV1Certificates returns a Secret with the certificate of catalogd, and the webhook
// configuration that trusts it.
func OLMV1Certificates() (string, error) {
	// The certificate is followed by that of the CA that signed it.
	chain, key, err := cert.GenerateSelfSignedCertKey("catalogd-service.olmv1-system.svc", nil, nil)
	if err != nil {
		return "", fmt.Errorf("issue the certificate of catalogd: %w", err)
	}
	parsed, err := template.New("olm-v1-certificates").Parse(olmV1Certificates)
	if err != nil {
		return "", fmt.Errorf("parse the manifest of OLM v1's certificates: %w", err)
	}
	encode := base64.StdEncoding.EncodeToString
	var stream strings.Builder
	err = parsed.Execute(&stream, struct{ Chain, Key string }{encode(chain), encode(key)})
	return stream.String(), err
}
