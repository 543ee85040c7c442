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
	"github.com/kkloud-io/echo-operator/test/e2e/internal/workload"
)

// The specs run in this order. Each starts and ends without the operator.
var _ = Describe("OLM v1", Ordered, ContinueOnFailure, func() {
	var err error
	if offer, err = catalog.Read(catalogDir); err != nil {
		panic(err)
	}
	// installed lists the objects of each version after a new installation.
	installed := map[string][]string{}
	newInstallation := func(version semver.Version) []string {
		GinkgoHelper()
		if installed[version.String()] == nil {
			install(offer.Offering(version).Name, version)
			installed[version.String()] = objects()
			uninstall()
		}
		return installed[version.String()]
	}

	Describe("installs", func() {
		for _, version := range offer.Versions() {
			It(version.String(), func() {
				install(offer.Offering(version).Name, version)
				installed[version.String()] = objects()
				Expect(Kubectl("-n", operatorNamespace, "get", operator, "-o", "jsonpath={.spec.template.spec.containers[0].env[*].name}")).
					NotTo(ContainSubstring("OPERATOR_CONDITION_NAME"))
			})
		}
	})

	Describe("upgrades", Label("every-edge"), func() {
		tree := offer.Versions()[len(offer.Versions())-1]
		for _, edge := range offer.Edges() {
			if edge.To.LT(tree) {
				continue
			}
			labels := Label()
			if to, _ := offer.Channel("candidate-v0").Next(edge.From); to.Equals(tree) {
				labels = Label("step-through") // From the newest release.
			}
			It(fmt.Sprintf("%s to %s", edge.From, edge.To), labels, func() {
				want := newInstallation(edge.To)
				install(edge.Channel, edge.From)
				w := workload.New("olmv1-" + dashed(edge.From) + "-to-" + dashed(edge.To))
				upgrade(w, edge.Channel, edge.From, edge.To, edge.To.String())
				Expect(objects()).To(Equal(want), "objects of the operator after the upgrade: those of a new installation of %s", edge.To)
			})
		}
		for _, version := range offer.Versions() {
			channel := offer.Offering(version).Name
			head := offer.Offering(version).Head()
			if version.Equals(head) {
				continue
			}
			It(fmt.Sprintf("%s to the head of %s without a pinned version", version, channel), func() {
				want := newInstallation(head)
				install(channel, version)
				w := workload.New("olmv1-" + dashed(version) + "-to-head")
				upgrade(w, channel, version, head, "")
				Expect(objects()).To(Equal(want), "objects of the operator after the upgrade: those of a new installation of %s", head)
			})
		}
	})

	It("follows a change of the channel to the next major version", func() {
		tree := offer.Versions()[len(offer.Versions())-1]
		install("fast-v0", tree)
		w := workload.New("olmv1-major")
		DeferCleanup(func(before catalog.Catalog) {
			offer = before
			setCatalogImage(catalogImage)
		}, offer)
		offer, err = catalog.Read(filepath.Join(filepath.Dir(filepath.Dir(catalogDir)), "major/echo-operator"))
		Expect(err).NotTo(HaveOccurred())
		setCatalogImage(strings.TrimSuffix(catalogImage, ":next") + ":major")
		upgrade(w, "fast-v1", tree, semver.MustParse("1.1.0"), "")
	})

	It("rejects an upgrade whose CRD lacks a field of the installed CRD", func() {
		By("creating the CRD with an additional field")
		withField := Kubectl("patch", "--local", "-f", "../../../config/crd/bases/kkloud.io_echoes.yaml", "-o", "json", "--type=json", "-p", `[
			{"op": "add", "path": "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/extraField", "value": {"type": "string"}},
			{"op": "add", "path": "/metadata/labels", "value": {"app.kubernetes.io/managed-by": "Helm"}},
			{"op": "add", "path": "/metadata/annotations/meta.helm.sh~1release-name", "value": "echo-operator"},
			{"op": "add", "path": "/metadata/annotations/meta.helm.sh~1release-namespace", "value": "`+operatorNamespace+`"}]`)
		output, err := TryKubectl(withField, "create", "-f", "-")
		Expect(err).NotTo(HaveOccurred(), output)
		DeferCleanup(func() { Kubectl("delete", crd, "--ignore-not-found") })

		newest := offer.Versions()[len(offer.Versions())-1]
		create(offer.Offering(newest).Name, newest.String())
		Eventually(progress).Should(SatisfyAll(ContainSubstring("NoExistingFieldRemoved"), ContainSubstring("extraField")))
		Expect(progress()).NotTo(HavePrefix("installed"))
		Expect(objects()).To(BeEmpty())

		By("deleting that CRD")
		Kubectl("delete", crd)
		Eventually(progress).Should(Equal("installed " + newest.String()))
	})

	It("deletes the Echoes with the ClusterExtension, unless they are orphaned", func() {
		newest := offer.Versions()[len(offer.Versions())-1]
		install(offer.Offering(newest).Name, newest)
		w := workload.New("olmv1-removal")
		before := w.Observe()

		By("revoking OLM's permissions, orphaning the objects, and deleting the operator manually")
		// OLM v1.2.0 continues for a moment: it would make the ClusterExtension the owner of the
		// CRD again, and the garbage collector would delete the CRD and every Echo.
		Kubectl("delete", "-f", filepath.Join(manifests, "installer.yaml"))
		Kubectl("delete", "clusterextension", "echo-operator", "--cascade=orphan")
		Kubectl("-n", operatorNamespace, "delete", "deployments,services,serviceaccounts", "-l", owned)
		Kubectl("delete", "clusterroles,clusterrolebindings", "-l", owned)
		Kubectl("-n", "olmv1-system", "delete", "secrets", "-l", "owner=operator-controller,name=echo-operator")
		Eventually(operatorPods).Should(BeEmpty())
		Consistently(func() string { return Kubectl("get", crd, "-o", "jsonpath={.metadata.ownerReferences}") }, "5s").Should(BeEmpty())
		w.ExpectUnaffected(before, releases.NoServers)

		By("installing the operator again over the orphaned objects")
		Kubectl("apply", "-f", filepath.Join(manifests, "installer.yaml"))
		install(offer.Offering(newest).Name, newest)
		w.ExerciseOperator()
		w.ExpectUnaffected(before, releases.NoServers)

		By("deleting the ClusterExtension with its dependents")
		Kubectl("delete", "clusterextension", "echo-operator")
		Eventually(objects).Should(BeEmpty())
		Eventually(operatorPods).Should(BeEmpty())
		Eventually(func() string {
			return Kubectl("-n", w.Namespace, "get", ChildResources()+",pods", "-l", "kkloud.io/echo", "-o", "name")
		}).Should(BeEmpty())
	})
})

