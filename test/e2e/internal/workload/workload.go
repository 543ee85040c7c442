// Package workload runs Echoes with clients, and checks that an upgrade of the operator does not
// affect them.
package workload

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/hack/catalog/releases"
	"github.com/kkloud-io/echo-operator/test/e2e/internal/cluster"
)

// echoes are one replica and two replicas of the default server, and a custom image.
var echoes = map[string]echov1.EchoSpec{
	"single": {Message: "single"},
	"page":   {Message: "page", Replicas: 2, Port: 8080, Page: &echov1.Page{Title: "A title", Color: "#4CAF50"}},
	"own":    OwnServer("own", 1),
}

// OwnServer returns the spec of a custom server, with a probe: without it, a pod receives requests before
// its server listens.
func OwnServer(message string, replicas int32) echov1.EchoSpec {
	return echov1.EchoSpec{
		Message: message, Replicas: replicas, Image: "docker.io/hashicorp/http-echo:1.0.0", Command: []string{"/http-echo"},
		Args: []string{"-text=$(ECHO_TEXT)", "-listen=:$(ECHO_PORT)"}, ReadinessPath: "/health",
	}
}

const (
	// defaultServers is the number of pods with the default server.
	defaultServers = 3

	// prober is the name of the prober's pod.
	prober = "prober"

	// minRequests is the lower bound of the requests to all Echoes during an upgrade.
	minRequests = 300
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

// New creates a namespace, which is deleted at the end of the spec, and starts the workload in it.
func New(namespace string) Workload {
	ginkgo.GinkgoHelper()
	cluster.NewNamespace(namespace)
	return Start(namespace)
}

// Start creates the Echoes in an existing namespace, waits until they are ready, and starts the prober.
func Start(namespace string) Workload {
	ginkgo.GinkgoHelper()
	for name, spec := range echoes {
		cluster.CreateEcho(namespace, name, spec)
	}
	w := Workload{namespace}
	cluster.WaitSettled(namespace)
	StartProber(namespace, prober, w.url("single")+"/=single", w.url("page")+":8080/=<title>A title</title>", w.url("own")+"/=own")
	return w
}

func (w Workload) url(echo string) string { return "http://echo-" + echo + "." + w.Namespace + ".svc" }

// Observe returns the present state.
func (w Workload) Observe() Snapshot {
	ginkgo.GinkgoHelper()
	var echoes echov1.EchoList
	gomega.Expect(cluster.Client().List(context.Background(), &echoes, client.InNamespace(w.Namespace))).To(gomega.Succeed())
	snapshot := Snapshot{requests: RequestsOf(w.Namespace, prober)}
	for _, echo := range echoes.Items {
		spec, err := json.Marshal(echo.Spec)
		gomega.Expect(err).NotTo(gomega.HaveOccurred())
		snapshot.specs += fmt.Sprintf("%s %d %s\n", echo.UID, echo.Generation, spec)
	}
	var err error
	snapshot.servers, err = w.servers()
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	return snapshot
}

// servers identifies the servers' containers: UID of the pod and restart count.
func (w Workload) servers() (servers []string, err error) {
	pods, err := cluster.Pods(w.Namespace, "kkloud.io/echo")
	for _, pod := range pods {
		server := []string{string(pod.UID)}
		for _, container := range pod.Status.ContainerStatuses {
			server = append(server, fmt.Sprint(container.RestartCount))
		}
		servers = append(servers, strings.Join(server, " "))
	}
	slices.Sort(servers)
	return servers, err
}

// ExerciseOperator creates an Echo, checks its response, and deletes it.
func (w Workload) ExerciseOperator() {
	ginkgo.GinkgoHelper()
	cluster.CreateEcho(w.Namespace, "trial", echov1.EchoSpec{Message: "trial"})
	cluster.WaitReady(w.Namespace, "trial")
	cluster.ExpectBody(w.Namespace, "trial", "80", gomega.Equal("trial\n"))
	cluster.Kubectl("-n", w.Namespace, "delete", "echo", "trial")
	cluster.Kubectl("-n", w.Namespace, "wait", "--for=delete", "pod", "-l", "kkloud.io/echo=trial", "--timeout=120s")
}

// ExpectUnaffected checks that since the snapshot every request succeeded and no Echo changed,
// that every status is current, and that exactly the given servers restarted. It returns cells of a table row:
// requests, failed requests, restarted pods.
func (w Workload) ExpectUnaffected(before Snapshot, rolled releases.Servers) string {
	ginkgo.GinkgoHelper()
	restarted := func() (count int, err error) {
		after, err := w.servers()
		for _, server := range before.servers {
			if !slices.Contains(after, server) {
				count++
			}
		}
		return count, err
	}
	want := map[releases.Servers]int{releases.DefaultServers: defaultServers, releases.AllServers: len(before.servers)}[rolled]
	gomega.Eventually(restarted).Should(gomega.Equal(want), "restarted servers: this release rolls "+string(rolled))
	cluster.WaitSettled(w.Namespace)
	after := w.Observe()
	gomega.Expect(restarted()).To(gomega.Equal(want), "restarted servers: this release rolls "+string(rolled))
	if rolled == releases.NoServers {
		gomega.Expect(after.servers).To(gomega.Equal(before.servers), "servers and their restarts: this release rolls none")
	}
	gomega.Expect(after.specs).To(gomega.Equal(before.specs), "UIDs, generations and specs of the Echoes")
	requests := after.requests.Since(before.requests)
	failed := requests.Failed
	if rolled != releases.AllServers { // A custom server cuts kept connections when it stops.
		failed += requests.KeptFailed
	}
	gomega.Expect(failed).To(gomega.BeZero(), "failed requests:\n%s", strings.Join(requests.Failures, "\n"))
	gomega.Expect(requests.Sent).To(gomega.BeNumerically(">", minRequests), "requests sent")
	return fmt.Sprintf("%d | %d | %d of %d", requests.Sent, requests.Failed, want, len(before.servers))
}
