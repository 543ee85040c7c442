// Package workload runs Echoes with clients, and checks that an upgrade of the operator does not
// affect them.
package workload

import (
	"fmt"
	"slices"
	"strings"
	"syscall"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"

	"github.com/kkloud-io/echo-operator/hack/catalog/releases"
	"github.com/kkloud-io/echo-operator/test/e2e/internal/cluster"
)

// echoes are valid in every release: one replica and two replicas of the default server, and a
// custom image.
const echoes = `
apiVersion: kkloud.io/v1
kind: Echo
metadata: {name: single}
spec: {message: single}
---
apiVersion: kkloud.io/v1
kind: Echo
metadata: {name: page}
spec: {message: page, replicas: 2, port: 8080, page: {title: "A title", color: "#4CAF50"}}
---
apiVersion: kkloud.io/v1
kind: Echo
metadata: {name: own}
spec:
  message: own
  image: docker.io/hashicorp/http-echo:1.0.0
  command: [/http-echo]
  args: ["-text=$(ECHO_TEXT)", "-listen=:$(ECHO_PORT)"]
`

const (
	// defaultServers is the number of pods with the default server.
	defaultServers = 3

	// prober is the name of the prober's pod.
	prober = "prober"

	// minRequests is the lower bound of the requests to all Echoes during an upgrade.
	minRequests = 300

	// maxLost is the upper bound of the requests that a rollout of a server without probes may lose: those
	// of one second. A server listens within 100 ms, and later while all cores are busy.
	maxLost = 20
)

// Workload is a namespace with three Echoes, their four pods, and a prober.
type Workload struct {
	Namespace string
}

// Snapshot is the state of a workload at one time.
type Snapshot struct {
	specs    string
	servers  []string
	requests Requests
}

// New creates the Echoes, waits until they are ready, and starts the prober. The namespace is
// deleted at the end of the spec.
func New(namespace string) Workload {
	ginkgo.GinkgoHelper()
	cluster.NewNamespace(namespace)
	cluster.Apply(namespace, echoes)
	w := Workload{namespace}
	w.waitSettled()
	StartProber(namespace, prober, w.url("single")+"/=single", w.url("page")+":8080/=<title>A title</title>", w.url("own")+"/=own")
	return w
}

func (w Workload) url(echo string) string { return "http://echo-" + echo + "." + w.Namespace + ".svc" }

// Observe returns the present state.
func (w Workload) Observe() Snapshot {
	ginkgo.GinkgoHelper()
	return Snapshot{
		specs: cluster.Kubectl("-n", w.Namespace, "get", "echoes", "-o",
			`jsonpath={range .items[*]}{.metadata.uid} {.metadata.generation} {.spec}{"\n"}{end}`),
		servers:  w.servers(),
		requests: RequestsOf(w.Namespace, prober),
	}
}

// servers identifies the servers' containers: UID of the pod and restart count.
func (w Workload) servers() []string {
	ginkgo.GinkgoHelper()
	pods := cluster.Kubectl("-n", w.Namespace, "get", "pods", "-l", "kkloud.io/echo", "-o",
		`jsonpath={range .items[*]}{.metadata.uid} {.status.containerStatuses[*].restartCount}{"\n"}{end}`)
	return slices.Sorted(slices.Values(strings.Split(strings.TrimSpace(pods), "\n")))
}

// ExerciseOperator creates an Echo, checks its answer, and deletes it.
func (w Workload) ExerciseOperator() {
	ginkgo.GinkgoHelper()
	cluster.Apply(w.Namespace, `{"apiVersion": "kkloud.io/v1", "kind": "Echo", "metadata": {"name": "trial"}, "spec": {"message": "trial"}}`)
	cluster.WaitReady(w.Namespace, "trial")
	cluster.ExpectAnswer(w.Namespace, "trial", "80", gomega.Equal("trial\n"))
	cluster.Kubectl("-n", w.Namespace, "delete", "echo", "trial")
	cluster.Kubectl("-n", w.Namespace, "wait", "--for=delete", "pod", "-l", "kkloud.io/echo=trial", "--timeout=120s")
}

// ExpectUnaffected checks that since the snapshot every request succeeded and no Echo changed,
// that every status is current, and that exactly the given servers restarted. Only a rollout of the server
// without probes may lose a few requests. It returns cells of a table row: requests, failed requests,
// restarted pods.
func (w Workload) ExpectUnaffected(before Snapshot, rolled releases.Servers) string {
	ginkgo.GinkgoHelper()
	restarted := func() (count int) {
		after := w.servers()
		for _, server := range before.servers {
			if !slices.Contains(after, server) {
				count++
			}
		}
		return count
	}
	want := map[releases.Servers]int{releases.DefaultServers: defaultServers, releases.AllServers: len(before.servers)}[rolled]
	gomega.Eventually(restarted).Should(gomega.Equal(want), "restarted servers: this release rolls "+string(rolled))
	w.waitSettled()
	after := w.Observe()
	gomega.Expect(restarted()).To(gomega.Equal(want), "restarted servers: this release rolls "+string(rolled))
	if rolled == releases.NoServers {
		gomega.Expect(after.servers).To(gomega.Equal(before.servers), "servers and their restarts: this release rolls none")
	}
	gomega.Expect(after.specs).To(gomega.Equal(before.specs), "UIDs, generations and specs of the Echoes")
	requests := after.requests.Since(before.requests)
	failures := strings.Join(requests.Failures, "\n")
	lost := 0
	if rolled == releases.AllServers {
		lost = w.lostByOwn(requests.Failures)
		gomega.Expect(lost).To(gomega.BeNumerically("<=", maxLost), "requests to the server without probes that were lost:\n%s", failures)
	}
	gomega.Expect(requests.Failed-lost).To(gomega.BeZero(), "failed requests:\n%s", failures)
	gomega.Expect(requests.Sent).To(gomega.BeNumerically(">", minRequests), "requests sent")
	return fmt.Sprintf("%d | %d | %d of %d", requests.Sent, requests.Failed, restarted(), len(before.servers))
}

// lostByOwn counts the requests to Echo "own" that found no listener. Its server has no probes, so its new pod gets
// requests before the server listens.
func (w Workload) lostByOwn(failures []string) (count int) {
	for _, failure := range failures {
		if strings.Contains(failure, w.url("own")) && strings.Contains(failure, syscall.ECONNREFUSED.Error()) {
			count++
		}
	}
	return count
}

// waitSettled waits until every Echo is ready in its current generation, and no pod is terminating.
func (w Workload) waitSettled() {
	ginkgo.GinkgoHelper()
	gomega.Eventually(func() string {
		return cluster.Kubectl("-n", w.Namespace, "get", "echoes", "-o", `jsonpath={range .items[*]}{.metadata.name} `+
			`{.status.conditions[?(@.type=="Ready")].status} {.metadata.generation}={.status.observedGeneration} {.status.ready};{end}`) +
			cluster.Kubectl("-n", w.Namespace, "get", "pods", "-o", "jsonpath={.items[*].metadata.deletionTimestamp}")
	}).Should(gomega.Equal("own True 1=1 1/1;page True 1=1 2/2;single True 1=1 1/1;"), "Echoes and terminating pods in %s", w.Namespace)
}