// owned selects the objects that OLM installs for the ClusterExtension.
const owned = "olm.operatorframework.io/owner-name=echo-operator"

// create creates the ClusterExtension, pinned to the version if it is not empty. At the end of the
// spec, the ClusterExtension and its dependents are deleted.
func create(channel, version string) {
	GinkgoHelper()
	Apply(operatorNamespace, Kubectl("patch", "--local", "-f", filepath.Join(manifests, "clusterextension.yaml"),
		"-o", "json", "--type=merge", "-p", sourcePatch(channel, version)))
	DeferCleanup(uninstall)
}

// uninstall deletes the ClusterExtension and its dependents.
func uninstall() {
	GinkgoHelper()
	Kubectl("delete", "clusterextension", "echo-operator", "--ignore-not-found")
	Eventually(objects).Should(BeEmpty())
	Eventually(operatorPods).Should(BeEmpty())
	// The operator may lose its permissions before it releases the lease; the next one would wait.
	Kubectl("-n", operatorNamespace, "delete", "leases", "--all")
}

// install installs one version and waits until its operator runs.
func install(channel string, version semver.Version) {
	GinkgoHelper()
	start := time.Now()
	create(channel, version.String())
	awaitVersion(version)
	AddReportEntry(fmt.Sprintf("installed %s in %.1f s", version, time.Since(start).Seconds()))
}

