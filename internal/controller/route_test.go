package controller

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest/komega"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/children"
	"github.com/kkloud-io/echo-operator/internal/testing/controlplane"
)

// summary returns status and reason of the condition, or nothing if it does not exist.
func summary(echo *echov1.Echo, conditionType string) string {
	condition := meta.FindStatusCondition(echo.Status.Conditions, conditionType)
	if condition == nil {
		return ""
	}
	return string(condition.Status) + " " + condition.Reason
}

// expectRouted waits until the Echo reports the conditions Routed, Ready and Degraded for its newest spec.
func expectRouted(echo *echov1.Echo, routed, ready, degraded string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		g.Expect(admin.Get(ctx, client.ObjectKeyFromObject(echo), echo)).To(Succeed())
		g.Expect(echo.Status.ObservedGeneration).To(Equal(echo.Generation))
		g.Expect([]string{summary(echo, echov1.ConditionRouted), summary(echo, echov1.ConditionReady), summary(echo, echov1.ConditionDegraded)}).
			To(Equal([]string{routed, ready, degraded}), "Routed, Ready and Degraded")
	}, "60s").Should(Succeed())
}

const (
	isAccepted   = "True Accepted"
	isReady      = "True Ready"
	notDegraded  = "False AsExpected"
	pending      = "Unknown RouteNotReconciled"
	notInstalled = "False GatewayAPINotInstalled"
	degradedAs   = "True "
	rejectedAs   = "RouteRejected"
)

