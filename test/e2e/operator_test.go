//go:build e2e

package e2e

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	. "github.com/kkloud-io/echo-operator/test/e2e/internal/cluster"
)

// steadyStateDuration is the time during which a converged Echo must cause no requests.
const steadyStateDuration = 75 * time.Second

func security() {
	It("runs, like its servers, in namespaces that reject unrestricted pods", func() {
		const namespace = "security-e2e"
		NewNamespace(namespace)
		for _, namespace := range []string{operatorNamespace, namespace} {
			output, err := TryKubectl("", "-n", namespace, "run", "careless", "--image=careless", "--dry-run=server")
			Expect(err).To(HaveOccurred(), output)
			Expect(output).To(ContainSubstring(`violates PodSecurity "restricted`))
		}
	})

	It("responds with 401 without a token, 403 without permission, and 200 with permission", func() {
		const namespace = "metrics-e2e"
		NewNamespace(namespace)
		Kubectl("-n", namespace, "create", "serviceaccount", "stranger")
		Kubectl("-n", namespace, "create", "serviceaccount", "reader")
		DeferCleanup(func() { Kubectl("delete", "clusterrolebinding", namespace, "--ignore-not-found") })
		Kubectl("delete", "clusterrolebinding", namespace, "--ignore-not-found")
		Kubectl("create", "clusterrolebinding", namespace, "--clusterrole=echo-operator-metrics-reader", "--serviceaccount="+namespace+":reader")

		url := "https://" + Forward(operatorNamespace, operatorDeployment, "8443") + "/metrics"
		token := func(account string) string {
			return strings.TrimSpace(Kubectl("-n", namespace, "create", "token", account))
		}
		Expect(statusOf(url, "")).To(Equal(http.StatusUnauthorized))
		Expect(statusOf(url, token("stranger"))).To(Equal(http.StatusForbidden))
		Expect(statusOf(url, token("reader"))).To(Equal(http.StatusOK))
	})
}

// statusOf returns the status of a response over TLS. The operator's certificate is self-signed.
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
	It("makes no requests for converged Echoes, one of which is verified, and none after a restart", func() {
		requireLocalCluster("it reads the audit log")
		const namespace = "steady-state-e2e"
		NewNamespace(namespace)
		Kubectl("-n", namespace, "apply", "-f", "../../config/samples/hello.yaml", "-f", "../../config/samples/verified-canary.yaml")
		WaitSettled(namespace)
		time.Sleep(5 * time.Second) // Until the events and the writes of the last status have ended.

		since := time.Now()
		time.Sleep(steadyStateDuration)
		Expect(requestsFor(namespace, since)).To(BeEmpty())
		isProbe := HaveSuffix("/httproutes?limit=1") // Whether the API server serves the kind: once a minute at most, after a reconciliation.
		Expect(requestsFor("", since)).NotTo(ContainElement(And(MatchRegexp("^(get|list) "), Not(isProbe))), "live reads of the whole cluster")

		Kubectl("-n", operatorNamespace, "delete", "pod", "-l", operatorPods)
		awaitOperator()
		By("waiting until the new leader has reconciled an Echo")
		NewNamespace("restart-e2e")
		CreateEcho("restart-e2e", "hello", echov1.EchoSpec{Message: "hello"})
		WaitReady("restart-e2e", "hello")
		Expect(requestsFor("restart-e2e", since)).NotTo(BeEmpty(), "requests for the new Echo in the audit log")
		Expect(requestsFor(namespace, since)).To(BeEmpty())
	})
}

// requestsFor returns the operator's requests for objects of the namespace, except watches.
func requestsFor(namespace string, since time.Time) []string {
	GinkgoHelper()
	return auditedRequests(operatorAccount, namespace, since)
}

// auditedRequests returns the requests for objects of the namespace, except watches, of users whose name has the prefix.
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
			// ObjectRef is nil for discovery.
			ObjectRef *struct{ Namespace string }
		}
		Expect(json.Unmarshal(lines.Bytes(), &event)).To(Succeed())
		isForNamespace := event.ObjectRef != nil && event.ObjectRef.Namespace == namespace
		if strings.HasPrefix(event.User.Username, user) && isForNamespace && event.Verb != "watch" &&
			event.RequestReceivedTimestamp.After(since) {
			requests = append(requests, fmt.Sprint(event.Verb, " ", event.RequestURI))
		}
	}
	Expect(lines.Err()).NotTo(HaveOccurred())
	return requests
}

