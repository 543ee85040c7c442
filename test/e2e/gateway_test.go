//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	. "github.com/kkloud-io/echo-operator/test/e2e/internal/cluster"
	"github.com/kkloud-io/echo-operator/test/e2e/internal/workload"
)

// Listeners of the Gateway that hack/local-cluster/manifests/gateway.yaml describes.
const (
	anyListener = "http"
	// sameNamespaceListener accepts only routes of the Gateway's namespace.
	sameNamespaceListener = "same-namespace"
	// exampleListener is for the hostnames *.example.com.
	exampleListener = "example"
)

// traefik is the hostname of the Service of Traefik in the cluster.
const traefik = "traefik.traefik.svc.cluster.local"

// routed returns the spec of an Echo with a route to listeners of the Gateway.
func routed(message, hostname string, listeners ...string) echov1.EchoSpec {
	route := &echov1.Route{Hostnames: []string{hostname}, Scheme: "http"}
	for _, listener := range listeners {
		route.ParentRefs = append(route.ParentRefs, echov1.ParentRef{Name: "public", Namespace: "gateways", SectionName: listener})
	}
	return echov1.EchoSpec{Message: message, Route: route}
}

// gateways runs its specs in order: the first one installs and removes the Gateway API.
func gateways() {
	const namespace = "gateway-e2e"
	condition := func(echo, kind string) func() (string, error) { return Condition(namespace, echo, kind) }

	BeforeAll(func() {
		requireLocalCluster("it installs and removes the Gateway API")
		removeGatewayAPI()
		NewNamespace(namespace)
	})

	It("reports whether the API is installed, while the Service responds, and follows its installation and removal without a restart", func() {
		const notInstalled = "False GatewayAPINotInstalled: "
		pods := operatorRestarts()
		expectNoRoute := func() {
			GinkgoHelper()
			Eventually(condition("states", "Routed"), "90s").Should(HavePrefix(notInstalled))
			Consistently(condition("states", "Routed"), "5s").Should(HavePrefix(notInstalled))
			log := Kubectl("-n", operatorNamespace, "logs", "-l", operatorPods, "--since=5s")
			Expect(log).NotTo(ContainSubstring(`"level":"error"`), "log of the operator")
			Eventually(condition("states", "Ready")).Should(HavePrefix(notInstalled))
			Eventually(condition("states", "Available")).Should(HavePrefix("True "))
			ExpectBody(namespace, "states", "80", Equal("states\n"))
		}

		expectRoute := func() {
			GinkgoHelper()
			installGateway()
			Eventually(condition("states", "Routed"), "90s").Should(HavePrefix("True Accepted"))
			WaitReady(namespace, "states")
			expectThroughGateway("http://states.example.com/", http.StatusOK, Equal("states\n"))
		}

		CreateEcho(namespace, "states", routed("states", "states.example.com", anyListener))
		expectNoRoute()
		expectRoute()
		removeGatewayAPI()
		expectNoRoute()
		expectRoute()
		Expect(operatorRestarts()).To(And(HaveLen(2), Equal(pods)), "pods of the operator, with their restarts")
	})

	DescribeTable("reports the response of its controller",
		func(echo string, spec echov1.EchoSpec, routedCondition string) {
			CreateEcho(namespace, echo, spec)
			Eventually(condition(echo, "Available")).Should(HavePrefix("True "))
			Eventually(condition(echo, "Routed")).Should(MatchRegexp(routedCondition))
			Consistently(condition(echo, "Routed"), "3s").Should(MatchRegexp(routedCondition))
			Eventually(condition(echo, "Ready")).Should(HavePrefix("False RouteRejected: "))
		},
		Entry("for a listener that does not exist", "listener", routed("m", "listener.example.com", "absent"), "^False NoMatchingParent: "),
		Entry("for a listener that does not allow the namespace", "namespace",
			routed("m", "namespace.example.com", sameNamespaceListener), "^False NotAllowedByListeners: "),
		Entry("for a hostname that the listener does not serve", "hostname",
			routed("m", "hostname.example.net", exampleListener), "^False NoMatchingListenerHostname: "),
		Entry("for two listeners of which one rejects the route", "two",
			routed("m", "two.example.com", anyListener, sameNamespaceListener), "^False NotAllowedByListeners: .*"+sameNamespaceListener),
	)

	DescribeTable("serves the sample",
		func(echo, url string, status int, body types.GomegaMatcher, header, value string) {
			Apply(namespace, applicationRoute("shop", "shop.example.com", `{"path": {"value": "/"}}`))
			Kubectl("-n", namespace, "apply", "-f", "../../config/samples/gateway/"+echo+".yaml")
			WaitReady(namespace, echo)
			Expect(Get(namespace, echo, &echov1.Echo{}).Status.ExternalURL).To(Equal("https://" + url))
			Expect(expectThroughGateway("http://"+url, status, body).Get(header)).To(Equal(value), header)
		},
		Entry("of a maintenance page with status 503", "maintenance", "shop.example.com/", http.StatusServiceUnavailable,
			ContainSubstring("<title>Back soon</title>"), "Retry-After", "3600"),
		Entry("of security.txt at its path", "security-txt", "www.example.com/.well-known/security.txt", http.StatusOK,
			HavePrefix("Contact: mailto:security@example.com\n"), "Content-Type", "text/plain; charset=utf-8"),
		Entry("of a canary", "canary", "canary.example.com/", http.StatusOK, Equal(`{"canary":"alive"}`+"\n"), "Content-Type", "application/json"),
	)

	It("serves a sample with a prefix for every path, and one with an exact path at no other path", func() {
		expectThroughGateway("http://shop.example.com/cart?item=1", http.StatusServiceUnavailable, ContainSubstring("closed for maintenance"))
		expectThroughGateway("http://www.example.com/", http.StatusNotFound, Not(BeEmpty()))
	})

	It("moves the response with the hostname, and ends it with the Echo", func() {
		CreateEcho(namespace, "moving", routed("moving", "before.example.com", anyListener))
		WaitReady(namespace, "moving")
		expectThroughGateway("http://before.example.com/", http.StatusOK, Equal("moving\n"))

		PatchEcho(namespace, "moving", `{"route":{"hostnames":["after.example.com"]}}`)
		expectThroughGateway("http://after.example.com/", http.StatusOK, Equal("moving\n"))
		expectThroughGateway("http://before.example.com/", http.StatusNotFound, Not(BeEmpty()))

		Kubectl("-n", namespace, "delete", "echo", "moving")
		expectThroughGateway("http://after.example.com/", http.StatusNotFound, Not(BeEmpty()))
	})

	DescribeTable("responds to every request with the old or the new message during edits", func(replicas int32) {
		namespace := fmt.Sprintf("gateway-edit-%d-e2e", replicas)
		NewNamespace(namespace)
		spec := routed("first", traefik, anyListener)
		spec.Replicas = replicas
		CreateEcho(namespace, "edited", spec)
		WaitReady(namespace, "edited")
		expectThroughGateway("http://"+traefik+"/", http.StatusOK, Equal("first\n"))
		workload.StartProber(namespace, "prober", "http://"+traefik+"/=first|second")
		for _, message := range []string{"second", "first", "second"} {
			PatchEcho(namespace, "edited", `{"message":"`+message+`"}`)
			WaitSettled(namespace)
		}
		expectThroughGateway("http://"+traefik+"/", http.StatusOK, Equal("second\n"))
		requests := workload.RequestsOf(namespace, "prober")
		AddReportEntry("requests", requests)
		Expect(requests.Failed+requests.KeptFailed).To(BeZero(), "failed requests:\n%s", strings.Join(requests.Failures, "\n"))
		Expect(slices.Collect(maps.Keys(requests.Responses))).To(ConsistOf("first", "second"), "responses")
		Kubectl("delete", "namespace", namespace) // Its route would match the requests of other specs.
	}, Entry("of one pod", int32(1)), Entry("of three pods", int32(3)))

	It("responds to every request while the port of the Service changes", func() {
		namespace := "gateway-port-e2e"
		NewNamespace(namespace)
		CreateEcho(namespace, "moved", routed("moved", traefik, anyListener))
		WaitReady(namespace, "moved")
		expectThroughGateway("http://"+traefik+"/", http.StatusOK, Equal("moved\n"))
		// Two targets have twenty connections that are kept alive.
		workload.StartProber(namespace, "prober", "http://"+traefik+"/one=moved", "http://"+traefik+"/two=moved")
		for _, port := range []int{8080, 81, 9090, 80} {
			PatchEcho(namespace, "moved", fmt.Sprintf(`{"port":%d}`, port))
			WaitSettled(namespace)
			ExpectBody(namespace, "moved", fmt.Sprint(port), Equal("moved\n"))
		}
		requests := workload.RequestsOf(namespace, "prober")
		AddReportEntry("requests", requests)
		Expect(requests.Failed+requests.KeptFailed).To(BeZero(), "failed requests:\n%s", strings.Join(requests.Failures, "\n"))
		Kubectl("delete", "namespace", namespace) // Its route would match the requests of other specs.
	})

	It("gives the requests of an application to a page, and back, without another response", func() {
		namespace := "gateway-override-e2e"
		NewNamespace(namespace)
		CreateEcho(namespace, "shop", echov1.EchoSpec{Message: "application", Replicas: 2})
		WaitReady(namespace, "shop")
		Apply(namespace, applicationRoute("shop", traefik, `{"path": {"value": "/"}}`, `{"path": {"value": "/api/v1"}}`,
			`{"path": {"value": "/"}, "headers": [{"name": "X-Beta", "value": "yes"}], "queryParams": [{"name": "v", "value": "2"}]}`))
		Apply(namespace, applicationRoute("login", traefik, `{"path": {"type": "Exact", "value": "/login"}}`))
		Apply(namespace, applicationRoute("shop-staff", traefik, `{"method": "GET", "headers": [{"name": "X-Staff", "value": "secret"}]}`))
		expectThroughGateway("http://"+traefik+"/login", http.StatusOK, Equal("application\n"))
		const anyone = "application|maintenance"
		workload.StartProber(namespace, "prober", "http://"+traefik+"/="+anyone, "http://"+traefik+"/api/v1/items="+anyone, "http://"+traefik+"/login="+anyone)
		applications := func() string {
			return Kubectl("-n", namespace, "get", "httproutes", "shop", "login", "-o", "jsonpath={range .items[*]}{.metadata.uid} {.metadata.generation} {.spec}{end}")
		}
		before := applications()
		page := echov1.EchoSpec{Message: "maintenance", Replicas: 2, Verify: verified("").Verify,
			Route: &echov1.Route{Scheme: "http", Overrides: []echov1.RouteRef{{Name: "shop"}, {Name: "login"}}}}
		patch := func(route any) {
			text, err := json.Marshal(map[string]any{"spec": map[string]any{"route": route}})
			Expect(err).NotTo(HaveOccurred())
			Kubectl("-n", namespace, "patch", "echo", "page", "--type=merge", "-p", string(text))
		}
		for turn := range 3 {
			expectThroughGateway("http://"+traefik+"/?v=2", http.StatusOK, Equal("application\n"), "X-Beta: yes")
			isPrepared := turn > 0 // It exists beside the application before and after.
			if isPrepared {
				prepared := page
				prepared.Route = nil
				CreateEcho(namespace, "page", prepared)
				WaitReady(namespace, "page")
			}
			start := time.Now()
			if isPrepared {
				patch(page.Route)
			} else {
				CreateEcho(namespace, "page", page)
			}
			last := make(chan time.Time)
			go func() {
				defer GinkgoRecover()
				last <- lastResponse(namespace, "application")
			}()
			WaitReady(namespace, "page")
			ready := time.Now()
			sinceReady := workload.RequestsOf(namespace, "prober")
			time.Sleep(3 * time.Second)
			Expect(workload.RequestsOf(namespace, "prober").Since(sinceReady).Responses).To(And(HaveLen(1), HaveKey("maintenance")), "responses after Ready")
			expectThroughGateway("http://"+traefik+"/?v=2", http.StatusOK, Equal("maintenance\n"), "X-Beta: yes")
			expectThroughGateway("http://"+traefik+"/", http.StatusOK, Equal("application\n"), "X-Staff: secret")
			expectThroughGateway("http://"+traefik+"/", http.StatusOK, Equal("maintenance\n"), "X-Staff: wrong")
			deleted := time.Now()
			if isPrepared {
				patch(nil)
			} else {
				Kubectl("-n", namespace, "delete", "echo", "page")
			}
			back := lastResponse(namespace, "maintenance")
			AddReportEntry("seconds", fmt.Sprintf("last response of the application %.1f, Ready %.1f; last response of the page after its deletion %.1f",
				(<-last).Sub(start).Seconds(), ready.Sub(start).Seconds(), back.Sub(deleted).Seconds()))
			time.Sleep(6 * time.Second) // Until the Service loses the port of the route.
			Kubectl("-n", namespace, "delete", "echo", "page", "--ignore-not-found")
		}
		requests := workload.RequestsOf(namespace, "prober")
		AddReportEntry("requests", requests)
		Expect(requests.Failed+requests.KeptFailed).To(BeZero(), "failed requests:\n%s", strings.Join(requests.Failures, "\n"))
		Expect(applications()).To(Equal(before), "the HTTPRoutes of the application")
		Kubectl("delete", "namespace", namespace) // Its routes would match the requests of other specs.
	})

	It("reports the layer of a Gateway that stops", func() {
		spec := routed("route", traefik, anyListener)
		spec.Verify = verified("").Verify
		CreateEcho(namespace, "route", spec)
		expectVerified(namespace, "route")
		scale := func(replicas string) { Kubectl("-n", "traefik", "scale", "deployment/traefik", "--replicas="+replicas) }
		restore := func() {
			scale("1")
			Kubectl("-n", "traefik", "rollout", "status", "deployment/traefik", "--timeout=60s")
		}
		DeferCleanup(restore)
		breakage(namespace, "route", failsOn("route"), func() { scale("0") }, restore)
	})
}

