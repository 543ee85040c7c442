//go:build e2e

package olmv0

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	. "github.com/kkloud-io/echo-operator/test/e2e/internal/cluster"
)

var _ = Describe("Without OLM", Label("installer"), Serial, func() {
	It("dist/install.yaml installs and uninstalls the operator", func() {
		const file = root + "/dist/install.yaml"
		DeferCleanup(func() { Kubectl("delete", "-f", file, "--ignore-not-found") })
		Kubectl("apply", "--server-side", "-f", file)
		Kubectl("-n", operatorNamespace, "rollout", "status", "--timeout=2m", operator)

		NewNamespace("installer")
		Kubectl("-n", "installer", "apply", "-f", root+"/config/samples/hello.yaml")
		WaitReady("installer", "hello")
		ExpectAnswer("installer", "hello", "80", Equal("xin chao operator\n"))

		Kubectl("delete", "-f", file)
		Kubectl("-n", "installer", "wait", "--for=delete", ChildResources(), "-l", "kkloud.io/echo", "--timeout=2m")
		Expect(Kubectl("get", "clusterroles,clusterrolebindings", "-l", "app.kubernetes.io/name=echo-operator", "-o", "name")).To(BeEmpty())
	})
})
