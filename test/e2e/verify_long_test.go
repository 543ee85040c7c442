//go:build e2e

package e2e

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kkloud-io/echo-operator/test/e2e/internal/workload"
)

const (
	costNamespace = "verify-cost-e2e"
	costEchoes    = 50
	costDuration  = 10 * time.Minute

	disturbedNamespace = "verify-disturbed-e2e"
	disturbedEchoes    = 20
	// reportDelay is how long after a disturbance its failures may be reported.
	reportDelay = 20 * time.Second
)

// disturbedDuration returns the duration of the run under disturbances, which E2E_DURATION shortens.
func disturbedDuration() time.Duration {
	GinkgoHelper()
	duration, err := time.ParseDuration(cmp.Or(os.Getenv("E2E_DURATION"), "1h"))
	Expect(err).NotTo(HaveOccurred(), "E2E_DURATION has to be a duration such as 10m")
	return duration
}

// usage is what the containers and pods of a node used until a time.
type usage struct {
	cpu    time.Duration
	memory []float64
	bytes  float64
}

// usageOf returns the usage of the pods of a namespace whose name has a prefix, as the kubelet measures
// it. The memory of each container is in MiB.
func usageOf(namespace, prefix string) (u usage) {
	GinkgoHelper()
	for node := range strings.FieldsSeq(kubectl("get", "nodes", "-o", "jsonpath={.items[*].metadata.name}")) {
		var summary struct {
			Pods []struct {
				PodRef     struct{ Name, Namespace string }
				Network    struct{ RxBytes, TxBytes float64 }
				Containers []struct {
					CPU    struct{ UsageCoreNanoSeconds int64 }
					Memory struct{ WorkingSetBytes float64 }
				}
			}
		}
		Expect(json.Unmarshal([]byte(kubectl("get", "--raw", "/api/v1/nodes/"+node+"/proxy/stats/summary")), &summary)).To(Succeed())
		for _, pod := range summary.Pods {
			if pod.PodRef.Namespace != namespace || !strings.HasPrefix(pod.PodRef.Name, prefix) {
				continue
			}
			u.bytes += pod.Network.RxBytes + pod.Network.TxBytes
			for _, container := range pod.Containers {
				u.cpu += time.Duration(container.CPU.UsageCoreNanoSeconds)
				u.memory = append(u.memory, container.Memory.WorkingSetBytes/(1<<20))
			}
		}
	}
	return u
}

// longVerification measures what verifiers cost, and runs them under disturbances.
func longVerification() {
	It("costs no request to the API server, and little memory, CPU time and traffic", func() {
		requireLocalCluster("it reads the audit log")
		newNamespace(costNamespace)
		for i := range costEchoes {
			apply(costNamespace, echoManifest(fmt.Sprintf("e%d", i), map[string]any{"message": "hello", "verify": map[string]any{}}))
		}
		kubectl("-n", costNamespace, "wait", "--for=condition=Ready", "echoes", "--all", "--timeout=300s")
		time.Sleep(15 * time.Second) // Until the writes of the last status have ended.

		since, before := time.Now(), usageOf(costNamespace, "verify-")
		Expect(before.memory).To(HaveLen(2*costEchoes), "containers of verifiers")
		time.Sleep(costDuration)
		after, minutes := usageOf(costNamespace, "verify-"), time.Since(since).Minutes()
		Expect(requestsFor(costNamespace, since)).To(BeEmpty(), "requests of the operator")
		Expect(requestsOfPods(costNamespace, since)).To(BeEmpty(), "requests of verifiers")
		// On a busy node, a single round may time out.
		failed := workload.NotVerified(workload.Rounds(costNamespace, "kkloud.io/verifies"))
		for result := range failed {
			Expect(result).To(HaveSuffix("/timeout"), "rounds without the declared answer: %v", failed)
		}
		Expect(kubectl("-n", costNamespace, "get", "events", "--field-selector=reason=VerificationFailed", "-o", "name")).To(BeEmpty())
		var memory, largest float64
		for _, of := range after.memory {
			memory, largest = memory+of, max(largest, of)
		}
		AddReportEntry(fmt.Sprintf("\n| a verifier of two layers, every 10 s | |\n|---|---|\n| memory | %.1f MiB, largest container %.1f MiB |\n| CPU time | %.1f ms a minute |\n| traffic | %.1f KiB a minute |\n| requests to the API server in %.0f minutes, of %d Echoes | 0 |\n| rounds without the declared answer since the first one | %v |",
			memory/costEchoes, largest, float64((after.cpu-before.cpu).Milliseconds())/minutes/costEchoes, (after.bytes-before.bytes)/1024/minutes/costEchoes, minutes, costEchoes, failed))
		Expect(largest).To(BeNumerically("<", 20), "memory of a verifier's container, in MiB")
	})

	It("reports every wrong answer, and no failure after a disturbance has ended", func() {
		requireLocalCluster("it stops the API server")
		newNamespace(disturbedNamespace)
		for i := range disturbedEchoes {
			apply(disturbedNamespace, echoManifest(fmt.Sprintf("e%d", i), map[string]any{
				"message": "hello", "replicas": 1 + i%2, "verify": map[string]any{"periodSeconds": 3},
			}))
		}
		apply(disturbedNamespace, echoManifest("other", map[string]any{"message": "other"}))
		kubectl("-n", disturbedNamespace, "wait", "--for=condition=Ready", "echoes", "--all", "--timeout=300s")
		r := &disturbed{random: rand.New(rand.NewPCG(1, 0)), counts: map[string]int{}} //nolint:gosec // Not a secret.
		r.other = kubectl("-n", disturbedNamespace, "get", "pods", "-l", "kkloud.io/echo=other", "-o", "jsonpath={.items[0].status.podIP}")
		for start := time.Now(); time.Since(start) < disturbedDuration(); {
			r.round()
		}
		AddReportEntry(fmt.Sprintf("%v of %d Echoes in %s: every wrong answer reported, every Echo verified again after each", r.counts, disturbedEchoes, disturbedDuration()))
		Expect(r.counts).To(HaveLen(len(disturbances)), "kinds of disturbances")
	})
}

