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

	"github.com/kkloud-io/echo-operator/test/internal/testcluster"
)

// quietTime is how long a converged Echo is watched.
const quietTime = 5 * time.Minute

const quietNamespace = "quiet-e2e"

var quietSince time.Time

// startQuietTime sets up a converged Echo. It is looked at after the other specs, so that
// the quiet minutes pass while they run.
func startQuietTime() {
	newNamespace(quietNamespace)
	kubectl("-n", quietNamespace, "apply", "-f", "../../config/samples/hello.yaml")
	waitReady(quietNamespace, "hello")
	Eventually(func() string { return kubectl("-n", quietNamespace, "events", "--for", "echo/hello") }).Should(MatchRegexp(`Normal +Ready `))
	quietSince = time.Now().Add(time.Second)
}

func scorecard() {
	It("that passes every test of the scorecard under restricted pod security", func() {
		const namespace = "scorecard-e2e"
		newNamespace(namespace)
		kubectl("-n", namespace, "create", "serviceaccount", "scorecard")
		kubectl("-n", namespace, "apply", "-f", "../../config/scorecard/role.yaml")
		kubectl("-n", namespace, "create", "rolebinding", "scorecard", "--role=echo-operator-scorecard", "--serviceaccount="+namespace+":scorecard")

		// The bundle as its image was made; the tests' images are where the operator's are.
		command := exec.Command("operator-sdk", "scorecard", "../../bin/package/bundle", "--namespace", namespace,
			"--service-account", "scorecard", "--pod-security", "restricted", "--wait-time", "3m", "--output", "json",
			// The SDK's own default is a digest, which an offline cluster does not have.
			"--untar-image", "quay.io/operator-framework/scorecard-untar:v1.42.2")
		var output, errors bytes.Buffer
		command.Stdout, command.Stderr = &output, &errors
		ran := command.Run()
		var list v1alpha3.TestList
		Expect(json.Unmarshal(output.Bytes(), &list)).To(Succeed(), "%v\n%s%s", ran, &output, &errors)
		var passed []string
		for _, test := range list.Items {
			for _, result := range test.Status.Results {
				// Some of the SDK's tests never fail, they suggest. The one that asks for a
				// status in every example is satisfied with a single one.
				if result.State == v1alpha3.PassState && (len(result.Suggestions) == 0 || result.Name == "olm-status-descriptors") {
					passed = append(passed, result.Name)
					continue
				}
				GinkgoWriter.Printf("%s\n", test.MarshalText())
			}
		}
		Expect(passed).To(ConsistOf("basic-check-spec", "olm-bundle-validation", "olm-crds-have-validation",
			"olm-crds-have-resources", "olm-spec-descriptors", "olm-status-descriptors",
			"echo-answers", "echo-scales", "echo-rolls", "echo-rejects", "echo-cleanup"))
		Expect(ran).To(Succeed(), &errors)

		By("seeing that it removed its Echoes")
		Expect(kubectl("-n", namespace, "get", "echoes", "-o", "name")).To(BeEmpty())
	})
}

func podSecurity() {
	It("that refuses, where the operator and where its servers run, what is not restricted", func() {
		for _, namespace := range []string{operatorNamespace, quietNamespace} {
			output, err := tryKubectl("", "-n", namespace, "run", "careless", "--image=careless", "--dry-run=server")
			Expect(err).To(HaveOccurred(), output)
			Expect(output).To(ContainSubstring(`violates PodSecurity "restricted`))
		}
	})
}

