//go:build e2e

package helm

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/hack/catalog/releases"
	. "github.com/kkloud-io/echo-operator/test/e2e/internal/cluster"
	"github.com/kkloud-io/echo-operator/test/e2e/internal/olm"
	"github.com/kkloud-io/echo-operator/test/e2e/internal/workload"
)

// wait makes helm wait for the objects of the release in its namespace.
var wait = []string{"--namespace", operatorNamespace, "--wait", "--timeout", "3m"}

func install(args ...string) string {
	GinkgoHelper()
	return Helm(slices.Concat([]string{"install", "echo-operator"}, args, wait)...)
}

var _ = Describe("Helm", Serial, func() {
	AfterEach(removeOperator)

	It("installs, upgrades, rolls back and removes the operator by the commands of docs/helm.md", func() {
		page, err := os.ReadFile(root + "/docs/helm.md")
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func() { Kubectl("delete", "namespace", "echo-demo", "--ignore-not-found") })
		var outputs []string
		// A mark in place of the empty line makes a block an example.
		for _, block := range regexp.MustCompile("(?s)\n\n```sh\n(.*?)\n```").FindAllStringSubmatch(string(page), -1) {
			outputs = append(outputs, shell(block[1]))
		}
		Expect(outputs).To(HaveLen(6))
		Expect(outputs[0]).To(ContainSubstring("helm uninstall keeps the CRD and all Echoes"))
		Expect(outputs[1]).To(HaveSuffix("xin chao operator\n"))
		Expect(remains("echo-operator")).To(BeEmpty())
	})

	It("upgrades the predecessor, rolls back, uninstalls and installs again without an effect on Echoes", func() {
		catalog, err := olm.Read(root)
		Expect(err).NotTo(HaveOccurred())
		does, err := releases.Upgrade(catalog.Predecessor, catalog.Tree)
		Expect(err).NotTo(HaveOccurred())
		NewNamespace(operatorNamespace)
		install(predecessor(catalog)...)
		w := workload.New("helm-upgrade")
		before := w.Observe()
		expectUnaffected := func(step string, rolled releases.Servers) {
			GinkgoHelper()
			AddReportEntry(step + ": requests | failed | restarted servers: " + w.ExpectUnaffected(before, rolled))
			before = w.Observe()
		}

		By("upgrading to " + catalog.Tree)
		old := image()
		Helm(slices.Concat([]string{"upgrade", "echo-operator", chart, "--reset-values"}, wait)...)
		upgraded := image()
		Expect(upgraded).NotTo(Equal(old))
		w.ExerciseOperator()
		expectUnaffected("upgrade", does.RollsServers)

		By("rolling back")
		Helm(slices.Concat([]string{"rollback", "echo-operator"}, wait)...)
		Expect(image()).To(Equal(old))
		w.ExerciseOperator()
		expectUnaffected("rollback", does.RollsServers)

		By("uninstalling")
		Helm("uninstall", "echo-operator", "--namespace", operatorNamespace, "--wait")
		Expect(remains("echo-operator")).To(ConsistOf("customresourcedefinition.apiextensions.k8s.io/echoes.kkloud.io"))
		Eventually(Pods).WithArguments(operatorNamespace, "").Should(BeEmpty())
		Expect(strings.Fields(Kubectl("-n", operatorNamespace, "get", "secrets,services,serviceaccounts,leases,roles", "-o", "name"))).
			To(ConsistOf("serviceaccount/default", "lease.coordination.k8s.io/echo-operator.kkloud.io"))

		By("installing " + catalog.Tree + " over what remains")
		install(chart)
		Expect(image()).To(Equal(upgraded))
		w.ExerciseOperator()
		expectUnaffected("removal and another installation", does.RollsServers)

		By("uninstalling with the CRD")
		Helm(slices.Concat([]string{"upgrade", "echo-operator", chart, "--set", "crds.keep=false"}, wait)...)
		Helm("uninstall", "echo-operator", "--namespace", operatorNamespace, "--wait")
		Eventually(remains).WithArguments("echo-operator").Should(BeEmpty()) // The CRD is deleted after its Echoes.
		Kubectl("-n", w.Namespace, "wait", "--for=delete", ChildResources()+",pods", "-l", "kkloud.io/echo", "--timeout=2m")
	})

	It("takes the operator over from OLM and kubectl, and gives it back, without an effect on Echoes", func() {
		ways := map[string]struct{ install, uninstall func() }{
			"Helm": {
				func() { install(chart, "--take-ownership") },
				func() { Helm("uninstall", "echo-operator", "--namespace", operatorNamespace, "--wait") },
			},
			"OLM": {
				func() {
					Kubectl("apply", "-k", root+"/config/olm")
					subscription := []string{"-n", operatorNamespace, "wait", "subscription/echo-operator", "--timeout=3m"}
					Kubectl(append(subscription, "--for=jsonpath={.status.state}=AtLatestKnown")...)
					Kubectl("-n", operatorNamespace, "wait", "csv", "--all", "--timeout=3m", "--for=jsonpath={.status.phase}=Succeeded")
				},
				func() { Kubectl("-n", operatorNamespace, "delete", "subscriptions,csv", "--all") },
			},
			"kubectl": {
				func() { Kubectl("apply", "--server-side", "-k", root+"/config/default") },
				func() {
					objects := slices.DeleteFunc(strings.Fields(Kubectl("create", "--dry-run=client", "-k", root+"/config/default", "-o", "name")),
						func(name string) bool {
							return strings.HasPrefix(name, "customresourcedefinition") || strings.HasPrefix(name, "namespace")
						})
					Kubectl(append([]string{"-n", operatorNamespace, "delete", "--ignore-not-found"}, objects...)...)
				},
			},
		}
		DeferCleanup(func() {
			Kubectl("delete", "-k", root+"/config/olm", "--ignore-not-found")
			Kubectl("delete", "-f", root+"/config/olm/catalogsource.yaml", "--ignore-not-found")
			Kubectl("delete", "clusterroles", "-l", "app.kubernetes.io/name=echo-operator,olm.managed=true")
			Kubectl("delete", "-k", root+"/config/default", "--ignore-not-found")
		})
		Kubectl("apply", "-f", root+"/config/olm/catalogsource.yaml")
		Kubectl("-n", "olm", "wait", "catalogsource/echo-operator", "--for=jsonpath={.status.connectionState.lastObservedState}=READY", "--timeout=5m")
		NewNamespace(operatorNamespace)
		install(chart)
		w := workload.New("helm-takeover")
		before := w.Observe()

		By("scaling the operator with kubectl")
		Kubectl("-n", operatorNamespace, "scale", operator, "--replicas=1")
		upgrade := slices.Concat([]string{"upgrade", "echo-operator", chart}, wait)
		output, err := TryHelm(upgrade...)
		Expect(err).To(HaveOccurred())
		Expect(output).To(ContainSubstring(`conflict with "kubectl"`))
		Helm(append(upgrade, "--force-conflicts")...)
		Helm(upgrade...)

		current := "Helm"
		for _, next := range []string{"OLM", "kubectl", "Helm", "kubectl", "OLM", "Helm"} {
			By("replacing " + current + " by " + next)
			ways[current].uninstall()
			ways[next].install()
			Kubectl("-n", operatorNamespace, "rollout", "status", operator, "--timeout=2m")
			w.ExerciseOperator()
			current = next
		}
		AddReportEntry("requests | failed | restarted servers: " + w.ExpectUnaffected(before, releases.NoServers))
	})

	It("limits a release to its namespaces, also beside another release", func() {
		all := []string{"helm-one", "helm-two", "helm-three"}
		for _, namespace := range all {
			NewNamespace(namespace)
		}
		notes := install(chart, "--create-namespace", "--set", "watchNamespaces={helm-one,helm-two}")
		By("creating the Echo of the notes")
		_, commands, _ := strings.Cut(notes, "Create one:\n")
		commands, _, found := strings.Cut(commands, "helm uninstall keeps")
		Expect(found).To(BeTrue(), notes)
		shell(commands)
		Expect(Kubectl("-n", "helm-one", "delete", "echo", "hello")).NotTo(BeEmpty())

		By("creating Echoes in every namespace")
		for _, namespace := range all {
			CreateEcho(namespace, "hello", echov1.EchoSpec{Message: namespace})
		}
		expectServed(all[:2]...)
		Expect(Kubectl("-n", "helm-three", "get", "echo", "hello", "-o", "jsonpath={.status}")).To(Equal(`{"observedGeneration":-1}`))
		for namespace, want := range map[string]string{"helm-one": "yes", "helm-three": "no", operatorNamespace: "no"} {
			output, _ := TryKubectl("", "-n", namespace, "auth", "can-i", "create", "deployments",
				"--as=system:serviceaccount:"+operatorNamespace+":echo-operator-controller-manager")
			Expect(strings.TrimSpace(output)).To(Equal(want), "permission to create Deployments in %s", namespace)
		}

		By("installing another release")
		NewNamespace("helm-other")
		other := []string{"install", "team", chart, "--namespace", "helm-other", "--set", "watchNamespaces={helm-three}", "--wait"}
		output, err := TryHelm(other...)
		Expect(err).To(HaveOccurred())
		Expect(output).To(ContainSubstring(`CustomResourceDefinition "echoes.kkloud.io"`))
		Expect(output).To(ContainSubstring(`must equal "team"`))
		DeferCleanup(func() { Helm("uninstall", "team", "--namespace", "helm-other", "--wait") })
		Helm(append(other, "--set", "crds.enabled=false")...)
		expectServed(all...)

		By("adding a namespace")
		Kubectl("-n", "helm-three", "delete", "echo", "hello")
		Helm("upgrade", "team", chart, "--namespace", "helm-other", "--reuse-values", "--set", "watchNamespaces={helm-other}", "--wait")
		CreateEcho("helm-other", "hello", echov1.EchoSpec{Message: "helm-other"})
		expectServed("helm-other")
		Expect(Kubectl("-n", "helm-three", "get", "rolebindings", "-o", "name")).To(BeEmpty())
	})
})

