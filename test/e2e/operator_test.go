//go:build e2e

package e2e

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/operator-framework/api/pkg/apis/scorecard/v1alpha3"

	"github.com/kkloud-io/echo-operator/test/e2e/internal/cluster"
	"github.com/kkloud-io/echo-operator/test/internal/testcluster"
)

// steadyStateDuration is the time during which a converged Echo must cause no requests.
const steadyStateDuration = 5 * time.Minute

const steadyStateNamespace = "steady-state-e2e"

var steadyStateSince time.Time

// startSteadyState creates two Echoes that converge, one of which is verified. Their spec runs after the
// others, so that the five minutes pass while they run.
func startSteadyState() {
	newNamespace(steadyStateNamespace)
	kubectl("-n", steadyStateNamespace, "apply", "-f", "../../config/samples/hello.yaml")
	kubectl("-n", steadyStateNamespace, "apply", "-f", "../../config/samples/verified-canary.yaml")
	waitReady(steadyStateNamespace, "hello")
	kubectl("-n", steadyStateNamespace, "wait", "--for=condition=Verified", "echo/verified-canary", "--timeout=120s")
	waitReady(steadyStateNamespace, "verified-canary")
	Eventually(func() string { return kubectl("-n", steadyStateNamespace, "events", "--for", "echo/hello") }).Should(MatchRegexp(`Normal +Ready `))
	steadyStateSince = time.Now().Add(time.Second)
}

func scorecard() {
	It("passes every test of the scorecard under restricted Pod Security", func() {
		const namespace = "scorecard-e2e"
		newNamespace(namespace)
		kubectl("-n", namespace, "create", "serviceaccount", "scorecard")
		kubectl("-n", namespace, "apply", "-f", "../../config/scorecard/role.yaml")
		kubectl("-n", namespace, "create", "rolebinding", "scorecard", "--role=echo-operator-scorecard", "--serviceaccount="+namespace+":scorecard")

		// The bundle of the image: it names the images of the scorecard's tests in the same registry.
		command := exec.Command("operator-sdk", "scorecard", "../../bin/package/bundle", "--namespace", namespace,
			"--service-account", "scorecard", "--pod-security", "restricted", "--wait-time", "3m", "--output", "json",
			// The default is a digest, which an offline cluster cannot pull.
			"--untar-image", "quay.io/operator-framework/scorecard-untar:v1.42.2")
		var output, errors bytes.Buffer
		command.Stdout, command.Stderr = &output, &errors
		ran := command.Run()
		var list v1alpha3.TestList
		Expect(json.Unmarshal(output.Bytes(), &list)).To(Succeed(), "%v\n%s%s", ran, &output, &errors)
		var passed []string
		for _, test := range list.Items {
			for _, result := range test.Status.Results {
				// Some of the SDK's tests never fail but make suggestions. olm-status-descriptors
				// suggests a status in every example, and passes with one.
				if result.State == v1alpha3.PassState && (len(result.Suggestions) == 0 || result.Name == "olm-status-descriptors") {
					passed = append(passed, result.Name)
					continue
				}
				GinkgoWriter.Printf("%s\n", test.MarshalText())
			}
		}
		Expect(passed).To(ConsistOf("basic-check-spec", "olm-bundle-validation", "olm-crds-have-validation",
			"olm-crds-have-resources", "olm-spec-descriptors", "olm-status-descriptors",
			"echo-answers", "echo-scales", "echo-rolls", "echo-verifies", "echo-rejects", "echo-cleanup"))
		Expect(ran).To(Succeed(), &errors)

		By("checking that the scorecard deleted its Echoes")
		Expect(kubectl("-n", namespace, "get", "echoes", "-o", "name")).To(BeEmpty())
	})
}

func podSecurity() {
	It("runs, like its servers, in namespaces that reject unrestricted pods", func() {
		for _, namespace := range []string{operatorNamespace, steadyStateNamespace} {
			output, err := tryKubectl("", "-n", namespace, "run", "careless", "--image=careless", "--dry-run=server")
			Expect(err).To(HaveOccurred(), output)
			Expect(output).To(ContainSubstring(`violates PodSecurity "restricted`))
		}
	})
}

func metrics() {
	It("answers 401 without a token, 403 without permission, and 200 with permission", func() {
		const namespace = "metrics-e2e"
		newNamespace(namespace)
		kubectl("-n", namespace, "create", "serviceaccount", "stranger")
		kubectl("-n", namespace, "create", "serviceaccount", "reader")
		kubectl("create", "clusterrolebinding", namespace, "--clusterrole=echo-operator-metrics-reader", "--serviceaccount="+namespace+":reader")
		DeferCleanup(func() { kubectl("delete", "clusterrolebinding", namespace) })

		url := "https://" + forward(operatorNamespace, operatorDeployment, "8443") + "/metrics"
		Expect(statusOf(url, "")).To(Equal(http.StatusUnauthorized))
		Expect(statusOf(url, token(namespace, "stranger"))).To(Equal(http.StatusForbidden))
		Expect(statusOf(url, token(namespace, "reader"))).To(Equal(http.StatusOK))
	})
}

