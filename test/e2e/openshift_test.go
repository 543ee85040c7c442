//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"github.com/kkloud-io/echo-operator/test/internal/openshift"
)

// rootServer is the spec of a server whose image runs as root, unless the pod or the cluster sets
// another user.
var rootServer = map[string]any{
	"message": "own", "image": "docker.io/library/busybox:1.37", "command": []string{"/bin/sh", "-c"},
	"args": []string{`mkdir /tmp/www; echo "$ECHO_TEXT" >/tmp/www/index.html; exec httpd -f -p "$ECHO_PORT" -h /tmp/www`},
}

func openShift() {
	specs := map[string]map[string]any{"default": {"message": "default"}, "own": rootServer}

	// expectServed creates the Echoes, and returns the users of their pods, by Echo.
	expectServed := func(namespace string) map[string]string {
		GinkgoHelper()
		for name, spec := range specs {
			apply(namespace, echoManifest(name, spec))
		}
		users := map[string]string{}
		for name := range specs {
			waitReady(namespace, name)
			expectAnswer(namespace, name, "80", Equal(name+"\n"))
			users[name] = strings.TrimSpace(kubectl("-n", namespace, "get", "pods", "-l", "kkloud.io/echo="+name, "--field-selector=status.phase=Running",
				"-o", "jsonpath={.items[0].spec.securityContext.runAsUser}{.items[0].spec.containers[0].securityContext.runAsUser}"))
		}
		return users
	}

	It("runs the default image and an image whose user is root under restricted-v2, as a user of the namespace", func() {
		const namespace = "openshift-e2e"
		DeferCleanup(func() { _, _ = tryKubectl(string(openshift.Policies), "delete", "--ignore-not-found", "-f", "-") })
		apply("default", string(openshift.Policies))
		newNamespace(namespace)
		for name, value := range openshift.Labels {
			kubectl("label", "namespace", namespace, name+"="+value)
		}
		for name, value := range openshift.Annotations {
			kubectl("annotate", "namespace", namespace, name+"="+value)
		}
		By("waiting until the policies assign the user")
		Eventually(func(g Gomega) {
			output, err := tryKubectl("", "-n", namespace, "run", "probe", "--image="+rootServer["image"].(string), "--dry-run=server", "-o", "json",
				`--overrides={"spec":{"securityContext":{"runAsNonRoot":true,"seccompProfile":{"type":"RuntimeDefault"}},"containers":[{"name":"probe","image":"probe",`+
					`"securityContext":{"allowPrivilegeEscalation":false,"capabilities":{"drop":["ALL"]}}}]}}`)
			g.Expect(err).NotTo(HaveOccurred())
			var probe corev1.Pod
			g.Expect(json.Unmarshal([]byte(output), &probe)).To(Succeed(), output)
			g.Expect(probe.Spec.Containers[0].SecurityContext.RunAsUser).To(HaveValue(BeEquivalentTo(openshift.FirstUser)))
		}, "1m").Should(Succeed())

		Expect(expectServed(namespace)).To(HaveEach(Equal(fmt.Sprint(openshift.FirstUser))), "runAsUser of the pods")
	})

	It("runs the same specs in a namespace that only enforces the restricted Pod Security Standard", func() {
		const namespace = "restricted-e2e"
		newNamespace(namespace)
		Expect(expectServed(namespace)).To(Equal(map[string]string{"default": "", "own": "65532"}), "runAsUser of the pods")
	})
}
