//go:build e2e

package olmv1

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/blang/semver/v4"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kkloud-io/echo-operator/hack/catalog/releases"
	"github.com/kkloud-io/echo-operator/test/e2e/internal/catalog"
	. "github.com/kkloud-io/echo-operator/test/e2e/internal/cluster"
	"github.com/kkloud-io/echo-operator/test/e2e/internal/users"
)

// The specs run in this order, each from an empty cluster to an empty cluster.
var _ = Describe("OLM v1", Ordered, ContinueOnFailure, func() {
	var err error
	if offer, err = catalog.Read(catalogDir); err != nil {
		panic(err)
	}
	if released, err = releases.Load(); err != nil {
		panic(err)
	}
	// fresh is what each version consists of when it is installed anew.
	fresh := map[string][]string{}

	Describe("installs", func() {
		for _, version := range offer.Versions() {
			It(version.String(), func() {
				install(offer.Offering(version).Name, version)
				fresh[version.String()] = objects()
				Expect(Kubectl("-n", operatorNamespace, "get", operator, "-o", "jsonpath={.spec.template.spec.containers[0].env[*].name}")).
					NotTo(ContainSubstring("OPERATOR_CONDITION_NAME"))
			})
		}
	})

	Describe("upgrades", Label("every-edge"), func() {
		for _, edge := range offer.Edges() {
			labels := Label()
			if next, _ := offer.Channel("candidate-v0").Next(edge.From); next.Equals(edge.To) {
				labels = Label("walk") // The channel that goes through all versions.
			}
			It(fmt.Sprintf("%s to %s", edge.From, edge.To), labels, func() {
				install(edge.Channel, edge.From)
				u := users.New("olmv1-" + dashed(edge.From) + "-to-" + dashed(edge.To))
				upgrade(u, edge.Channel, edge.From, edge.To, edge.To.String())
				Expect(objects()).To(Equal(fresh[edge.To.String()]), "what is there is that of %s, and nothing else", edge.To)
			})
		}
		for _, version := range offer.Versions() {
			channel := offer.Offering(version).Name
			head := offer.Offering(version).Head()
			if version.Equals(head) {
				continue
			}
			It(fmt.Sprintf("%s to the head of %s, by itself", version, channel), func() {
				install(channel, version)
				u := users.New("olmv1-" + dashed(version) + "-to-head")
				upgrade(u, channel, version, head, "")
				Expect(objects()).To(Equal(fresh[head.String()]), "what is there is that of %s, and nothing else", head)
			})
		}
	})

	It("refuses a definition that has lost a field", func() {
		By("giving the one that is there a field more")
		definition := Kubectl("patch", "--local", "-f", "../../../config/crd/bases/kkloud.io_echoes.yaml", "-o", "json", "--type=json", "-p", `[
			{"op": "add", "path": "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/lost", "value": {"type": "string"}},
			{"op": "add", "path": "/metadata/labels", "value": {"app.kubernetes.io/managed-by": "Helm"}},
			{"op": "add", "path": "/metadata/annotations/meta.helm.sh~1release-name", "value": "echo-operator"},
			{"op": "add", "path": "/metadata/annotations/meta.helm.sh~1release-namespace", "value": "`+operatorNamespace+`"}]`)
		output, err := TryKubectl(definition, "create", "-f", "-")
		Expect(err).NotTo(HaveOccurred(), output)
		DeferCleanup(func() { Kubectl("delete", crd, "--ignore-not-found") })

		newest := offer.Versions()[len(offer.Versions())-1]
		create(offer.Offering(newest).Name, newest.String())
		Eventually(progress).Should(SatisfyAll(ContainSubstring("NoExistingFieldRemoved"), ContainSubstring("lost")))
		Expect(progress()).NotTo(HavePrefix("installed"))
		Expect(objects()).To(BeEmpty())

		By("taking it away")
		Kubectl("delete", crd)
		Eventually(progress).Should(Equal("installed " + newest.String()))
	})

	It("removes the Echoes with the operator, unless they are orphaned", func() {
		newest := offer.Versions()[len(offer.Versions())-1]
		install(offer.Offering(newest).Name, newest)
		u := users.New("olmv1-removal")
		before := u.Look()

		By("taking from OLM the right to go on, orphaning everything, and removing the operator by hand")
		// OLM v1.2.0 does not stop at once. It would make the definition a dependent of the
		// ClusterExtension again, and the garbage collector would remove it, and every Echo.
		Kubectl("delete", "-f", filepath.Join(manifests, "installer.yaml"))
		Kubectl("delete", "clusterextension", "echo-operator", "--cascade=orphan")
		Kubectl("-n", operatorNamespace, "delete", "deployments,services,serviceaccounts", "-l", owned)
		Kubectl("delete", "clusterroles,clusterrolebindings", "-l", owned)
		Kubectl("-n", "olmv1-system", "delete", "secrets", "-l", "owner=operator-controller,name=echo-operator")
		Eventually(operatorPods).Should(BeEmpty())
		Consistently(func() string { return Kubectl("get", crd, "-o", "jsonpath={.metadata.ownerReferences}") }, "5s").Should(BeEmpty())
		u.Check(before, false)

		By("installing it again over what was left")
		Kubectl("apply", "-f", filepath.Join(manifests, "installer.yaml"))
		install(offer.Offering(newest).Name, newest)
		u.TryOperator()
		u.Check(before, false)

		By("removing it with everything")
		Kubectl("delete", "clusterextension", "echo-operator")
		Eventually(objects).Should(BeEmpty())
		Eventually(operatorPods).Should(BeEmpty())
		Eventually(func() string {
			return Kubectl("-n", u.Namespace, "get", "deployments,services,pods", "-l", "kkloud.io/echo", "-o", "name")
		}).Should(BeEmpty())
	})
})