func token(namespace, account string) string {
	GinkgoHelper()
	return strings.TrimSpace(kubectl("-n", namespace, "create", "token", account))
}

// statusOf returns the status of an answer over TLS. The operator's certificate is self-signed.
func statusOf(url, token string) int {
	GinkgoHelper()
	request, err := http.NewRequest(http.MethodGet, url, nil)
	Expect(err).NotTo(HaveOccurred())
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	response, err := client.Do(request)
	Expect(err).NotTo(HaveOccurred())
	Expect(response.Body.Close()).To(Succeed())
	Expect(response.ProtoMajor).To(Equal(1), "major version of HTTP")
	return response.StatusCode
}

func steadyState() {
	It("makes no requests for five minutes, and none after a restart", func() {
		requireLocalCluster("it reads the audit log")
		time.Sleep(time.Until(steadyStateSince.Add(steadyStateDuration)))
		Expect(requestsFor(steadyStateNamespace, steadyStateSince)).To(BeEmpty())
		Expect(requestsFor("", steadyStateSince)).NotTo(ContainElement(MatchRegexp("^(get|list) ")), "live reads of the whole cluster")

		kubectl("-n", operatorNamespace, "delete", "pod", "-l", "control-plane=controller-manager")
		kubectl("-n", operatorNamespace, "rollout", "status", operatorDeployment, "--timeout=60s")
		By("waiting until the new leader has reconciled an Echo")
		newNamespace("restart-e2e")
		kubectl("-n", "restart-e2e", "apply", "-f", "../../config/samples/hello.yaml")
		waitReady("restart-e2e", "hello")
		Expect(requestsFor("restart-e2e", steadyStateSince)).NotTo(BeEmpty(), "requests for the new Echo in the audit log")
		Expect(requestsFor(steadyStateNamespace, steadyStateSince)).To(BeEmpty())
	})
}

// requireLocalCluster skips the spec on every other cluster.
func requireLocalCluster(reason string) {
	GinkgoHelper()
	if !testcluster.IsLocal("../..") {
		Skip("This needs the local cluster: " + reason)
	}
}

// stopOperator stops the operator, and OLM until the end of the spec.
func stopOperator() {
	GinkgoHelper()
	cluster.StopOLM()
	kubectl("-n", operatorNamespace, "scale", operatorDeployment, "--replicas=0")
	kubectl("-n", operatorNamespace, "wait", "--for=delete", "pod", "-l", "control-plane=controller-manager", "--timeout=60s")
}

func removal() {
	It("leaves no children after an Echo is deleted while the operator is not running", func() {
		newNamespace("down-e2e")
		kubectl("-n", "down-e2e", "apply", "-f", "../../config/samples/hello.yaml")
		waitReady("down-e2e", "hello")
		stopOperator()
		kubectl("-n", "down-e2e", "delete", "echo", "hello")
		Eventually(func() string {
			return kubectl("-n", "down-e2e", "get", cluster.ChildResources()+",pods", "-o", "name")
		}).Should(BeEmpty())
	})

	It("leaves Echoes and their endpoints in place when it is uninstalled", func() {
		csv := kubectl("-n", operatorNamespace, "get", "subscription", "echo-operator", "-o", "jsonpath={.status.installedCSV}")
		kubectl("-n", operatorNamespace, "delete", "subscription", "echo-operator")
		kubectl("-n", operatorNamespace, "delete", "csv", csv)
		Eventually(func() string { return kubectl("-n", operatorNamespace, "get", "deployments,pods", "-o", "name") }).Should(BeEmpty())
		expectAnswer(steadyStateNamespace, "hello", "80", Equal("xin chao operator\n"))
		Expect(kubectl("-n", steadyStateNamespace, "get", "echo", "hello", "-o", "name")).To(ContainSubstring("hello"))

		By("removing the remaining objects and the CRD")
		removeOperator()
		kubectl("delete", "crd", "echoes.kkloud.io")
	})
}

// requestsFor returns the operator's requests for the namespace, except watches.
func requestsFor(namespace string, since time.Time) []string {
	GinkgoHelper()
	return auditedRequests(operatorAccount, namespace, since)
}

// auditedRequests returns the requests for the namespace, except watches, of users whose name has the prefix.
func auditedRequests(user, namespace string, since time.Time) []string {
	GinkgoHelper()
	file, err := os.Open("../../bin/cluster/logs/audit.log")
	Expect(err).NotTo(HaveOccurred())
	defer func() { Expect(file.Close()).To(Succeed()) }()
	var requests []string
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if !strings.Contains(lines.Text(), user) {
			continue
		}
		var event struct {
			Verb, RequestURI         string
			User                     struct{ Username string }
			RequestReceivedTimestamp time.Time
			ObjectRef                struct{ Namespace string }
		}
		Expect(json.Unmarshal(lines.Bytes(), &event)).To(Succeed())
		if strings.HasPrefix(event.User.Username, user) && event.ObjectRef.Namespace == namespace && event.Verb != "watch" && event.RequestReceivedTimestamp.After(since) {
			requests = append(requests, fmt.Sprint(event.Verb, " ", event.RequestURI))
		}
	}
	Expect(lines.Err()).NotTo(HaveOccurred())
	return requests
}
