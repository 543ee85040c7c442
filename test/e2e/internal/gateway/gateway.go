// Package gateway requests URLs through the Gateway of the local cluster, and installs and removes
// the Gateway API. hack/local-cluster/manifests/gateway.yaml describes the Gateway.
package gateway

import (
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"github.com/kkloud-io/echo-operator/test/e2e/internal/cluster"
)

const (
	// Name of the Gateway.
	Name = "public"
	// Namespace of the Gateway.
	Namespace = "gateways"

	// HTTP is the listener that accepts routes of all namespaces.
	HTTP = "http"
	// SameNamespace is the listener that accepts only routes of the Gateway's namespace.
	SameNamespace = "same-namespace"
	// Example is the listener for the hostnames *.example.com.
	Example = "example"

	// GatewayClasses is the name of a CRD.
	GatewayClasses = "gatewayclasses.gateway.networking.k8s.io"
)

const (
	// traefik is the name of the namespace, the Deployment and the Service of Traefik.
	traefik = "traefik"

	// timeout is the limit for one request.
	timeout = 5 * time.Second

	// interval is the time between two repeated requests.
	interval = 50 * time.Millisecond

	// programmed is the time in which Traefik applies a change of a route or its endpoints.
	programmed = 20 * time.Second
)

// Install installs the Gateway API, Traefik and the Gateway, or what is missing of them. It waits
// until the Gateway has an address.
func Install() {
	ginkgo.GinkgoHelper()
	output, err := exec.Command("../../bin/local-cluster", "gateway").CombinedOutput()
	gomega.Expect(err).NotTo(gomega.HaveOccurred(), string(output))
	gomega.Expect(cluster.Kubectl("-n", Namespace, "get", "gateway", Name, "-o", "jsonpath={.status.addresses[*].value}")).
		NotTo(gomega.BeEmpty(), "addresses of Gateway %s/%s", Namespace, Name)
}

// InstallCRD installs one CRD of the Gateway API, from the file that the local cluster installs.
func InstallCRD(name string) {
	ginkgo.GinkgoHelper()
	manifests, err := os.ReadFile("../../bin/gateway-api.yaml")
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	for manifest := range strings.SplitSeq(string(manifests), "\n---\n") {
		var crd apiextensionsv1.CustomResourceDefinition
		gomega.Expect(yaml.Unmarshal([]byte(manifest), &crd)).To(gomega.Succeed())
		if crd.Name != name {
			continue
		}
		output, err := cluster.TryKubectl(manifest, "apply", "--server-side", "-f", "-")
		gomega.Expect(err).NotTo(gomega.HaveOccurred(), output)
		cluster.Kubectl("wait", "--for=condition=Established", "crd/"+name, "--timeout=30s")
		return
	}
	ginkgo.Fail("bin/gateway-api.yaml does not contain the CRD " + name)
}

// Remove deletes the CRDs of the Gateway API, and with them every Gateway and route.
func Remove() {
	ginkgo.GinkgoHelper()
	crds := strings.Fields(cluster.Kubectl("get", "crd", "-o", `jsonpath={.items[?(@.spec.group=="gateway.networking.k8s.io")].metadata.name}`))
	if len(crds) == 0 {
		return
	}
	// The API server initializes the storage of a kind at the first request. Without it, the deletion takes minutes.
	cluster.Kubectl("get", strings.Join(crds, ","), "--all-namespaces")
	cluster.Kubectl(append([]string{"delete", "crd", "--timeout=60s"}, crds...)...)
}

// Stop stops Traefik, which then answers no request and no route. Clients have to connect again.
func Stop() {
	ginkgo.GinkgoHelper()
	cluster.Kubectl("-n", traefik, "scale", "deployment", traefik, "--replicas=0")
	cluster.Kubectl("-n", traefik, "wait", "--for=delete", "pod", "--selector=app.kubernetes.io/name="+traefik, "--timeout=60s")
}

// Start starts Traefik again.
func Start() {
	ginkgo.GinkgoHelper()
	cluster.Kubectl("-n", traefik, "scale", "deployment", traefik, "--replicas=1")
	cluster.Kubectl("-n", traefik, "rollout", "status", "deployment", traefik, "--timeout=60s")
}