// failover ends the leader, and measures the time until the next one leads and writes.
func failover() {
	DescribeTable("has a new leader within the limit, which applies an edit", func(name string, end func(pod string), limit time.Duration) {
		namespace := name + "-e2e"
		NewNamespace(namespace)
		CreateEcho(namespace, "hello", echov1.EchoSpec{Message: "first"})
		WaitReady(namespace, "hello")
		awaitOperator()
		old, err := leader()
		Expect(err).NotTo(HaveOccurred())
		pod, _, _ := strings.Cut(old, "_")

		start := time.Now()
		end(pod)
		Eventually(leader, limit, "100ms").ShouldNot(Or(Equal(old), BeEmpty()))
		leads := time.Since(start)
		PatchEcho(namespace, "hello", `{"message":"second"}`)
		Eventually(func() string {
			return strings.Join(Get(namespace, "echo-hello", &appsv1.Deployment{}).Spec.Template.Spec.Containers[0].Args, " ")
		}, limit-leads, "100ms").Should(ContainSubstring("second"))
		AddReportEntry(fmt.Sprintf("led after %.1f s, wrote after %.1f s", leads.Seconds(), time.Since(start).Seconds()))
		WaitReady(namespace, "hello")
	},
		// The guarantees are 5 s and 20 s, and the machine is busy.
		Entry("when the leader is stopped", "stopped-leader", stopLeader, 10*time.Second),
		Entry("when the leader is evicted, as from a drained node", "evicted-leader", evictLeader, 10*time.Second),
		Entry("when the leader is killed", "killed-leader", killLeader, 40*time.Second),
	)
}

// operatorRestarts returns the number of restarts of each pod of the operator, by its name.
func operatorRestarts() map[string]int32 {
	GinkgoHelper()
	pods, err := Pods(operatorNamespace, operatorPods)
	Expect(err).NotTo(HaveOccurred())
	restarts := map[string]int32{}
	for _, pod := range pods {
		restarts[pod.Name] = pod.Status.ContainerStatuses[0].RestartCount
	}
	return restarts
}

// leader returns the identity of the leader: its pod's name, an underscore, and a UUID.
func leader() (string, error) {
	var lease coordinationv1.Lease
	err := Client().Get(context.Background(), client.ObjectKey{Namespace: operatorNamespace, Name: "echo-operator.kkloud.io"}, &lease)
	if err != nil || lease.Spec.HolderIdentity == nil {
		return "", err
	}
	return *lease.Spec.HolderIdentity, nil
}

// stopLeader ends the operator's process by SIGTERM.
func stopLeader(pod string) {
	GinkgoHelper()
	Kubectl("-n", operatorNamespace, "delete", "pod", pod, "--wait=false")
}

// evictLeader requests the eviction of the pod, which the budget has to allow.
func evictLeader(pod string) {
	GinkgoHelper()
	Expect(Client().SubResource("eviction").Create(context.Background(), Get(operatorNamespace, pod, &corev1.Pod{}), &policyv1.Eviction{})).To(Succeed())
}

// killLeader ends the operator's process by SIGKILL, from the node.
func killLeader(pod string) {
	GinkgoHelper()
	requireLocalCluster("killing a process needs access to the node")
	id := strings.TrimPrefix(Get(operatorNamespace, pod, &corev1.Pod{}).Status.ContainerStatuses[0].ContainerID, "containerd://")
	Expect(id).NotTo(BeEmpty())
	signal("KILL", "manager", "cgroup", id)
}

func removal() {
	It("leaves Echoes and their endpoints in place when it is uninstalled", func() {
		const namespace = "removal-e2e"
		NewNamespace(namespace)
		CreateEcho(namespace, "hello", echov1.EchoSpec{Message: "hello"})
		WaitReady(namespace, "hello")
		csv, err := installedCSV()
		Expect(err).NotTo(HaveOccurred())
		Kubectl("-n", operatorNamespace, "delete", "subscription", "echo-operator")
		Kubectl("-n", operatorNamespace, "delete", "csv", csv)
		Eventually(Pods).WithArguments(operatorNamespace, operatorPods).Should(BeEmpty())
		Expect(Kubectl("-n", operatorNamespace, "get", "deployments", "-o", "name")).To(BeEmpty())
		ExpectBody(namespace, "hello", "80", Equal("hello\n"))
		Get(namespace, "hello", &echov1.Echo{})

		By("removing the remaining objects and the CRD")
		removeOperator()
		Kubectl("delete", "crd", "echoes.kkloud.io")
	})
}
