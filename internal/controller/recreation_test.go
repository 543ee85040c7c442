package controller

import (
	"context"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest/komega"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/children"
)

var _ = Describe("A child that is deleted after each creation", func() {
	const (
		period = 6 * time.Second
		// The first creation, a burst, and one after 1 s, 2 s and 4 s.
		maxCreations = 1 + correctionBurst + 3
	)
	var namespace string

	BeforeEach(func() {
		namespace = newNamespace()
		startOperator()
	})

	// expectFewCreations deletes the children of the Echo as soon as they exist, and counts how often
	// the operator creates each.
	expectFewCreations := func(echo *echov1.Echo) {
		GinkgoHelper()
		since := auditMark()
		ctx, cancel := context.WithTimeout(ctx, period)
		defer cancel()
		for ctx.Err() == nil {
			for _, child := range childrenOf(echo) {
				_ = admin.Delete(ctx, child)
			}
			time.Sleep(20 * time.Millisecond)
		}
		creations := map[string]int{}
		for _, request := range requestsSince(since) {
			if verb, object, _ := strings.Cut(request, " "); verb == "create" && strings.Contains(object, namespace) {
				creations[object]++
			}
		}
		for _, child := range childrenOf(echo) {
			Expect(creations).To(ContainElement(BeNumerically(">", 1)), "creations of %T", child)
		}
		Expect(creations).To(HaveEach(BeNumerically("<=", maxCreations)))
	}

	It("is created at increasing intervals", func() {
		echo := createEcho(namespace, "hello", everyChild)
		expectReady(echo)
		expectFewCreations(echo)
	})

	It("is created at increasing intervals, also from the first creation on", func() {
		expectFewCreations(createEcho(namespace, "hello", everyChild))
	})

	It("is created at increasing intervals, even if the status cannot be written", func() {
		denyStatus(namespace)
		expectFewCreations(createEcho(namespace, "hello", twoPods))
	})
})

var _ = Describe("A child whose deletion waits for a finalizer", func() {
	It("is created soon after the finalizer is removed, even if the watch does not report that, for lack of a label", func() {
		startOperator()
		echo := createEcho(newNamespace(), "hello")
		expectReady(echo)
		service := serviceOf(echo)
		Eventually(komega.Update(service, func() { service.Finalizers = []string{"example.com/hold"} })).Should(Succeed())
		deleted := service.UID
		Expect(admin.Delete(ctx, service)).To(Succeed())
		Eventually(komega.Update(service, func() { delete(service.Labels, children.ManagedByLabel) })).Should(Succeed())
		expectCondition(echo, echov1.ConditionReady, metav1.ConditionFalse, echov1.ReasonRollingOut)
		Consistently(komega.Object(service)).Should(HaveField("UID", deleted))

		Eventually(komega.Update(service, func() { service.Finalizers = nil })).Should(Succeed())
		Eventually(komega.Object(service), 2*unwatchedPeriod).Should(HaveField("UID", Not(Equal(deleted))))
		expectReady(echo)
	})
})

// denyStatus has an admission policy reject each write of the status of an Echo in the namespace.
func denyStatus(namespace string) {
	GinkgoHelper()
	validate(namespace, createAndUpdate("kkloud.io", "echoes/status"),
		admissionregistrationv1.Validation{Expression: "false", Message: "no status"})
	probe := createEcho(namespace, "probe")
	Eventually(func() error {
		if err := admin.Get(ctx, client.ObjectKeyFromObject(probe), probe); err != nil {
			return err
		}
		probe.Status.Ready = "0/0"
		return admin.Status().Update(ctx, probe, client.DryRunAll)
	}, "30s").Should(MatchError(ContainSubstring("no status")))
	Expect(admin.Delete(ctx, probe)).To(Succeed())
}
