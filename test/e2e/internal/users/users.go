// Package users has people on the cluster: Echoes, somebody who calls them all the time, and
// an eye for whether an upgrade of the operator was noticed.
package users

import (
	"fmt"
	"slices"
	"strings"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"

	"github.com/kkloud-io/echo-operator/test/e2e/internal/cluster"
)

// echoes can be read by every release: with the default server, once and twice, and with a
// server of their own.
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

// defaultServers is how many of the pods run the default server.
const defaultServers = 3

// caller is the name of the pod that calls.
const caller = "caller"

// minCalls is how many calls there are at least during an upgrade, all Echoes together.
const minCalls = 300

// Users are a namespace with three Echoes and four pods of theirs.
type Users struct {
	// Namespace is theirs alone.
	Namespace string
}

// Sight is what the users see of their Echoes.
type Sight struct {
	declared string
	servers  []string
	calls    Calls
}

// New makes users whose Echoes are ready, and lets them call. They go when the spec ends.
func New(namespace string) Users {
	ginkgo.GinkgoHelper()
	cluster.NewNamespace(namespace)
	cluster.Apply(namespace, echoes)
	u := Users{namespace}
	u.settle()
	StartCaller(namespace, caller, u.url("single")+"/=single", u.url("page")+":8080/=<title>A title</title>", u.url("own")+"/=own")
	return u
}

func (u Users) url(echo string) string { return "http://echo-" + echo + "." + u.Namespace + ".svc" }

// Look returns what the users see now.
func (u Users) Look() Sight {
	ginkgo.GinkgoHelper()
	return Sight{
		declared: cluster.Kubectl("-n", u.Namespace, "get", "echoes", "-o",
			`jsonpath={range .items[*]}{.metadata.uid} {.metadata.generation} {.spec}{"\n"}{end}`),
		servers: u.servers(),
		calls:   CallsOf(u.Namespace, caller),
	}
}

// servers tells the servers' pods apart, from others and from themselves restarted.
func (u Users) servers() []string {
	ginkgo.GinkgoHelper()
	pods := cluster.Kubectl("-n", u.Namespace, "get", "pods", "-l", "kkloud.io/echo", "-o",
		`jsonpath={range .items[*]}{.metadata.uid} {.status.containerStatuses[*].restartCount}{"\n"}{end}`)
	return slices.Sorted(slices.Values(strings.Split(strings.TrimSpace(pods), "\n")))
}

// TryOperator has an Echo made, answer, and removed.
func (u Users) TryOperator() {
	ginkgo.GinkgoHelper()
	cluster.Apply(u.Namespace, `{"apiVersion": "kkloud.io/v1", "kind": "Echo", "metadata": {"name": "trial"}, "spec": {"message": "trial"}}`)
	cluster.WaitReady(u.Namespace, "trial")
	cluster.ExpectAnswer(u.Namespace, "trial", "80", gomega.Equal("trial\n"))
	cluster.Kubectl("-n", u.Namespace, "delete", "echo", "trial")
	cluster.Kubectl("-n", u.Namespace, "wait", "--for=delete", "pod", "-l", "kkloud.io/echo=trial", "--timeout=120s")
}

// Check checks that since the sight every call was answered, that the Echoes are as they
// were written and tell the truth, and that no server's pod is another than before; or, if
// the operator rolls them, exactly those that run its default server. It returns a part of a
// table: calls, failed ones, restarted pods.
func (u Users) Check(before Sight, rolls bool) string {
	ginkgo.GinkgoHelper()
	restarted := func() (count int) {
		after := u.servers()
		for _, server := range before.servers {
			if !slices.Contains(after, server) {
				count++
			}
		}
		return count
	}
	if rolls {
		gomega.Eventually(restarted).Should(gomega.Equal(defaultServers), "the release says that it rolls the default servers")
	}
	u.settle()
	after := u.Look()
	if rolls {
		gomega.Expect(restarted()).To(gomega.Equal(defaultServers), "it rolls no others")
	} else {
		gomega.Expect(after.servers).To(gomega.Equal(before.servers), "the release does not say that it rolls any server")
	}
	gomega.Expect(after.declared).To(gomega.Equal(before.declared), "the Echoes are as they were written")
	calls := after.calls.Since(before.calls)
	gomega.Expect(calls.Failed).To(gomega.BeZero(), strings.Join(calls.Failures, "\n"))
	gomega.Expect(calls.Sent).To(gomega.BeNumerically(">", minCalls), "the users call all the time")
	return fmt.Sprintf("%d | %d | %d of %d", calls.Sent, calls.Failed, restarted(), len(before.servers))
}

// settle waits until every Echo says of its newest spec that it is served, and no old pod is left.
func (u Users) settle() {
	ginkgo.GinkgoHelper()
	gomega.Eventually(func() string {
		return cluster.Kubectl("-n", u.Namespace, "get", "echoes", "-o", `jsonpath={range .items[*]}{.metadata.name} `+
			`{.status.conditions[?(@.type=="Ready")].status} {.metadata.generation}={.status.observedGeneration} {.status.ready};{end}`) +
			cluster.Kubectl("-n", u.Namespace, "get", "pods", "-o", "jsonpath={.items[*].metadata.deletionTimestamp}")
	}).Should(gomega.Equal("own True 1=1 1/1;page True 1=1 2/2;single True 1=1 1/1;"))
}