// shell runs commands in the root of the repository, and returns their output.
func shell(commands string) string {
	GinkgoHelper()
	start := time.Now()
	command := exec.Command("bash", "-euo", "pipefail", "-c", commands) //nolint:gosec // They are those of the page and of the notes.
	command.Dir = root
	output, err := command.CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), "%s\n%s", commands, output)
	AddReportEntry(fmt.Sprintf("%.1f s: %s", time.Since(start).Seconds(), commands))
	return string(output)
}

// image returns the image of the operator.
func image() string {
	GinkgoHelper()
	return Kubectl("-n", operatorNamespace, "get", operator, "-o", "jsonpath={.spec.template.spec.containers[0].image}")
}

// expectServed checks that the Echo hello responds with the name of its namespace.
func expectServed(namespaces ...string) {
	GinkgoHelper()
	for _, namespace := range namespaces {
		WaitReady(namespace, "hello")
		ExpectResponse(namespace, "hello", "80", http.StatusOK, Equal(namespace+"\n"))
	}
}

// remains lists the objects of a release in the whole cluster.
func remains(release string) []string {
	GinkgoHelper()
	const kinds = "deployments,services,serviceaccounts,networkpolicies,roles,rolebindings,clusterroles,clusterrolebindings,crds,configmaps"
	return strings.Fields(Kubectl("get", kinds, "--all-namespaces", "-l", "app.kubernetes.io/instance="+release, "-o", "name"))
}