// owned selects what OLM has installed for the ClusterExtension.
const owned = "olm.operatorframework.io/owner-name=echo-operator"

// create creates the ClusterExtension, with one version if that is given, and removes it in
// the end, with all that it has installed.
func create(channel, version string) {
	GinkgoHelper()
	Apply(operatorNamespace, Kubectl("patch", "--local", "-f", filepath.Join(manifests, "clusterextension.yaml"),
		"-o", "json", "--type=merge", "-p", wanted(channel, version)))
	DeferCleanup(func() {
		Kubectl("delete", "clusterextension", "echo-operator", "--ignore-not-found")
		Eventually(objects).Should(BeEmpty())
		Eventually(operatorPods).Should(BeEmpty())
		// The operator may lose its rights before it gives up the lead; the next one would wait.
		Kubectl("-n", operatorNamespace, "delete", "leases", "--all")
	})
}

// install installs one version and waits until its operator runs.
func install(channel string, version semver.Version) {
	GinkgoHelper()
	start := time.Now()
	create(channel, version.String())
	awaitVersion(version)
	AddReportEntry(fmt.Sprintf("installed %s in %.1f s", version, time.Since(start).Seconds()))
}

// upgrade lets OLM go from one version to the other, pinned or not, and checks that nobody
// has noticed.
func upgrade(u users.Users, channel string, from, to semver.Version, pin string) {
	GinkgoHelper()
	before := u.Look()
	start := time.Now()
	Kubectl("patch", "clusterextension", "echo-operator", "--type=merge", "-p", wanted(channel, pin))
	awaitVersion(to)
	took := time.Since(start)

	By("letting the new operator act")
	u.TryOperator()
	by := "unpinned"
	if pin != "" {
		by = "pinned"
	}
	hops = append(hops, fmt.Sprintf("| %s | %s | %s, %s | %.1f s | %s |", from, to, channel, by, took.Seconds(),
		u.Check(before, releases.Rolls(released, from, to))))
}

// awaitVersion waits until OLM is content and no other operator runs than that of the version.
func awaitVersion(version semver.Version) {
	GinkgoHelper()
	Eventually(progress).Should(Equal("installed " + version.String()))
	image := offer.Image(version)
	Expect(Kubectl("-n", operatorNamespace, "get", operator, "-o", "jsonpath={.spec.template.spec.containers[*].image}")).To(Equal(image))
	Kubectl("-n", operatorNamespace, "rollout", "status", operator, "--timeout=120s")
	Eventually(operatorPods).Should(Equal(image))
}

// operatorPods lists the pods of the operator, by their images.
func operatorPods() string {
	GinkgoHelper()
	return Kubectl("-n", operatorNamespace, "get", "pods", "-o", "jsonpath={.items[*].spec.containers[*].image}")
}

// wanted is the patch by which a ClusterExtension asks for a version, or for the newest.
func wanted(channel, version string) string {
	selection := map[string]any{"channels": []string{channel}, "version": nil}
	if version != "" {
		selection["version"] = version
	}
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"source": map[string]any{"catalog": selection}}})
	Expect(err).NotTo(HaveOccurred())
	return string(patch)
}

// progress says "installed" and the version, or why that is not so.
func progress() string {
	GinkgoHelper()
	var extension struct {
		Metadata struct{ Generation int64 }
		Status   struct {
			Install    struct{ Bundle struct{ Version string } }
			Conditions []struct {
				Type, Status, Reason, Message string
				ObservedGeneration            int64
			}
		}
	}
	Expect(json.Unmarshal([]byte(Kubectl("get", "clusterextension", "echo-operator", "-o", "json")), &extension)).To(Succeed())
	content := 0
	var messages []string
	for _, condition := range extension.Status.Conditions {
		if condition.Type != "Installed" && condition.Type != "Progressing" {
			continue
		}
		if condition.Status == "True" && condition.Reason == "Succeeded" && condition.ObservedGeneration == extension.Metadata.Generation {
			content++
		}
		messages = append(messages, fmt.Sprintf("%s %s: %s", condition.Type, condition.Reason, condition.Message))
	}
	if content == 2 {
		return "installed " + extension.Status.Install.Bundle.Version
	}
	return strings.Join(messages, "\n")
}

// objects lists what OLM has installed.
func objects() []string {
	GinkgoHelper()
	names := Kubectl("get", "customresourcedefinitions,clusterroles,clusterrolebindings", "-l", owned, "-o", "name") +
		Kubectl("-n", operatorNamespace, "get", "deployments,services,serviceaccounts,roles,rolebindings", "-l", owned, "-o", "name")
	return slices.Sorted(strings.FieldsSeq(names))
}

func dashed(version semver.Version) string { return strings.ReplaceAll(version.String(), ".", "-") }
