//go:build e2e

package e2e

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

const failuresNamespace = "failures-e2e"

// neighbourReadySince is the time at which the one Echo without a failure became ready.
var neighbourReadySince string

func readySince(echo string) string {
	return kubectl("-n", failuresNamespace, "get", "echo", echo, "-o", `jsonpath={.status.conditions[?(@.type=="Ready")].lastTransitionTime}`)
}

// failingEchoes are the specs of Echoes whose pods fail in different ways.
var failingEchoes = map[string]map[string]any{
	"crashing": {"image": "docker.io/library/busybox:1.37", "command": []string{"sh", "-c", "echo the cat ate the disk >&2; exit 3"}},
	"huge":     {"resources": map[string]any{"requests": map[string]any{"cpu": "1000", "memory": "16Mi"}}},
	"greedy":   {"resources": map[string]any{"requests": map[string]any{"memory": "2Gi"}}},
	// A server that accepts the arguments and does not listen.
	"deaf": {"image": "registry.k8s.io/pause:3.10.1"},
	"late": {},
}

// startFailures creates the failing Echoes and one without a failure. The specs that check them
// run last, because some failures take minutes.
func startFailures() {
	newNamespace(failuresNamespace)
	kubectl("-n", failuresNamespace, "create", "quota", "memory", "--hard=requests.memory=1Gi")
	apply(failuresNamespace, echoManifest("neighbour", map[string]any{"message": "m"}))
	waitReady(failuresNamespace, "neighbour")
	neighbourReadySince = readySince("neighbour")
	for name, spec := range failingEchoes {
		spec["message"] = "m"
		apply(failuresNamespace, echoManifest(name, spec))
	}
	// A load balancer's controller sets such a condition once the pod is registered. Here it stays unset.
	waitReady(failuresNamespace, "late")
	kubectl("-n", failuresNamespace, "patch", "deployment", "echo-late", "-p",
		`{"spec":{"template":{"spec":{"readinessGates":[{"conditionType":"example.com/balanced"}]}}}}`)
}

func failures() {
	degraded := func(echo string) func() string {
		return func() string {
			return kubectl("-n", failuresNamespace, "get", "echo", echo, "-o", `jsonpath={range .status.conditions[?(@.type=="Degraded")]}{.reason}: {.message}{end}`)
		}
	}

	DescribeTable("reports reason and message of the failure", func(echo string, substrings ...string) {
		for _, substring := range substrings {
			Eventually(degraded(echo), "3m").Should(ContainSubstring(substring), "condition Degraded of Echo %s/%s", failuresNamespace, echo)
		}
	},
		Entry("of a container that exits", "crashing", "CrashLooping: ", "exited with code 3: the cat ate the disk"),
		Entry("of a pod that fits on no node", "huge", "Unschedulable: ", "Insufficient cpu"),
		Entry("of a pod that exceeds the quota", "greedy", "PodsRejected: ", "exceeded quota: memory"),
		Entry("of a container that does not answer its probes", "deaf", "CrashLooping: "),
		Entry("of a pod that is not ready before the progress deadline", "late", "ProgressDeadlineExceeded: ", "has timed out progressing"),
	)

	It("recovers with a valid spec, and another Echo stays ready throughout", func() {
		for echo := range failingEchoes {
			kubectl("-n", failuresNamespace, "patch", "echo", echo, "--type=merge", "-p", `{"spec":{"image":null,"command":null,"resources":null}}`)
		}
		kubectl("-n", failuresNamespace, "patch", "deployment", "echo-late", "--type=json", "-p", `[{"op":"remove","path":"/spec/template/spec/readinessGates"}]`)
		waitSettled(failuresNamespace)
		Expect(readySince("neighbour")).To(Equal(neighbourReadySince), "last transition of condition Ready of Echo neighbour")
	})
}