var _ = Describe("The route of an Echo", func() {
	var namespace string

	BeforeEach(func() { namespace = newNamespace() })

	It("is an HTTPRoute, and is reported when every Gateway accepted it", func() {
		startOperator()
		since := auditMark()
		echo := createEcho(namespace, "hello", func(s *echov1.EchoSpec) {
			s.Port = 8080
			s.Route = &echov1.Route{
				ParentRefs: []echov1.ParentRef{{Name: "public", Namespace: "infra", SectionName: "https", Port: 8443}, {Name: "internal"}},
				Hostnames:  []string{"a.example", "*.b.example"},
				Paths:      []echov1.Path{{Type: "Exact", Value: "/.well-known/security.txt"}, {Value: "/docs"}},
			}
		})
		expectRouted(echo, isAccepted, isReady, notDegraded)
		Expect(echo.Status.ExternalURL).To(Equal("https://a.example:8443/.well-known/security.txt"))
		route := routeObject(echo)
		Expect(komega.Get(route)()).To(Succeed())
		Expect(route.Spec.ParentRefs).To(HaveLen(2))
		Expect(route.Spec.ParentRefs[0]).To(SatisfyAll(HaveField("Name", BeEquivalentTo("public")), HaveField("Namespace", HaveValue(BeEquivalentTo("infra"))),
			HaveField("SectionName", HaveValue(BeEquivalentTo("https"))), HaveField("Port", HaveValue(BeEquivalentTo(8443)))))
		Expect(route.Spec.Hostnames).To(Equal([]gatewayv1.Hostname{"a.example", "*.b.example"}))
		Expect(route.Spec.Rules).To(HaveLen(1))
		Expect(route.Spec.Rules[0].Matches).To(HaveExactElements(
			HaveField("Path", And(HaveField("Type", HaveValue(BeEquivalentTo("Exact"))), HaveField("Value", HaveValue(Equal("/.well-known/security.txt"))))),
			HaveField("Path", And(HaveField("Type", HaveValue(BeEquivalentTo("PathPrefix"))), HaveField("Value", HaveValue(Equal("/docs"))))),
		))
		Expect(route.Spec.Rules[0].Filters).To(BeEmpty())
		Expect(route.Spec.Rules[0].BackendRefs).To(HaveExactElements(And(
			HaveField("Name", BeEquivalentTo("echo-hello")), HaveField("Port", HaveValue(BeEquivalentTo(5677))))))
		Expect(komega.Object(serviceOf(echo))()).To(HaveField("Spec.Ports", HaveExactElements(
			And(HaveField("Name", "http"), HaveField("Port", BeEquivalentTo(8080))),
			And(HaveField("Name", "http-route"), HaveField("Port", BeEquivalentTo(5677))))))
		Expect(route.OwnerReferences).To(HaveExactElements(HaveField("UID", echo.UID)))

		requests := requestsSince(since)
		Expect(requests).To(ContainElement("create httproutes/ " + namespace + "/echo-hello"))
		Expect(requests).NotTo(ContainElement(Or(HavePrefix("get "), HavePrefix("patch httproutes"))), "requests include a live read or a second write")
		created := slices.Index(requests, "create httproutes/ "+namespace+"/echo-hello")
		Expect(requests[:created]).NotTo(ContainElement(HavePrefix("update echoes/status")), "the status was written before the HTTPRoute")
	})

	It("is not written when the port of the Service changes, and the Service loses the port of the route with the route", func() {
		startOperator()
		echo := createEcho(namespace, "hello", routed("public"))
		expectRouted(echo, isAccepted, isReady, notDegraded)
		since := auditMark()
		edit(echo, func(s *echov1.EchoSpec) { s.Port = 8080 })
		expectRouted(echo, isAccepted, isReady, notDegraded)
		Expect(requestsSince(since)).NotTo(ContainElement(ContainSubstring("httproutes")))
		edit(echo, func(s *echov1.EchoSpec) { s.Route, s.Port = nil, 8081 })
		Eventually(komega.Get(routeObject(echo))).Should(MatchError(ContainSubstring("not found")))
		Consistently(komega.Object(serviceOf(echo)), "3s").Should(HaveField("Spec.Ports", HaveLen(2)), "a Gateway may learn of the deletion later")
		expectReady(echo)
		since = auditMark()
		Eventually(komega.Object(serviceOf(echo))).Should(HaveField("Spec.Ports", HaveExactElements(HaveField("Port", BeEquivalentTo(8081)))))
		Consistently(func() []string { return requestsSince(since) }, "1s").ShouldNot(ContainElement(HavePrefix("update echoes/status")), "nothing changes for clients")
		Expect(metricValue("echo_operator_drift_corrections_total", nil)).To(BeZero())
	})

	rejects := "False "
	DescribeTable("is reported as its Gateways decide",
		func(gateways []string, want, ready, degraded, text string) {
			startOperator()
			echo := createEcho(namespace, "hello", routed(gateways...))
			expectRouted(echo, want, ready, degraded)
			Eventually(func(g Gomega) string {
				g.Expect(admin.Get(ctx, client.ObjectKeyFromObject(echo), echo)).To(Succeed())
				return message(echo, echov1.ConditionRouted)
			}).Should(Equal(text))
		},
		Entry("all accept", []string{"public", "internal"}, isAccepted, isReady, notDegraded, "Every Gateway accepted the route"),
		Entry("parent missing", []string{controlplane.MissingGateway}, pending, "False RouteNotReconciled", notDegraded,
			"The newest HTTPRoute echo-hello has no status from Gateway infra/missing"),
		Entry("hostname does not match", []string{controlplane.OtherHostGateway}, rejects+"NoMatchingListenerHostname", rejects+rejectedAs, degradedAs+rejectedAs,
			"Gateway infra/other-host: NoMatchingListenerHostname: No listener has a hostname of the route"),
		Entry("two parents of which one is missing", []string{"public", controlplane.MissingGateway}, pending, "False RouteNotReconciled", notDegraded,
			"The newest HTTPRoute echo-hello has no status from Gateway infra/missing"),
	)

	It("is accepted by a Gateway that reports generation 0, and waits for one that reports an earlier generation", func() {
		startOperator()
		echo := createEcho(namespace, "hello", routed(controlplane.StaleGateway))
		expectRouted(echo, isAccepted, isReady, notDegraded)
		edit(echo, func(s *echov1.EchoSpec) { s.Route.Hostnames = []string{"b.example"} })
		text := "The newest HTTPRoute echo-hello has no status from Gateway infra/stale (the condition Accepted of example.com/gateways is of generation 1 instead of 2)"
		expectRouted(echo, pending, "False RouteNotReconciled", notDegraded)
		Expect(message(echo, echov1.ConditionRouted)).To(Equal(text))
		Consistently(komega.Object(echo)).Should(HaveField("Status.Conditions", ContainElement(HaveField("Message", text))))
	})

	It("is rejected by a Gateway whose listener does not allow the namespace, even if another accepts it", func() {
		startOperator()
		for name, gateways := range map[string][]string{"one": {controlplane.ClosedGateway}, "two": {"public", controlplane.ClosedGateway}} {
			echo := createEcho(namespace, name, routed(gateways...))
			expectRouted(echo, "False NotAllowedByListeners", "False RouteRejected", "True RouteRejected")
			Expect(message(echo, echov1.ConditionRouted)).To(Equal(
				"Gateway infra/closed: NotAllowedByListeners: No listener allows routes from namespace " + namespace))
			expectCondition(echo, echov1.ConditionAvailable, metav1.ConditionTrue, echov1.ReasonServing)
			Eventually(func() []string { return eventsOf(echo) }).Should(ContainElement("Warning RouteRejected"))

			By("naming another Gateway")
			edit(echo, routed("public"))
			expectRouted(echo, isAccepted, isReady, notDegraded)
		}
	})

	It("is restored after an external change and after a deletion, and keeps other fields", func() {
		startOperator()
		echo := createEcho(namespace, "hello", routed("public"))
		expectRouted(echo, isAccepted, isReady, notDegraded)
		route := routeObject(echo)
		Expect(komega.Get(route)()).To(Succeed())
		want := route.Spec.DeepCopy()
		timeouts := &gatewayv1.HTTPRouteTimeouts{Request: new(gatewayv1.Duration("5s"))}
		Eventually(komega.Update(route, func() {
			route.Spec.Hostnames, route.Spec.ParentRefs = []gatewayv1.Hostname{"evil.example"}, nil
			route.Spec.Rules[0].Timeouts, route.Spec.Rules[0].BackendRefs = timeouts, nil
			route.Labels = nil
			metav1.SetMetaDataAnnotation(&route.ObjectMeta, "team", "blue")
		})).Should(Succeed())
		want.Rules[0].Timeouts = timeouts
		Eventually(komega.Object(route)).Should(And(HaveField("Spec", Equal(*want)), HaveField("Annotations", HaveKeyWithValue("team", "blue"))))
		expectRouted(echo, isAccepted, isReady, notDegraded)

		deleted := route.UID
		Expect(admin.Delete(ctx, route)).To(Succeed())
		Eventually(komega.Object(route)).Should(HaveField("UID", Not(Equal(deleted))))
		expectRouted(echo, isAccepted, isReady, notDegraded)
		Eventually(metricFunc("echo_operator_drift_corrections_total", map[string]string{"kind": "HTTPRoute"})).Should(Equal(2.0))
	})

	It("is removed with spec.route, also while the operator is not running", func() {
		stop := startOperator()
		expectRemoved := func(echo *echov1.Echo) {
			GinkgoHelper()
			expectRouted(echo, "", isReady, notDegraded)
			Expect(echo.Status.ExternalURL).To(BeEmpty())
			Expect(komega.Get(routeObject(echo))()).To(MatchError(ContainSubstring("not found")))
		}
		echo := createEcho(namespace, "hello", routed("public"))
		expectRouted(echo, isAccepted, isReady, notDegraded)
		edit(echo, func(s *echov1.EchoSpec) { s.Route = nil })
		expectRemoved(echo)
		edit(echo, routed("public"))
		expectRouted(echo, isAccepted, isReady, notDegraded)
		Expect(metricValue("echo_operator_drift_corrections_total", map[string]string{"kind": "HTTPRoute"})).To(BeZero())

		stop()
		edit(echo, func(s *echov1.EchoSpec) { s.Route = nil })
		startOperator()
		expectRemoved(echo)
	})

	It("is deleted by a restarted operator, if it was created before a crash and spec.route was then removed", func() {
		By("creating an Echo whose status does not report the HTTPRoute")
		echo := createEcho(namespace, "hello")
		before, route := echo.DeepCopy(), routeObject(echo)
		routed("public")(&before.Spec)
		children.HTTPRoute(route, before, inputs)
		Expect(admin.Create(ctx, route)).To(Succeed())
		startOperator()
		Eventually(komega.Get(route)).Should(MatchError(ContainSubstring("not found")))
		expectRouted(echo, "", isReady, notDegraded)
	})

	It("works with permissions in one or several namespaces", func() {
		second := newNamespace()
		for _, watched := range [][]string{{namespace}, {namespace, second}} {
			stop := startOperator(watched...)
			for _, in := range watched {
				echo := createEcho(in, "hello", routed("public"))
				expectRouted(echo, isAccepted, isReady, notDegraded)
				edit(echo, func(s *echov1.EchoSpec) { s.Route.Hostnames = []string{"b.example"} })
				expectRouted(echo, isAccepted, isReady, notDegraded)
				Expect(komega.Object(routeObject(echo))()).To(HaveField("Spec.Hostnames", ConsistOf(BeEquivalentTo("b.example"))))
				edit(echo, func(s *echov1.EchoSpec) { s.Route = nil })
				expectRouted(echo, "", isReady, notDegraded)
				Eventually(komega.Get(routeObject(echo))).Should(MatchError(ContainSubstring("not found")))
				Expect(admin.Delete(ctx, echo)).To(Succeed())
			}
			stop()
		}
	})

	It("causes no requests for other Echoes", func() {
		startOperator()
		expectRouted(createEcho(namespace, "routed", routed("public")), isAccepted, isReady, notDegraded)
		since := auditMark()
		expectReady(createEcho(namespace, "plain", twoPods))
		edit(createEcho(namespace, "other"), twoPods)
		Consistently(func() []string { return discoveries(since) }).Should(BeEmpty())
		Expect(requestsSince(since)).NotTo(ContainElement(ContainSubstring("httproutes")))
	})

	It("causes no requests in steady state with 100 Echoes, even after a restart", func() {
		stop := startOperator()
		var echoes []*echov1.Echo
		for i := range 100 {
			echoes = append(echoes, createEcho(namespace, fmt.Sprintf("echo-%d", i), routed("public")))
		}
		for _, echo := range echoes {
			expectRouted(echo, isAccepted, isReady, notDegraded)
		}
		for _, echo := range echoes {
			expectReadyEvent(echo)
		}
		since := auditMark()
		Consistently(func() []string { return requestsSince(since) }, "5s").Should(BeEmpty())

		By("restarting the operator")
		stop()
		since = auditMark()
		startOperator()
		Consistently(func() []string { return withoutInitialLists(requestsSince(since)) }, "10s").Should(BeEmpty())
		Expect(discoveries(since)).NotTo(BeEmpty(), "requests for the kinds of the Gateway API")
	})

	It("is reported with the API server's message while the operator has no permission", func() {
		grant := grantWithoutRoutes()
		startOperator(namespace)
		echo := createEcho(namespace, "hello", routed("public"))
		expectRouted(echo, "False Rejected", "False Rejected", "True Rejected")
		Expect(message(echo, echov1.ConditionDegraded)).To(ContainSubstring(
			`cannot list resource "httproutes" in API group "gateway.networking.k8s.io"`))
		expectCondition(echo, echov1.ConditionAvailable, metav1.ConditionTrue, echov1.ReasonServing)
		expectReady(createEcho(namespace, "plain", twoPods))
		soon, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		Expect(operatorCache.WaitForCacheSync(soon)).To(BeTrue(), "the operator is not ready")

		By("granting the permission")
		grant()
		expectRouted(echo, isAccepted, isReady, notDegraded)
	})

	It("is reported while the operator has no permission to delete it, and is then deleted", func() {
		stop := startOperator(namespace)
		echo := createEcho(namespace, "hello", routed("public"))
		expectRouted(echo, isAccepted, isReady, notDegraded)
		stop()
		grant := grantWithoutRoutes()
		startOperator(namespace)
		edit(echo, func(s *echov1.EchoSpec) { s.Route = nil })
		expectRouted(echo, "False Rejected", "False Rejected", "True Rejected")

		By("granting the permission")
		grant()
		expectRouted(echo, "", isReady, notDegraded)
		Expect(komega.Get(routeObject(echo))()).To(MatchError(ContainSubstring("not found")))
	})
})