// applicationRoute returns an HTTPRoute of an application, the Service echo-shop, with the matches.
func applicationRoute(name, hostname string, matches ...string) string {
	return fmt.Sprintf(`{"apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute", "metadata": {"name": %q}, "spec": {
		"parentRefs": [{"name": "public", "namespace": "gateways", "sectionName": %q}], "hostnames": [%q],
		"rules": [{"matches": [%s], "backendRefs": [{"name": "echo-shop", "port": 80}]}]}}`, name, anyListener, hostname, strings.Join(matches, ","))
}

// lastResponse waits until a prober has received no response with the text for three seconds, and returns when it received the last one.
func lastResponse(namespace, text string) time.Time {
	GinkgoHelper()
	last, count := time.Now(), -1
	Eventually(func() time.Duration {
		if now := workload.RequestsOf(namespace, "prober").Responses[text]; now != count {
			last, count = time.Now(), now
		}
		return time.Since(last)
	}, "60s", "100ms").Should(BeNumerically(">", 3*time.Second))
	return last
}

// installGateway installs the Gateway API, Traefik and the Gateway, or what is missing of them. It waits
// until the Gateway has an address.
func installGateway() {
	GinkgoHelper()
	output, err := exec.Command("../../bin/local-cluster", "gateway").CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), string(output))
}

