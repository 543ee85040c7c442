package controller

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest/komega"

	"github.com/kkloud-io/echo-operator/internal/children"
	"github.com/kkloud-io/echo-operator/internal/informers"
)

var _ = Describe("A child of a stale Echo", func() {
	It("is not recreated after the deletion of the Echo", func() {
		stop := startOperator()
		echo := createEcho(newNamespace(), "hello")
		expectReady(echo)
		stop()
		Expect(admin.Delete(ctx, echo)).To(Succeed())
		Eventually(komega.Get(serviceOf(echo))).ShouldNot(Succeed())
		since := auditMark()

		reconciler := &EchoReconciler{Client: operatorClient(), APIReader: operatorClient(), ServerImage: serverImage, Optional: informers.NewOptional(0)}
		err := reconciler.newReconciliation(echo).reconcileChildren(ctx)
		Expect(err).To(MatchError(errStaleEcho))
		get := "get services/ " + echo.Namespace + "/echo-hello" // Once instead of the cache.
		Expect(requestsSince(since)).To(ConsistOf(get, get, "get echoes/ "+echo.Namespace+"/hello"))
	})

	It("is written if only its annotation names a newer generation", func() {
		startOperator()
		echo := createEcho(newNamespace(), "hello")
		expectReady(echo)
		deployment := deploymentOf(echo)
		Eventually(komega.Update(deployment, func() {
			children.SetEchoGeneration(deployment, echo.Generation+7)
			deployment.Spec.Replicas = ptr.To[int32](3)
		})).Should(Succeed())
		Eventually(komega.Object(deployment)).Should(SatisfyAll(HaveField("Spec.Replicas", HaveValue(BeEquivalentTo(1))),
			WithTransform(func(d *appsv1.Deployment) int64 { return children.EchoGeneration(d) }, Equal(echo.Generation))))
	})
})

// operatorClient returns a client with the operator's permissions and without a cache.
func operatorClient() client.Client {
	GinkgoHelper()
	c, err := client.New(operator, client.Options{Scheme: scheme})
	Expect(err).NotTo(HaveOccurred())
	return c
}
