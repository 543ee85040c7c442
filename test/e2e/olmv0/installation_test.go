//go:build e2e

package olmv0

import (
	"context"
	"encoding/json"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	operatorsv1alpha1 "github.com/operator-framework/api/pkg/operators/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	. "github.com/kkloud-io/echo-operator/test/e2e/internal/cluster"
	"github.com/kkloud-io/echo-operator/test/e2e/internal/olm"
)

// An installation is an operator that OLM installs in a namespace. It is removed at the end of the spec, except for the
// CRD.
type installation struct {
	namespace  string
	catalog    string // The name of the CatalogSource.
	requeuedAt time.Time
}

// install installs an operator that watches only its own namespace, which the function creates. Operators in several
// namespaces do not affect each other.
func install(namespace, channel, version string) *installation {
	GinkgoHelper()
	NewNamespace(namespace)
	i := &installation{namespace: namespace, catalog: "echo-operator"}
	i.watch(namespace)
	i.subscribe(channel, version)
	return i
}

// installAlone installs an operator that watches the namespaces, or all, in the namespace of config/olm.
func installAlone(catalog, channel, version string, namespaces ...string) *installation {
	GinkgoHelper()
	Kubectl("apply", "-f", root+"/config/olm/namespace.yaml")
	i := &installation{namespace: operatorNamespace, catalog: catalog}
	i.watch(namespaces...)
	i.subscribe(channel, version)
	return i
}

// watch makes the OperatorGroup select the namespaces, or all.
func (i *installation) watch(namespaces ...string) {
	GinkgoHelper()
	spec, err := json.Marshal(map[string]any{"targetNamespaces": namespaces})
	Expect(err).NotTo(HaveOccurred())
	Apply(i.namespace, `{"apiVersion": "operators.coreos.com/v1", "kind": "OperatorGroup",
		"metadata": {"name": "echo-operator"}, "spec": `+string(spec)+`}`)
}

// subscribe creates the Subscription, and waits for the installation of the version. Every upgrade needs an approval.
func (i *installation) subscribe(channel, version string) {
	GinkgoHelper()
	DeferCleanup(i.remove)
	Expect(Client().Create(context.Background(), &operatorsv1alpha1.Subscription{
		ObjectMeta: metav1.ObjectMeta{Namespace: i.namespace, Name: "echo-operator"},
		Spec: &operatorsv1alpha1.SubscriptionSpec{
			Package: "echo-operator", Channel: channel, CatalogSource: i.catalog, CatalogSourceNamespace: "olm",
			InstallPlanApproval: operatorsv1alpha1.ApprovalManual, StartingCSV: olm.CSV(version),
		},
	})).To(Succeed())
	i.upgrade(version)
}

// remove deletes the operator, and keeps the CRD and the Echoes in other namespaces.
func (i *installation) remove() {
	GinkgoHelper()
	Kubectl("delete", "namespace", i.namespace, "--ignore-not-found")
	Kubectl("delete", "clusterroles,clusterrolebindings", "-l", "olm.owner.namespace="+i.namespace)
}

// changeChannel changes the channel of the Subscription.
func (i *installation) changeChannel(channel string) {
	GinkgoHelper()
	Patch(i.subscription(), `{"spec":{"channel":"`+channel+`"}}`)
}

func (i *installation) subscription() *operatorsv1alpha1.Subscription {
	return &operatorsv1alpha1.Subscription{ObjectMeta: metav1.ObjectMeta{Namespace: i.namespace, Name: "echo-operator"}}
}

// upgrade approves the installation of a version, and waits for it.
func (i *installation) upgrade(version string) {
	GinkgoHelper()
	i.approve(version)
	i.awaitSucceeded(version)
}

// approve waits until OLM proposes the version, and approves the InstallPlan.
func (i *installation) approve(version string) {
	GinkgoHelper()
	var plan *operatorsv1alpha1.InstallPlan
	Eventually(func(g Gomega) {
		i.requeue()
		subscription := i.subscription()
		g.Expect(Client().Get(context.Background(), client.ObjectKeyFromObject(subscription), subscription)).To(Succeed())
		g.Expect(subscription.Status.InstallPlanRef).NotTo(BeNil(), "InstallPlan of the Subscription")
		key := client.ObjectKey{Namespace: i.namespace, Name: subscription.Status.InstallPlanRef.Name}
		plan = &operatorsv1alpha1.InstallPlan{}
		g.Expect(Client().Get(context.Background(), key, plan)).To(Succeed())
		g.Expect(plan.Spec.ClusterServiceVersionNames).To(ConsistOf(olm.CSV(version)))
		g.Expect(plan.Spec.Approved).To(BeFalse(), "InstallPlan %s is approved", plan.Name)
	}, "5m").Should(Succeed(), "InstallPlan for %s in %s", version, i.namespace)
	Patch(plan, `{"spec":{"approved":true}}`)
}

// awaitSucceeded waits until the version is installed.
func (i *installation) awaitSucceeded(version string) {
	GinkgoHelper()
	Eventually(func() (string, error) {
		i.requeue()
		return i.phase(version)
	}, "5m").Should(Equal("Succeeded InstallSucceeded"), "phase of %s in %s", version, i.namespace)
}

// requeue makes OLM reconcile the Subscription, at most every 20 seconds. OLM treats some transient
// errors during an upgrade as final, for example while two versions exist, and would retry only
// after minutes.
func (i *installation) requeue() {
	GinkgoHelper()
	if time.Since(i.requeuedAt) < 20*time.Second {
		return
	}
	i.requeuedAt = time.Now()
	Patch(i.subscription(), `{"metadata":{"annotations":{"requeued-at":"`+i.requeuedAt.Format("150405")+`"}}}`)
}

// phase returns phase and reason of a ClusterServiceVersion, or "absent".
func (i *installation) phase(version string) (string, error) {
	csv := &operatorsv1alpha1.ClusterServiceVersion{}
	err := Client().Get(context.Background(), client.ObjectKey{Namespace: i.namespace, Name: olm.CSV(version)}, csv)
	if apierrors.IsNotFound(err) {
		return "absent", nil
	}
	return string(csv.Status.Phase) + " " + string(csv.Status.Reason), err
}

// expectNothingLeftOf checks that OLM has deleted the version and every object that it created for it.
func (i *installation) expectNothingLeftOf(version string) {
	GinkgoHelper()
	Eventually(i.phase).WithArguments(version).Should(Equal("absent"))
	Eventually(olm.Objects).WithArguments(i.namespace, "olm.owner", olm.CSV(version)).Should(BeEmpty())
	Eventually(Pods).WithArguments(i.namespace, "control-plane=controller-manager").Should(HaveLen(2), "pods of the operator")
}
