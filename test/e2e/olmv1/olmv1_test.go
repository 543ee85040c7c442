//go:build e2e

package olmv1

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kkloud-io/echo-operator/hack/catalog/releases"
	. "github.com/kkloud-io/echo-operator/test/e2e/internal/cluster"
	"github.com/kkloud-io/echo-operator/test/e2e/internal/olm"
	"github.com/kkloud-io/echo-operator/test/e2e/internal/workload"
)

// The specs share the cluster's only ClusterExtension. Each starts and ends without the operator.
var _ = Describe("OLM v1", Serial, func() {
	It("upgrades the predecessor to this tree, and on to the next major version, without an effect on Echoes", func() {
		install(catalog.Channel("candidate"), catalog.Predecessor)
		Expect(Kubectl("-n", operatorNamespace, "get", operator, "-o", "jsonpath={.spec.template.spec.containers[0].env[*].name}")).
			NotTo(ContainSubstring("OPERATOR_CONDITION_NAME"))
		w := workload.New("olmv1-upgrade")
		upgrade(w, catalog.Channel("stable"), catalog.Predecessor, catalog.Tree, catalog.Tree)
		upgraded, err := objects()
		Expect(err).NotTo(HaveOccurred())
		upgrade(w, catalog.NextChannel("stable"), catalog.Tree, catalog.NextMajor, "")

		By("comparing with a new installation of this tree")
		uninstall()
		install(catalog.Channel("stable"), catalog.Tree)
		Expect(objects()).To(Equal(upgraded), "objects of a new installation, and those after the upgrade")
	})

	It("replaces a broken release by the fixed one, without an effect on Echoes", func() {
		install("broken", catalog.Tree)
		w := workload.New("olmv1-broken")
		before := w.Observe()
		Patch(extension(), source("broken", ""))
		Eventually(progress).Should(Equal("installed " + catalog.Broken))
		w.ExerciseOperator() // The old operator runs until the new one is ready.
		Patch(extension(), source("fixed", ""))
		awaitVersion(catalog.Fixed)
		w.ExerciseOperator()
		w.ExpectUnaffected(before, releases.NoServers)
	})

	It("deletes the Echoes with the ClusterExtension, unless they are orphaned", func() {
		install(catalog.Channel("stable"), catalog.Tree)
		w := workload.New("olmv1-removal")
		before := w.Observe()

		By("stopping OLM, orphaning the objects, deleting the operator manually, and starting OLM")
		scale := func(replicas string) {
			Kubectl("-n", "olmv1-system", "scale", olmController, "--replicas="+replicas)
		}
		DeferCleanup(scale, "1")
		scale("0")
		Kubectl("-n", "olmv1-system", "wait", "--for=delete", "pod", "-l", "control-plane=operator-controller-controller-manager", "--timeout=2m")
		Kubectl("patch", "clusterextension", "echo-operator", "--type=merge", "-p", `{"metadata":{"finalizers":null}}`)
		Kubectl("delete", "clusterextension", "echo-operator", "--cascade=orphan")
		Kubectl("-n", operatorNamespace, "delete", "deployments,services,serviceaccounts,poddisruptionbudgets", "-l", owner+"=echo-operator")
		Kubectl("delete", "clusterroles,clusterrolebindings", "-l", owner+"=echo-operator")
		Kubectl("-n", "olmv1-system", "delete", "secrets", "-l", "owner=operator-controller,name=echo-operator")
		scale("1")
		Kubectl("-n", "olmv1-system", "rollout", "status", olmController, "--timeout=2m")
		Eventually(Pods).WithArguments(operatorNamespace, "").Should(BeEmpty())
		Consistently(func() string { return Kubectl("get", crd, "-o", "jsonpath={.metadata.ownerReferences}") }, "5s", "2s").Should(BeEmpty())
		w.ExpectUnaffected(before, releases.NoServers)

		By("installing the operator again over the orphaned objects")
		install(catalog.Channel("stable"), catalog.Tree)
		w.ExerciseOperator()
		w.ExpectUnaffected(before, releases.NoServers)

		By("deleting the ClusterExtension with its dependents")
		uninstall()
		Kubectl("-n", w.Namespace, "wait", "--for=delete", ChildResources()+",pods", "-l", "kkloud.io/echo", "--timeout=2m")
	})
})

