//go:build e2e

package e2e

import (
	"maps"
	"net/http"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"

	"github.com/kkloud-io/echo-operator/test/e2e/internal/gateway"
)

func gatewayAnswers() {
	const namespace = "gateway-answers-e2e"
	var client *gateway.Client
	patch := func(echo, spec string) {
		GinkgoHelper()
		kubectl("-n", namespace, "patch", "echo", echo, "--type=merge", "-p", `{"spec":`+spec+`}`)
	}

	BeforeAll(func() {
		requireLocalCluster("it has the Gateway")
		gateway.Install()
		newNamespace(namespace)
		client = gateway.Connect(gateway.HTTP)
	})

	DescribeTable("serves the sample",
		func(echo, url string, status int, body types.GomegaMatcher, header, value string) {
			kubectl("-n", namespace, "apply", "-f", "../../config/samples/gateway/"+echo+".yaml")
			waitReady(namespace, echo)
			Expect(kubectl("-n", namespace, "get", "echo", echo, "-o", "jsonpath={.status.externalURL}")).To(Equal("https://" + url))
			answer := client.ExpectAnswer("http://"+url, status, body)
			Expect(answer.Header.Get(header)).To(Equal(value), header)
		},
		Entry("of a maintenance page with status 503", "maintenance", "shop.example.com/", http.StatusServiceUnavailable,
			ContainSubstring("<title>Back soon</title>"), "Retry-After", "3600"),
		Entry("of security.txt at its path", "security-txt", "www.example.com/.well-known/security.txt", http.StatusOK,
			HavePrefix("Contact: mailto:security@example.com\n"), "Content-Type", "text/plain; charset=utf-8"),
		Entry("of a canary", "canary", "canary.example.com/", http.StatusOK, Equal(`{"canary":"alive"}`+"\n"), "Content-Type", "application/json"),
	)

	It("serves a sample for every path of its hostname", func() {
		client.ExpectAnswer("http://shop.example.com/cart?item=1", http.StatusServiceUnavailable, ContainSubstring("closed for maintenance"))
	})

	It("serves a sample with an exact path at no other path", func() {
		Expect(client.Get("http://www.example.com/")).To(HaveField("Status", http.StatusNotFound))
	})

	It("moves the answer with the hostname, and ends it with the Echo", func() {
		apply(namespace, echoManifest("moving", routed("moving", "before.example.com", parent(gateway.HTTP))))
		waitReady(namespace, "moving")
		client.ExpectAnswer("http://before.example.com/", http.StatusOK, Equal("moving\n"))

		patch("moving", `{"route":{"hostnames":["after.example.com"]}}`)
		client.ExpectAnswer("http://after.example.com/", http.StatusOK, Equal("moving\n"))
		client.ExpectAnswer("http://before.example.com/", http.StatusNotFound, Not(BeEmpty()))
		waitReady(namespace, "moving")
		Expect(kubectl("-n", namespace, "get", "echo", "moving", "-o", "jsonpath={.status.externalURL}")).To(Equal("http://after.example.com/"))

		kubectl("-n", namespace, "delete", "echo", "moving")
		client.ExpectAnswer("http://after.example.com/", http.StatusNotFound, Not(BeEmpty()))
		Eventually(func() string {
			return kubectl("-n", namespace, "get", "httproutes", "-l", "kkloud.io/echo=moving", "-o", "name")
		}).Should(BeEmpty())
	})

	DescribeTable("answers every request with the old or the new answer during an edit of message", func(echo string, replicas int) {
		spec := routed("first", echo+".example.com", parent(gateway.HTTP))
		spec["replicas"] = replicas
		apply(namespace, echoManifest(echo, spec))
		waitReady(namespace, echo)
		url := "http://" + echo + ".example.com/"
		client.ExpectAnswer(url, http.StatusOK, Equal("first\n"))

		stop := client.Repeat(url, "first\n", "second\n")
		patch(echo, `{"message":"second"}`)
		waitSettled(namespace)
		client.ExpectAnswer(url, http.StatusOK, Equal("second\n"))
		requests := stop()
		AddReportEntry("requests", requests.Sent)
		Expect(requests.Failed).To(BeZero(), "failed requests:\n%s", strings.Join(requests.Failures, "\n"))
		Expect(slices.Collect(maps.Keys(requests.Answers))).To(ConsistOf("first\n", "second\n"), "answers")
	},
		Entry("with one replica", "one", 1),
		Entry("with two replicas", "two", 2),
	)
}
