//go:build e2e

package e2e

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

const failuresNamespace = "failures-e2e"

// neighbourSince is when the Echo among them that does not fail became ready.
var neighbourSince string

func readySince(echo string) string {
	return kubectl("-n", failuresNamespace, "get", "echo", echo, "-o", `jsonpath={.status.conditions[?(@.type=="Ready")].lastTransitionTime}`)
}

// failing are Echoes whose pods fail, each in a way of its own.
var failing = map[string]map[string]any{
	"crashing": {"image": "docker.io/library/busybox:1.37", "command": []string{"sh", "-c", "echo the cat ate the disk >&2; exit 3"}},
	"huge":     {"resources": map[string]any{"requests": map[string]any{"cpu": "1000", "memory": "16Mi"}}},
	"greedy":   {"resources": map[string]any{"requests": map[string]any{"memory": "2Gi"}}},
	// A server that keeps the contract in its arguments, and does not listen.
	"deaf": {"image": "registry.k8s.io/pause:3.10.1"},
	"late": {},
}

// startFailures makes the failing Echoes, and one beside them that does not fail. They are
// looked at after other specs, as some take minutes to fail.
func startFailures() {
	newNamespace(failuresNamespace)
	kubectl("-n", failuresNamespace, "create", "quota", "memory", "--hard=requests.memory=1Gi")
	apply(failuresNamespace, echoManifest("neighbour", map[string]any{"message": "m"}))
	waitReady(failuresNamespace, "neighbour")
	neighbourSince = readySince("neighbour")
	for name, spec := range failing {
		spec["message"] = "m"
		apply(failuresNamespace, echoManifest(name, spec))
	}
	// As a load balancer does that wants to know of a pod first; this one never does.
	waitReady(failuresNamespace, "late")
	kubectl("-n", failuresNamespace, "patch", "deployment", "echo-late", "-p",
		`{"spec":{"template":{"spec":{"readinessGates":[{"conditionType":"example.com/balanced"}]}}}}`)
}

func failures() {
	failure := func(echo string) func() string {
		return func() string {
			return kubectl("-n", failuresNamespace, "get", "echo", echo, "-o", `jsonpath={range .status.conditions[?(@.type=="Degraded")]}{.reason}: {.message}{end}`)
		}
	}

	DescribeTable("which has failed", func(echo string, words ...string) {
		for _, part := range words {
			Eventually(failure(echo), "3m").Should(ContainSubstring(part))
		}
	},
		Entry("in a crash loop", "crashing", "CrashLooping: ", "exited with code 3: the cat ate the disk"),
		Entry("for want of a node", "huge", "Unschedulable: ", "Insufficient cpu"),
		Entry("at the quota", "greedy", "PodsRejected: ", "exceeded quota: memory"),
		Entry("to answer the probes", "deaf", "CrashLooping: "),
		Entry("to be ready in time", "late", "ProgressDeadlineExceeded: ", "has timed out progressing"),
	)

	It("and no other, and a good spec mends it", func() {
		for echo := range failing {
			kubectl("-n", failuresNamespace, "patch", "echo", echo, "--type=merge", "-p", `{"spec":{"image":null,"command":null,"resources":null}}`)
		}
		kubectl("-n", failuresNamespace, "patch", "deployment", "echo-late", "--type=json", "-p", `[{"op":"remove","path":"/spec/template/spec/readinessGates"}]`)
		settle(failuresNamespace)
		Expect(readySince("neighbour")).To(Equal(neighbourSince), "it was ready all the time")
	})
}