// upgrade makes OLM upgrade from one version to another, pinned or not, and checks that this does
// not affect the workload.
func upgrade(w workload.Workload, channel string, from, to semver.Version, pin string) {
	GinkgoHelper()
	does, err := releases.Upgrade(from, to)
	Expect(err).NotTo(HaveOccurred())
	if does.TightensCRD {
		Kubectl("patch", "clusterextension", "echo-operator", "--type=merge", "-p",
			`{"spec":{"install":{"preflight":{"crdUpgradeSafety":{"enforcement":"None"}}}}}`)
	}
	before := w.Observe()
	start := time.Now()
	Kubectl("patch", "clusterextension", "echo-operator", "--type=merge", "-p", sourcePatch(channel, pin))
	awaitVersion(to)
	took := time.Since(start)

	By("checking that the new operator reconciles")
	w.ExerciseOperator()
	selection := "unpinned"
	if pin != "" {
		selection = "pinned"
	}
	upgrades = append(upgrades, fmt.Sprintf("| %s | %s | %s, %s | %.1f s | %s |", from, to, channel, selection, took.Seconds(),
		w.ExpectUnaffected(before, does.RollsServers)))
}

// setCatalogImage makes OLM read another catalog, and waits until it has.
func setCatalogImage(image string) {
	GinkgoHelper()
	Kubectl("patch", "clustercatalog", "echo-operator", "--type=merge", "-p", `{"spec":{"source":{"image":{"ref":"`+image+`"}}}}`)
	Eventually(func() string {
		return Kubectl("get", "clustercatalog", "echo-operator", "-o", `jsonpath={.metadata.generation} `+
			`{.status.conditions[?(@.type=="Progressing")].observedGeneration} {.status.conditions[?(@.type=="Serving")].status} `+
			`{.status.conditions[?(@.type=="Progressing")].reason}`)
	}).Should(Satisfy(func(state string) bool {
		fields := strings.Fields(state)
		return len(fields) == 4 && fields[0] == fields[1] && fields[2] == "True" && fields[3] == "Succeeded"
	}), "generation and observed generation of the ClusterCatalog, the status of Serving, and the reason of Progressing")
}

// awaitVersion waits until OLM reports the version as installed, and only its operator runs.
func awaitVersion(version semver.Version) {
	GinkgoHelper()
	Eventually(progress).Should(Equal("installed " + version.String()))
	image := offer.Image(version)
	Expect(Kubectl("-n", operatorNamespace, "get", operator, "-o", "jsonpath={.spec.template.spec.containers[*].image}")).To(Equal(image))
	Kubectl("-n", operatorNamespace, "rollout", "status", operator, "--timeout=120s")
	Eventually(operatorPods).Should(Equal(image))
}

// operatorPods returns the images of the operator's pods.
func operatorPods() string {
	GinkgoHelper()
	return Kubectl("-n", operatorNamespace, "get", "pods", "-o", "jsonpath={.items[*].spec.containers[*].image}")
}

// sourcePatch returns a patch of a ClusterExtension that pins the version, or selects the newest.
func sourcePatch(channel, version string) string {
	selection := map[string]any{"channels": []string{channel}, "version": nil}
	if version != "" {
		selection["version"] = version
	}
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"source": map[string]any{"catalog": selection}}})
	Expect(err).NotTo(HaveOccurred())
	return string(patch)
}

// progress returns "installed" and the version, or the messages of the conditions.
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
	succeeded := 0
	var messages []string
	for _, condition := range extension.Status.Conditions {
		if condition.Type != "Installed" && condition.Type != "Progressing" {
			continue
		}
		if condition.Status == "True" && condition.Reason == "Succeeded" && condition.ObservedGeneration == extension.Metadata.Generation {
			succeeded++
		}
		messages = append(messages, fmt.Sprintf("%s %s: %s", condition.Type, condition.Reason, condition.Message))
	}
	if succeeded == 2 {
		return "installed " + extension.Status.Install.Bundle.Version
	}
	return strings.Join(messages, "\n")
}

// objects lists the objects that OLM has installed.
func objects() []string {
	GinkgoHelper()
	names := Kubectl("get", "customresourcedefinitions,clusterroles,clusterrolebindings", "-l", owned, "-o", "name") +
		Kubectl("-n", operatorNamespace, "get", "deployments,services,serviceaccounts,roles,rolebindings", "-l", owned, "-o", "name")
	return slices.Sorted(strings.FieldsSeq(names))
}

func dashed(version semver.Version) string { return strings.ReplaceAll(version.String(), ".", "-") }
