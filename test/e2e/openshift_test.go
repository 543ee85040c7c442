//go:build e2e

package e2e

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	. "github.com/kkloud-io/echo-operator/test/e2e/internal/cluster"
	"github.com/kkloud-io/echo-operator/test/internal/openshift"
)

func openShift() {
	// userOf returns the user that the policies give to a pod.
	userOf := func(pod corev1.Pod) *int64 { return pod.Spec.Containers[0].SecurityContext.RunAsUser }

	It("runs the default image and an image whose user is root under restricted-v2, as a user of the namespace", func() {
		const namespace = "openshift-e2e"
		// The policies apply to namespaces with openshift.Labels only.
		DeferCleanup(func() { _, _ = TryKubectl(string(openshift.Policies), "delete", "--ignore-not-found", "-f", "-") })
		Apply("default", string(openshift.Policies))
		NewNamespace(namespace)
		before := Get("", namespace, &corev1.Namespace{})
		labelled := before.DeepCopy()
		for name, value := range openshift.Labels {
			metav1.SetMetaDataLabel(&labelled.ObjectMeta, name, value)
		}
		for name, value := range openshift.Annotations {
			metav1.SetMetaDataAnnotation(&labelled.ObjectMeta, name, value)
		}
		Expect(Client().Patch(context.Background(), labelled, client.MergeFrom(before))).To(Succeed())

		By("waiting until the policies assign the user")
		Eventually(func(g Gomega) {
			probe := corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "probe"},
				Spec: corev1.PodSpec{
					SecurityContext: &corev1.PodSecurityContext{
						RunAsNonRoot: new(true), SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
					},
					Containers: []corev1.Container{{Name: "probe", Image: "probe", SecurityContext: &corev1.SecurityContext{
						AllowPrivilegeEscalation: new(false), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
					}}},
				},
			}
			g.Expect(Client().Create(context.Background(), &probe, client.DryRunAll)).To(Succeed())
			g.Expect(userOf(probe)).To(HaveValue(BeEquivalentTo(openshift.FirstUser)))
		}, "1m").Should(Succeed())

		CreateEcho(namespace, "default", echov1.EchoSpec{Message: "default"})
		CreateEcho(namespace, "own", echov1.EchoSpec{
			Message: "own", Image: "docker.io/library/busybox:1.37", Command: []string{"/bin/sh", "-c"},
			Args: []string{`mkdir /tmp/www; echo "$ECHO_TEXT" >/tmp/www/index.html; exec httpd -f -p "$ECHO_PORT" -h /tmp/www`},
		})
		WaitSettled(namespace)
		ExpectBody(namespace, "default", "80", Equal("default\n"))
		ExpectBody(namespace, "own", "80", Equal("own\n"))
		pods, err := Pods(namespace, "kkloud.io/echo")
		Expect(err).NotTo(HaveOccurred())
		for _, pod := range pods {
			Expect(userOf(pod)).To(HaveValue(BeEquivalentTo(openshift.FirstUser)), "runAsUser of pod %s", pod.Name)
		}
	})
}
