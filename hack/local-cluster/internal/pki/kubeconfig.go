package pki

import (
	"encoding/base64"
	"fmt"
)

const kubeconfig = `apiVersion: v1
kind: Config
clusters:
- name: local-cluster
  cluster:
    server: %s
    certificate-authority-data: %s
users:
- name: local-cluster
  user:
    client-certificate-data: %s
    client-key-data: %s
contexts:
- name: local-cluster
  context:
    cluster: local-cluster
    user: local-cluster
current-context: local-cluster
`

// Kubeconfig returns a kubeconfig for the API server at a URL.
func Kubeconfig(server string, ca []byte, client Pair) []byte {
	encode := base64.StdEncoding.EncodeToString
	return fmt.Appendf(nil, kubeconfig, server, encode(ca), encode(client.Cert), encode(client.Key))
}
