// Package manifests contains the manifests of objects that local-cluster applies. `make` creates
// those of OLM, OLM v1 and the Gateway API from their Go modules.
package manifests

import (
	_ "embed"
	"encoding/base64"
	"fmt"

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

// Gateway provides Traefik, which implements the Gateway API, and a Gateway.
//
//go:embed gateway.yaml
var Gateway string

// The Deployments of OLM v1 mount these Secrets.
const olmV1Secrets = `apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: Secret
  metadata: {name: catalogd-service-cert-git-version, namespace: olmv1-system}
  type: kubernetes.io/tls
  data: &credentials {ca.crt: %[1]s, tls.crt: %[1]s, tls.key: %[2]s}
- apiVersion: v1
  kind: Secret
  metadata: {name: olmv1-cert, namespace: olmv1-system}
  type: kubernetes.io/tls
  data: *credentials
`

// OLMV1Certificate issues a certificate for the servers of OLM v1. It returns the Secrets with
// the certificate, and the base64-encoded CA bundle that verifies it.
func OLMV1Certificate() (secrets, caBundle string, err error) {
	chain, key, err := cert.GenerateSelfSignedCertKey("catalogd-service.olmv1-system.svc", nil,
		[]string{"operator-controller-service.olmv1-system.svc"})
	if err != nil {
		return "", "", fmt.Errorf("issue the certificate of OLM v1: %w", err)
	}
	// The CA certificate is the last one of the chain.
	caBundle = base64.StdEncoding.EncodeToString(chain)
	return fmt.Sprintf(olmV1Secrets, caBundle, base64.StdEncoding.EncodeToString(key)), caBundle, nil
}