// requestsOfPods returns the requests of service accounts of the namespace.
func requestsOfPods(namespace string, since time.Time) (requests []string) {
	GinkgoHelper()
	return auditedRequests("system:serviceaccount:"+namespace+":", namespace, since)
}

// disturbed is a run under disturbances.
type disturbed struct {
	random *rand.Rand
	// other is the address of a pod that gives another answer.
	other  string
	counts map[string]int
	// next are the kinds of the next disturbances.
	next []string
}

// disturbances are what happens in a run, by name.
var disturbances = map[string]func(*disturbed){
	"rollout":                    (*disturbed).rollOut,
	"restart of the operator":    (*disturbed).restartOperator,
	"outage of the API server":   (*disturbed).stopAPIServer,
	"restart of the DNS server":  (*disturbed).restartDNS,
	"wrong endpoint":             (*disturbed).breakAnswer,
	"deletion of a verifier pod": (*disturbed).deleteVerifier,
}

// round causes one disturbance. When its failures have been reported, every Echo has to be verified, and to
// stay so.
func (r *disturbed) round() {
	GinkgoHelper()
	if len(r.next) == 0 { // Every kind occurs equally often.
		r.next = slices.Sorted(maps.Keys(disturbances))
		r.random.Shuffle(len(r.next), func(i, j int) { r.next[i], r.next[j] = r.next[j], r.next[i] })
	}
	name := r.next[0]
	r.next = r.next[1:]
	By(name)
	disturbances[name](r)
	r.counts[name]++
	notVerified := func() string {
		return kubectl("-n", disturbedNamespace, "get", "echoes", "-o",
			`jsonpath={range .items[*]}{.metadata.name}{" "}{.status.conditions[?(@.type=="Verified")].status}{"\n"}{end}`)
	}
	time.Sleep(reportDelay)
	Eventually(notVerified, "60s", "1s").ShouldNot(MatchRegexp(`(?m) (False|Unknown)$`), "after: %s", name)
	Consistently(notVerified, "10s", "1s").ShouldNot(MatchRegexp(`(?m) (False|Unknown)$`), "after: %s", name)
}

func (r *disturbed) echo() string { return fmt.Sprintf("e%d", r.random.IntN(disturbedEchoes)) }

// verifiedStatus returns the status of the condition Verified.
func verifiedStatus(echo string) func() string {
	return func() string {
		return kubectl("-n", disturbedNamespace, "get", "echo", echo, "-o", `jsonpath={.status.conditions[?(@.type=="Verified")].status}`)
	}
}

// rollOut edits a message. No verification may fail meanwhile.
func (r *disturbed) rollOut() {
	GinkgoHelper()
	echo := r.echo()
	kubectl("-n", disturbedNamespace, "patch", "echo", echo, "--type=merge", "-p", fmt.Sprintf(`{"spec":{"message":"hello %d"}}`, r.random.Int()))
	Consistently(verifiedStatus(echo), "10s", "200ms").ShouldNot(Equal("False"), "condition Verified of Echo %s during a rollout", echo)
}

func (r *disturbed) restartOperator() {
	GinkgoHelper()
	kubectl("-n", operatorNamespace, "delete", "pod", "-l", "control-plane=controller-manager", "--now")
	kubectl("-n", operatorNamespace, "rollout", "status", operatorDeployment, "--timeout=60s")
}

// stopAPIServer stops the API server. The operator would exit if it could not renew its lease for 10 seconds,
// and the kubelet delays repeated restarts for up to five minutes.
func (r *disturbed) stopAPIServer() {
	GinkgoHelper()
	signal("STOP", "kube-apiserver", "kube-apiserver")
	time.Sleep(7 * time.Second)
	signal("CONT", "kube-apiserver", "kube-apiserver")
	Eventually(func() error { _, err := tryKubectl("", "get", "--raw", "/readyz"); return err }, "60s").Should(Succeed())
}

func (r *disturbed) restartDNS() {
	GinkgoHelper()
	kubectl("-n", "kube-system", "delete", "pod", "-l", "k8s-app=kube-dns", "--now")
	kubectl("-n", "kube-system", "rollout", "status", "deployment/coredns", "--timeout=60s")
}

// breakAnswer gives a Service one more endpoint, which gives another answer, until the Echo reports it.
func (r *disturbed) breakAnswer() {
	GinkgoHelper()
	echo := r.echo()
	defer workload.AddWrongEndpoint(disturbedNamespace, echo, r.other)()
	Eventually(verifiedStatus(echo), "60s", "500ms").Should(Equal("False"), "condition Verified of Echo %s with a wrong endpoint", echo)
}

func (r *disturbed) deleteVerifier() {
	GinkgoHelper()
	kubectl("-n", disturbedNamespace, "delete", "pod", "-l", "kkloud.io/verifies="+r.echo(), "--now")
}
