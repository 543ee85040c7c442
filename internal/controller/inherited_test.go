package controller

import (
	"encoding/json"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest/komega"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/children"
)

var _ = Describe("The objects of an Echo", func() {
	var namespace string

	BeforeEach(func() {
		namespace = newNamespace()
		startOperator()
	})

	It("inherit its metadata while that is set, changed and removed, and keep the entries of other writers", func() {
		echo := createEcho(namespace, "hello", everyChild)
		others := []byte(`{"metadata":{"labels":{"other":"l"},"annotations":{"other":"a"}}}`)
		for _, child := range childrenOf(echo) {
			Eventually(komega.Get(child)).Should(Succeed())
			Expect(admin.Patch(ctx, child, client.RawPatch(types.MergePatchType, others))).To(Succeed())
		}
		for _, metadata := range []*echov1.InheritedMetadata{
			{Labels: echov1.Labels{"team": "blue"}, Annotations: echov1.Annotations{"example.com/a": "1"}},
			{Labels: echov1.Labels{"team": "red", "cost": "9"}},
			{Annotations: echov1.Annotations{"cluster-autoscaler.kubernetes.io/safe-to-evict": "true"}},
			nil,
		} {
			edit(echo, func(s *echov1.EchoSpec) { s.InheritedMetadata = metadata })
			want := echov1.InheritedMetadata{}
			if metadata != nil {
				want = *metadata
			}
			for _, child := range childrenOf(echo) {
				Eventually(func(g Gomega) {
					g.Expect(komega.Get(child)()).To(Succeed())
					expectInherited(g, child.GetLabels(), child.GetAnnotations(), want)
					g.Expect(child.GetLabels()).To(HaveKeyWithValue("other", "l"))
					g.Expect(child.GetAnnotations()).To(HaveKeyWithValue("other", "a"))
					if template := templateOf(child); template != nil {
						expectInherited(g, template.Labels, template.Annotations, want)
					}
				}).Should(Succeed(), "%T with %v", child, metadata)
				_, isRecorded := child.GetAnnotations()[children.InheritedAnnotation]
				Expect(isRecorded).To(Equal(metadata != nil), "%T", child)
			}
		}
	})

	It("have a Service of the declared type, whose change restarts no pod", func() {
		echo := createEcho(namespace, "hello")
		expectReady(echo)
		service, deployment := serviceOf(echo), deploymentOf(echo)
		Expect(komega.Get(deployment)()).To(Succeed())
		template := deployment.Spec.Template.DeepCopy()
		for _, serviceType := range []corev1.ServiceType{"NodePort", "LoadBalancer", "ClusterIP", "LoadBalancer", ""} {
			edit(echo, func(s *echov1.EchoSpec) { s.Service = &echov1.Service{Type: serviceType} })
			want := serviceType
			if want == "" {
				want = corev1.ServiceTypeClusterIP
			}
			Eventually(komega.Object(service)).Should(HaveField("Spec.Type", want))
			hasNodePort := service.Spec.Ports[0].NodePort != 0
			Expect(hasNodePort).To(Equal(want != corev1.ServiceTypeClusterIP))
			if want == corev1.ServiceTypeLoadBalancer {
				// Of the user, and kept.
				Eventually(komega.Update(service, func() {
					service.Spec.LoadBalancerSourceRanges = []string{"192.0.2.0/24"}
					service.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
				})).Should(Succeed())
			}
			expectReady(echo)
			Consistently(komega.Object(service)).Should(HaveField("Spec.LoadBalancerSourceRanges", HaveLen(map[bool]int{true: 1}[want == corev1.ServiceTypeLoadBalancer])))
		}
		Expect(komega.Get(deployment)()).To(Succeed())
		Expect(deployment.Spec.Template).To(Equal(*template))
	})
})

// expectInherited expects exactly the metadata, of the keys that the spec sets.
func expectInherited(g Gomega, labels, annotations map[string]string, want echov1.InheritedMetadata) {
	GinkgoHelper()
	for key, value := range map[string]string{"team": string(want.Labels["team"]), "cost": string(want.Labels["cost"])} {
		g.Expect(labels[key]).To(Equal(value))
	}
	for _, key := range []string{"example.com/a", "cluster-autoscaler.kubernetes.io/safe-to-evict"} {
		g.Expect(annotations[key]).To(Equal(string(want.Annotations[key])))
	}
}

// templateOf returns the pod template of a child, or nil.
func templateOf(child client.Object) *corev1.PodTemplateSpec {
	var object struct {
		Spec struct{ Template *corev1.PodTemplateSpec }
	}
	text, err := json.Marshal(child)
	Expect(err).NotTo(HaveOccurred())
	_ = json.Unmarshal(text, &object) // Other kinds have no template.
	return object.Spec.Template
}
