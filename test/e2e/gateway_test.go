//go:build e2e

package e2e

import (
	"fmt"
	"net/http"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kkloud-io/echo-operator/test/e2e/internal/gateway"
)

const gatewayNamespace = "gateway-e2e"

// handwrittenRoute exposes the Service of the Echo data at one path, with a header.
const handwrittenRoute = `
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: by-hand}
spec:
  parentRefs: [{name: public, namespace: gateways, sectionName: http}]
  hostnames: [by-hand.example.com]
  rules:
  - matches: [{path: {type: Exact, value: /data.json}}]
    filters:
    - type: ResponseHeaderModifier
      responseHeaderModifier: {set: [{name: Content-Type, value: application/json}]}
    backendRefs: [{name: echo-data, port: 80}]
`

// A parent names a listener of the Gateway of the tests.
func parent(listener string) map[string]any {
	return map[string]any{"name": gateway.Name, "namespace": gateway.Namespace, "sectionName": listener}
}

// routed returns the spec of an Echo with a route.
func routed(message, hostname string, parents ...map[string]any) map[string]any {
	return map[string]any{"message": message, "route": map[string]any{
		"parentRefs": parents, "hostnames": []string{hostname}, "scheme": "http",
	}}
}

// gatewayRoutes runs its specs in order: the first ones install and remove the Gateway API.
func gatewayRoutes() {
	run := func(args ...string) string {
		GinkgoHelper()
		return kubectl(append([]string{"-n", gatewayNamespace}, args...)...)
	}
	// condition returns status, reason and message of a condition.
	condition := func(echo, kind string) func() string {
		return func() string {
			return run("get", "echo", echo, "-o", `jsonpath={range .status.conditions[?(@.type=="`+kind+`")]}{.status} {.reason}: {.message}{end}`)
		}
	}
	operatorRestarts := func() string {
		return kubectl("-n", operatorNamespace, "get", "pods", "-l", "control-plane=controller-manager", "-o",
			`jsonpath={range .items[*]}{.metadata.name} {.status.containerStatuses[0].restartCount};{end}`)
	}
	var restartsBefore string

	BeforeAll(func() {
		requireLocalCluster("it installs and removes the Gateway API")
		gateway.Remove()
		newNamespace(gatewayNamespace)
		restartsBefore = operatorRestarts()
	})
	AfterAll(func() {
		Expect(operatorRestarts()).To(Equal(restartsBefore), "pods of the operator and their restarts")
	})

	Describe("whose API", func() {
		const echo = "states"
		notInstalled := HavePrefix("False GatewayAPINotInstalled: ")
		expectNoRoute := func(period string) {
			GinkgoHelper()
			Eventually(condition(echo, "Routed"), "90s").Should(notInstalled)
			Consistently(condition(echo, "Routed"), period).Should(notInstalled)
			Expect(kubectl("-n", operatorNamespace, "logs", operatorDeployment, "--since="+period)).NotTo(ContainSubstring(`"level":"error"`), "log of the operator")
			Expect(condition(echo, "Ready")()).To(HavePrefix("False GatewayAPINotInstalled: "))
			Expect(condition(echo, "Available")()).To(HavePrefix("True "))
			expectAnswer(gatewayNamespace, echo, "80", Equal("states\n"))
		}

		It("is not installed reports Routed=False, and the Service answers", func() {
			apply(gatewayNamespace, echoManifest(echo, routed(echo, "states.example.com", parent(gateway.HTTP))))
			expectNoRoute("5s")
		})

		It("consists of GatewayClass only reports Routed=False", func() {
			gateway.InstallCRD(gateway.GatewayClasses)
			expectNoRoute("70s") // The operator looks for the kind HTTPRoute once a minute.
		})

		It("is installed while the operator runs answers through the Gateway", func() {
			gateway.Install()
			Eventually(condition(echo, "Routed"), "90s").Should(HavePrefix("True Accepted"))
			waitReady(gatewayNamespace, echo)
			gateway.Connect(gateway.HTTP).ExpectAnswer("http://states.example.com/", http.StatusOK, Equal("states\n"))
		})

		It("is removed while the operator runs reports Routed=False, and answers again after it returned", func() {
			gateway.Remove()
			expectNoRoute("5s")
			gateway.Install()
			Eventually(condition(echo, "Routed"), "90s").Should(HavePrefix("True Accepted"))
			gateway.Connect(gateway.HTTP).ExpectAnswer("http://states.example.com/", http.StatusOK, Equal("states\n"))
		})
	})

	It("serves an HTTPRoute that a user wrote: its path with body and header, and 404 at another path", func() {
		apply(gatewayNamespace, echoManifest("data", map[string]any{"message": `{"served": true}`}))
		waitReady(gatewayNamespace, "data")
		apply(gatewayNamespace, handwrittenRoute)
		client := gateway.Connect(gateway.HTTP)
		answer := client.ExpectAnswer("http://by-hand.example.com/data.json", http.StatusOK, Equal(`{"served": true}`+"\n"))
		Expect(answer.Header.Get("Content-Type")).To(Equal("application/json"))
		Expect(client.Get("http://by-hand.example.com/other")).To(HaveField("Status", http.StatusNotFound))
	})

	DescribeTable("reports the answer of its controller",
		func(echo string, spec map[string]any, routedCondition, ready string) {
			apply(gatewayNamespace, echoManifest(echo, spec))
			Eventually(condition(echo, "Available")).Should(HavePrefix("True "))
			Eventually(condition(echo, "Routed")).Should(MatchRegexp(routedCondition))
			Consistently(condition(echo, "Routed"), "3s").Should(MatchRegexp(routedCondition))
			Eventually(condition(echo, "Ready")).Should(HavePrefix(ready))
		},
		Entry("for an accepted route", "accepted", routed("m", "accepted.example.com", parent(gateway.Example)), "^True Accepted: ", "True Ready: "),
		Entry("for a Gateway that does not exist", "missing",
			routed("m", "missing.example.com", map[string]any{"name": "absent", "namespace": gateway.Namespace}), "^Unknown NoParentAnswered: .*absent", "False NoParentAnswered: "),
		Entry("for a listener that does not exist", "listener", routed("m", "listener.example.com", parent("absent")), "^False NoMatchingParent: ", "False RouteRejected: "),
		Entry("for a listener that does not allow the namespace", "namespace",
			routed("m", "namespace.example.com", parent(gateway.SameNamespace)), "^False NotAllowedByListeners: ", "False RouteRejected: "),
		Entry("for a hostname that the listener does not serve", "hostname",
			routed("m", "hostname.example.net", parent(gateway.Example)), "^False NoMatchingListenerHostname: ", "False RouteRejected: "),
		Entry("for two listeners of which one rejects the route", "two",
			routed("m", "two.example.com", parent(gateway.HTTP), parent(gateway.SameNamespace)), "^False NotAllowedByListeners: .*"+gateway.SameNamespace, "False RouteRejected: "),
	)

	It("reports Unknown while its controller has not answered for the newest route", func() {
		const echo = "stale"
		apply(gatewayNamespace, echoManifest(echo, routed("stale", "stale.example.com", parent(gateway.HTTP))))
		waitReady(gatewayNamespace, echo)
		gateway.Stop()
		run("patch", "echo", echo, "--type=merge", "-p", `{"spec":{"route":{"hostnames":["newer.example.com"]}}}`)
		Eventually(condition(echo, "Routed")).Should(HavePrefix("Unknown NoParentAnswered: "))
		Expect(run("get", "httproute", "echo-"+echo, "-o", "jsonpath={.status.parents[0].conditions[0].status}")).To(Equal("True"), "the answer for the older route")
		gateway.Start()
		waitReady(gatewayNamespace, echo)
		gateway.Connect(gateway.HTTP).ExpectAnswer("http://newer.example.com/", http.StatusOK, Equal("stale\n"))
	})

	It("leaves an HTTPRoute alone that the Echo does not control, and replaces it once it is deleted", func() {
		const echo = "conflict"
		apply(gatewayNamespace, strings.NewReplacer("by-hand", "echo-"+echo).Replace(handwrittenRoute))
		// Its metadata and spec: Traefik writes the status.
		route := func() string {
			return run("get", "httproute", "echo-"+echo, "-o", "jsonpath={.metadata.uid} {.metadata.generation} {.metadata.labels} {.metadata.ownerReferences} {.spec}")
		}
		before := route()
		apply(gatewayNamespace, echoManifest(echo, routed(echo, "conflict.example.com", parent(gateway.HTTP))))
		Eventually(condition(echo, "Degraded")).Should(SatisfyAll(HavePrefix("True Conflict: "), ContainSubstring("HTTPRoute")))
		Expect(condition(echo, "Routed")()).To(HavePrefix("False Conflict: "))
		Expect(condition(echo, "Ready")()).To(HavePrefix("False Conflict: "))
		expectAnswer(gatewayNamespace, echo, "80", Equal("conflict\n"))
		Expect(route()).To(Equal(before), fmt.Sprintf("HTTPRoute %s/echo-%s", gatewayNamespace, echo))
		run("delete", "httproute", "echo-"+echo)
		waitReady(gatewayNamespace, echo)
		gateway.Connect(gateway.HTTP).ExpectAnswer("http://conflict.example.com/", http.StatusOK, Equal("conflict\n"))
	})
}