// owner is the label of the objects that OLM installs for the ClusterExtension.
const owner = "olm.operatorframework.io/owner-name"

func objects() ([]string, error) { return olm.Objects(operatorNamespace, owner, "echo-operator") }

// extension returns an empty ClusterExtension, to read or to patch it.
func extension() *unstructured.Unstructured {
	extension := &unstructured.Unstructured{}
	extension.SetAPIVersion("olm.operatorframework.io/v1")
	extension.SetKind("ClusterExtension")
	extension.SetName("echo-operator")
	return extension
}

// install installs one version and waits until its operator runs. At the end of the spec, the ClusterExtension and
// its dependents are deleted.
func install(channel, version string) {
	GinkgoHelper()
	Apply("", Kubectl("patch", "--local", "-f", manifests+"clusterextension.yaml", "-o", "json", "--type=merge", "-p", source(channel, version)))
	DeferCleanup(uninstall)
	awaitVersion(version)
}

// uninstall deletes the ClusterExtension and its dependents.
func uninstall() {
	GinkgoHelper()
	Kubectl("delete", "clusterextension", "echo-operator", "--ignore-not-found")
	Eventually(objects).Should(BeEmpty())
	Eventually(Pods).WithArguments(operatorNamespace, "").Should(BeEmpty())
	// The operator may lose its permissions before it releases the lease; the next one would wait.
	Kubectl("-n", operatorNamespace, "delete", "leases", "--all")
}

// upgrade makes OLM upgrade from one version to another, pinned or not, and checks that this does
// not affect the workload.
func upgrade(w workload.Workload, channel, from, to, pin string) {
	GinkgoHelper()
	does, err := releases.Upgrade(from, to)
	Expect(err).NotTo(HaveOccurred())
	if does.TightensCRD {
		Patch(extension(), `{"spec":{"install":{"preflight":{"crdUpgradeSafety":{"enforcement":"None"}}}}}`)
	}
	before := w.Observe()
	Patch(extension(), source(channel, pin))
	awaitVersion(to)
	w.ExerciseOperator()
	AddReportEntry(fmt.Sprintf("%s to %s: requests | failed | restarted servers: %s", from, to, w.ExpectUnaffected(before, does.RollsServers)))
}

// awaitVersion waits until OLM reports the version as installed, and only its operator runs.
func awaitVersion(version string) {
	GinkgoHelper()
	Eventually(progress).Should(Equal("installed " + version))
	Kubectl("-n", operatorNamespace, "rollout", "status", operator, "--timeout=120s")
	Eventually(Pods).WithArguments(operatorNamespace, "").Should(HaveLen(2), "pods of the operator")
}

// source returns a patch of a ClusterExtension that pins the version, or selects the newest of the channel. It also names the
// service account that OLM v1.2.0 needs.
func source(channel, version string) string {
	selection := map[string]any{"channels": []string{channel}, "version": nil}
	if version != "" {
		selection["version"] = version
	}
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{
		"serviceAccount": map[string]any{"name": "installer"}, "source": map[string]any{"catalog": selection}}})
	Expect(err).NotTo(HaveOccurred())
	return string(patch)
}

// progress returns "installed" and the version, or the messages of the conditions.
func progress() (string, error) {
	object := extension()
	if err := Client().Get(context.Background(), client.ObjectKeyFromObject(object), object); err != nil {
		return "", err
	}
	var read struct {
		Status struct {
			Install    struct{ Bundle struct{ Version string } }
			Conditions []metav1.Condition
		}
	}
	text, err := object.MarshalJSON()
	if err != nil {
		return "", err
	}
	if err := json.Unmarshal(text, &read); err != nil {
		return "", err
	}
	succeeded := 0
	var messages []string
	for _, condition := range read.Status.Conditions {
		if condition.Type != "Installed" && condition.Type != "Progressing" {
			continue
		}
		if condition.Status == "True" && condition.Reason == "Succeeded" && condition.ObservedGeneration == object.GetGeneration() {
			succeeded++
		}
		messages = append(messages, fmt.Sprintf("%s %s: %s", condition.Type, condition.Reason, condition.Message))
	}
	if succeeded == 2 {
		return "installed " + read.Status.Install.Bundle.Version, nil
	}
	return strings.Join(messages, "\n"), nil
}
