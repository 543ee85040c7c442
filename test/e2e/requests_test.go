//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/test/e2e/internal/workload"
)

// page is a part of a page that its plain text does not contain.
const page = "<title>A title</title>"

// measuredOnly is for changes that may lose requests with any number of replicas.
const measuredOnly = math.MaxInt

// requests changes Echoes while probers request them. docs/architecture.md documents the
// guarantees that it checks.
func requests() {
	const namespace = "requests-e2e"
	replicas := map[string]int{"own": 1, "single": 1, "two": 2}
	echoes := slices.Sorted(maps.Keys(replicas))
	answer := "first" // The present answer of the Echoes.
	var table []string

	edit := func(spec string) func() {
		return func() {
			for _, echo := range echoes {
				kubectl("-n", namespace, "patch", "echo", echo, "--type=merge", "-p", `{"spec":`+spec+`}`)
			}
		}
	}
	scale := func(factor int) func() {
		return func() {
			for _, echo := range echoes {
				kubectl("-n", namespace, "scale", "echo", echo, fmt.Sprint("--replicas=", factor*replicas[echo]))
			}
		}
	}
	// An init container, as a webhook might inject, that runs longer than an old pod's preStop hook.
	startSlowly := func() {
		for _, echo := range echoes {
			kubectl("-n", namespace, "patch", "deployment", "echo-"+echo, "-p", `{"spec":{"template":{"spec":{"initContainers":[{
				"name": "slow", "image": "docker.io/library/busybox:1.37", "command": ["sleep", "7"],
				"securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}}}]}}}}`)
		}
	}
	deleteOneByOne := func() {
		pods := map[string][]string{}
		for _, echo := range echoes {
			pods[echo] = strings.Fields(kubectl("-n", namespace, "get", "pods", "-l", "kkloud.io/echo="+echo, "-o", "name"))
		}
		for len(pods) > 0 {
			next := []string{"-n", namespace, "delete"}
			for echo, left := range pods {
				next = append(next, left[0])
				if pods[echo] = left[1:]; len(left) == 1 {
					delete(pods, echo)
				}
			}
			kubectl(next...)
			waitSettled(namespace)
		}
	}
	deleteAll := func() { kubectl("-n", namespace, "delete", "pods", "-l", "kkloud.io/echo") }

	BeforeAll(func() {
		newNamespace(namespace)
		apply(namespace, echoManifest("single", map[string]any{"message": answer}))
		apply(namespace, echoManifest("two", map[string]any{"message": answer, "replicas": 2}))
		apply(namespace, echoManifest("own", map[string]any{
			"message": answer, "image": "docker.io/hashicorp/http-echo:1.0.0",
			"command": []string{"/http-echo"}, "args": []string{"-text=$(ECHO_TEXT)", "-listen=:$(ECHO_PORT)"},
			"readinessPath": "/health", // Without it, a pod receives requests before its server listens.
		}))
		waitSettled(namespace)
		for _, echo := range echoes {
			workload.StartProber(namespace, echo, fmt.Sprintf("http://echo-%s.%s.svc/=%s|first|second", echo, namespace, page))
		}
	})
	AfterAll(func() {
		AddReportEntry("\n| change | seconds | Echo | requests | failed |\n|---|---|---|---|---|\n" + strings.Join(table, "\n"))
	})

	DescribeTable("answers every request with the old or the new answer during", func(change func(), next string, guaranteedFrom int) {
		before := map[string]workload.Requests{}
		for _, echo := range echoes {
			before[echo] = workload.RequestsOf(namespace, echo)
		}
		start := time.Now()
		change()
		waitSettled(namespace)
		took := time.Since(start)
		for _, echo := range echoes {
			requests := workload.RequestsOf(namespace, echo).Since(before[echo])
			table = append(table, fmt.Sprintf("| %s | %.0f | %s | %d | %d |",
				CurrentSpecReport().LeafNodeText, took.Seconds(), echo, requests.Sent, requests.Failed))
			if replicas[echo] >= guaranteedFrom {
				Expect(requests.Failed).To(BeZero(), "failed requests to Echo %s:\n%s", echo, strings.Join(requests.Failures, "\n"))
			}
			Expect(slices.Collect(maps.Keys(requests.Answers))).To(SatisfyAll(ContainElement(next), HaveEach(BeElementOf(answer, next))),
				"answers of Echo %s", echo)
		}
		answer = next
	},
		Entry("an edit of message", edit(`{"message":"second"}`), "second", 1),
		Entry("an addition of page", sampled, edit(`{"page":{"title":"A title"}}`), page, 1),
		Entry("a removal of page", sampled, edit(`{"page":null}`), "second", 1),
		Entry("an edit of resources", sampled, edit(`{"resources":{"requests":{"cpu":"20m"}}}`), "second", 1),
		Entry("an edit of targetPort", sampled, edit(`{"targetPort":8080}`), "second", 1),
		Entry("an edit of image", sampled, edit(`{"image":"docker.io/hashicorp/http-echo:1.0.0"}`), "second", 1),
		Entry("a doubling of replicas", sampled, scale(2), "second", 1),
		Entry("a halving of replicas", sampled, scale(1), "second", 1),
		Entry("a rollout with slow init containers", sampled, startSlowly, "second", 1),
		Entry("deletions of one pod after the other", sampled, deleteOneByOne, "second", 2),
		Entry("a deletion of all pods at once", sampled, deleteAll, "second", measuredOnly),
	)
}

// waitSettled waits until every Echo of the namespace is ready in its current generation, and no
// earlier pod is left.
func waitSettled(namespace string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		var echoes echov1.EchoList
		var pods corev1.PodList
		g.Expect(json.Unmarshal([]byte(kubectl("-n", namespace, "get", "echoes", "-o", "json")), &echoes)).To(Succeed())
		g.Expect(json.Unmarshal([]byte(kubectl("-n", namespace, "get", "pods", "-l", "kkloud.io/echo", "-o", "json")), &pods)).To(Succeed())
		replicas := 0
		for _, echo := range echoes.Items {
			replicas += int(echo.Spec.Replicas)
			g.Expect(echo.Status.ObservedGeneration).To(Equal(echo.Generation), echo.Name)
			g.Expect(echo.Status.Ready).To(Equal(fmt.Sprintf("%d/%[1]d", echo.Spec.Replicas)), echo.Name)
			g.Expect(meta.IsStatusConditionTrue(echo.Status.Conditions, echov1.ConditionReady)).To(BeTrue(), echo.Name)
		}
		g.Expect(pods.Items).To(HaveLen(replicas))
	}, "2m", "200ms").Should(Succeed())
}