// discoveries returns the operator's requests that tell whether the API server serves HTTPRoutes.
func discoveries(since int64) (requests []string) {
	for _, event := range auditEventsSince(since) {
		if strings.HasSuffix(event.RequestURI, "/httproutes?limit=1") {
			requests = append(requests, event.RequestURI)
		}
	}
	return requests
}

var _ = Describe("While the API server does not serve HTTPRoutes", Ordered, func() {
	var namespace string

	BeforeEach(func() { namespace = newNamespace() })
	AfterAll(func() {
		for _, crd := range gatewayCRDs {
			install(crd)
		}
		expectGarbageCollection()
	})

	expectNotInstalled := func(echo *echov1.Echo) {
		GinkgoHelper()
		expectRouted(echo, notInstalled, "False GatewayAPINotInstalled", "True GatewayAPINotInstalled")
		Expect(meta.FindStatusCondition(echo.Status.Conditions, echov1.ConditionRouted).Message).To(
			Equal("The cluster does not serve HTTPRoute in gateway.networking.k8s.io/v1: install the CRDs of the Gateway API"))
		expectCondition(echo, echov1.ConditionAvailable, metav1.ConditionTrue, echov1.ReasonServing)
		expectCondition(echo, echov1.ConditionProgressing, metav1.ConditionFalse, echov1.ReasonRolledOut)
	}

	It("an Echo with a route says so, and the operator asks once per period without errors", func() {
		for _, crd := range gatewayCRDs {
			uninstall(crd)
		}
		startOperator()
		logged := len(operatorLog.Contents())
		since, start := auditMark(), time.Now()
		echo := createEcho(namespace, "hello", everyChild)
		expectNotInstalled(echo)
		expectReady(createEcho(namespace, "plain", twoPods))
		Consistently(func() error { return admin.Get(ctx, client.ObjectKeyFromObject(echo), echo) }, 3*testDiscoveryPeriod).Should(Succeed())
		Expect(len(discoveries(since))).To(BeNumerically("<=", 2+int(time.Since(start)/testDiscoveryPeriod)+2))
		Expect(string(operatorLog.Contents()[logged:])).NotTo(ContainSubstring(`"level":"error"`))

		By("removing the route")
		edit(echo, func(s *echov1.EchoSpec) { s.Route = nil })
		expectRouted(echo, "", isReady, notDegraded)
		// The last event of the verifier may still reconcile the Echo, and each reconciliation may ask.
		Eventually(func(g Gomega) {
			since := auditMark()
			g.Consistently(func() []string { return discoveries(since) }, 2*testDiscoveryPeriod).Should(BeEmpty())
		}).Should(Succeed())
	})

	It("an Echo says so, too, if the group has only GatewayClasses", func() {
		install(gatewayCRDs[0])
		startOperator()
		expectNotInstalled(createEcho(namespace, "hello", routed("public")))
	})

	It("an Echo says so, too, if HTTPRoutes exist only in another version", func() {
		older := gatewayCRDs[1].DeepCopy()
		for i := range older.Spec.Versions {
			version := &older.Spec.Versions[i]
			version.Served, version.Storage = version.Name == "v1beta1", version.Name == "v1beta1"
		}
		install(older)
		DeferCleanup(uninstall, older)
		startOperator()
		expectNotInstalled(createEcho(namespace, "hello", routed("public")))
	})

	It("the operator follows the installation, removal and reinstallation of the CRD without a restart", func() {
		startOperator()
		echo := createEcho(namespace, "hello", everyChild)
		expectNotInstalled(echo)
		crd := gatewayCRDs[1]
		var uids []string
		for range 2 {
			By("installing the CRD")
			install(crd)
			expectRouted(echo, isAccepted, isReady, notDegraded)
			route := routeObject(echo)
			Expect(komega.Get(route)()).To(Succeed())
			Expect(uids).NotTo(ContainElement(string(route.UID)))
			uids = append(uids, string(route.UID))
			Eventually(komega.Update(route, func() { route.Spec.Hostnames = nil })).Should(Succeed())
			Eventually(komega.Object(route)).Should(HaveField("Spec.Hostnames", Not(BeEmpty())), "the operator does not watch the HTTPRoute")
			By("removing the CRD")
			logged := len(operatorLog.Contents())
			uninstall(crd)
			expectNotInstalled(echo)
			Expect(string(operatorLog.Contents()[logged:])).NotTo(ContainSubstring(`"level":"error"`))
			Expect(metricValue("echo_operator_drift_corrections_total", map[string]string{"kind": "Service"})).To(BeZero())
		}
		By("removing the route meanwhile, and installing the CRD")
		edit(echo, func(s *echov1.EchoSpec) { s.Route = nil })
		expectRouted(echo, "", isReady, notDegraded)
		install(crd)
		edit(echo, func(s *echov1.EchoSpec) { s.Message = "changed" })
		expectReady(echo)
		Expect(komega.Get(routeObject(echo))()).To(MatchError(ContainSubstring("not found")))
	})
})