func metrics() {
	It("only to those whom the API server lets read them", func() {
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

// statusOf returns the status of an answer over TLS; the operator's certificate is its own.
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
	Expect(response.ProtoMajor).To(Equal(1), "HTTP/2 is off")
	return response.StatusCode
}

func quiet() {
	It("for five minutes, and after a restart", func() {
		requireLocalCluster("only the local cluster's audit log can be read")
		time.Sleep(time.Until(quietSince.Add(quietTime)))
		Expect(requestsFor(quietNamespace, quietSince)).To(BeEmpty())
		Expect(requestsFor("", quietSince)).NotTo(ContainElement(MatchRegexp("^(get|list) ")), "a live read of the whole cluster")

		kubectl("-n", operatorNamespace, "delete", "pod", "-l", "control-plane=controller-manager")
		kubectl("-n", operatorNamespace, "rollout", "status", operatorDeployment, "--timeout=60s")
		By("letting the new one lead, and make its first passes")
		newNamespace("restart-e2e")
		kubectl("-n", "restart-e2e", "apply", "-f", "../../config/samples/hello.yaml")
		waitReady("restart-e2e", "hello")
		Expect(requestsFor("restart-e2e", quietSince)).NotTo(BeEmpty(), "the audit log is read")
		Expect(requestsFor(quietNamespace, quietSince)).To(BeEmpty())
	})
}

// requireLocalCluster skips the spec on any other cluster.
func requireLocalCluster(why string) {
	GinkgoHelper()
	if !testcluster.IsLocal("../..") {
		Skip(why)
	}
}

func removal() {
	It("and Echoes can be deleted while it is away", func() {
		newNamespace("down-e2e")
		kubectl("-n", "down-e2e", "apply", "-f", "../../config/samples/hello.yaml")
		waitReady("down-e2e", "hello")
		// OLM would start the operator again.
		kubectl("-n", "olm", "scale", "deployment/olm-operator", "--replicas=0")
		DeferCleanup(func() {
			kubectl("-n", "olm", "scale", "deployment/olm-operator", "--replicas=1")
			kubectl("-n", "olm", "rollout", "status", "deployment/olm-operator", "--timeout=60s")
		})
		kubectl("-n", "olm", "wait", "--for=delete", "pod", "-l", "app=olm-operator", "--timeout=60s")
		kubectl("-n", operatorNamespace, "scale", operatorDeployment, "--replicas=0")
		kubectl("-n", operatorNamespace, "wait", "--for=delete", "pod", "-l", "control-plane=controller-manager", "--timeout=60s")
		kubectl("-n", "down-e2e", "delete", "echo", "hello")
		Eventually(func() string {
			return kubectl("-n", "down-e2e", "get", "deployments,services,poddisruptionbudgets,pods", "-o", "name")
		}).Should(BeEmpty())
	})

	It("and leaves the endpoints serving when it is uninstalled", func() {
		csv := kubectl("-n", operatorNamespace, "get", "subscription", "echo-operator", "-o", "jsonpath={.status.installedCSV}")
		kubectl("-n", operatorNamespace, "delete", "subscription", "echo-operator")
		kubectl("-n", operatorNamespace, "delete", "csv", csv)
		Eventually(func() string { return kubectl("-n", operatorNamespace, "get", "deployments,pods", "-o", "name") }).Should(BeEmpty())
		expectAnswer(quietNamespace, "hello", "80", Equal("xin chao operator\n"))
		Expect(kubectl("-n", quietNamespace, "get", "echo", "hello", "-o", "name")).To(ContainSubstring("hello"))

		By("removing the rest")
		removeOperator()
		kubectl("delete", "crd", "echoes.kkloud.io")
	})
}

// requestsFor returns the requests that the operator made for the namespace, watches apart.
func requestsFor(namespace string, since time.Time) []string {
	GinkgoHelper()
	file, err := os.Open("../../bin/cluster/logs/audit.log")
	Expect(err).NotTo(HaveOccurred())
	defer func() { Expect(file.Close()).To(Succeed()) }()
	var requests []string
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if !strings.Contains(lines.Text(), operatorAccount) {
			continue
		}
		var event struct {
			Verb, RequestURI         string
			RequestReceivedTimestamp time.Time
			ObjectRef                struct{ Namespace string }
		}
		Expect(json.Unmarshal(lines.Bytes(), &event)).To(Succeed())
		if event.ObjectRef.Namespace == namespace && event.Verb != "watch" && event.RequestReceivedTimestamp.After(since) {
			requests = append(requests, fmt.Sprint(event.Verb, " ", event.RequestURI))
		}
	}
	Expect(lines.Err()).NotTo(HaveOccurred())
	return requests
}