// removeGatewayAPI deletes the CRDs of the Gateway API, and with them every Gateway and route.
func removeGatewayAPI() {
	GinkgoHelper()
	crds := strings.Fields(Kubectl("get", "crd", "-o", `jsonpath={.items[?(@.spec.group=="gateway.networking.k8s.io")].metadata.name}`))
	if len(crds) == 0 {
		return
	}
	// The API server initializes the storage of a kind at the first request. Without it, the deletion takes minutes.
	Kubectl("get", strings.Join(crds, ","), "--all-namespaces")
	Kubectl(append([]string{"delete", "crd", "--timeout=60s"}, crds...)...)
}

// expectThroughGateway waits until the response to a GET of the URL with the headers, through the Gateway and from outside the
// cluster, has the status, and a body that matches. It returns the header of the response.
func expectThroughGateway(url string, status int, body types.GomegaMatcher, headers ...string) (header http.Header) {
	GinkgoHelper()
	address := Forward("traefik", "service/traefik", anyListener)
	client := http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, address)
		},
		DisableCompression: true, DisableKeepAlives: true,
	}}
	Eventually(func(g Gomega) {
		request, err := http.NewRequest(http.MethodGet, url, nil)
		g.Expect(err).NotTo(HaveOccurred())
		for _, text := range headers {
			name, value, _ := strings.Cut(text, ": ")
			request.Header.Set(name, value)
		}
		response, err := client.Do(request)
		g.Expect(err).NotTo(HaveOccurred())
		defer func() { g.Expect(response.Body.Close()).To(Succeed()) }()
		content, err := io.ReadAll(response.Body)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(response.StatusCode).To(Equal(status), string(content))
		g.Expect(string(content)).To(body)
		header = response.Header
	}, "20s").Should(Succeed(), "response of %s", url)
	return header
}
