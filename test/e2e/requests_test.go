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
	"github.com/kkloud-io/echo-operator/test/e2e/internal/users"
)

// page is what tells a page from the plain text that it shows.
const page = "<title>A title</title>"

// noPromise stands for a loss that is measured and not promised for any number of replicas.
const noPromise = math.MaxInt

// requests changes Echoes that are called all the time. The promises are those that
// docs/architecture.md makes.
func requests() {
	const namespace = "requests-e2e"
	replicas := map[string]int{"own": 1, "single": 1, "two": 2}
	echoes := slices.Sorted(maps.Keys(replicas))
	answer := "first" // What the Echoes answer now.
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
	// An init container, such as others inject, that takes longer than old pods stay.
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
			settle(namespace)
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
		}))
		settle(namespace)
		for _, echo := range echoes {
			users.StartCaller(namespace, echo, fmt.Sprintf("http://echo-%s.%s.svc/=%s|first|second", echo, namespace, page))
		}
	})
	AfterAll(func() {
		AddReportEntry("\n| what changes | seconds | Echo | requests | failed |\n|---|---|---|---|---|\n" + strings.Join(table, "\n"))
	})

	DescribeTable("and every request is answered, as before or as it shall be", func(change func(), next string, promisedFrom int) {
		before := map[string]users.Calls{}
		for _, echo := range echoes {
			before[echo] = users.CallsOf(namespace, echo)
		}
		start := time.Now()
		change()
		settle(namespace)
		took := time.Since(start)
		for _, echo := range echoes {
			calls := users.CallsOf(namespace, echo).Since(before[echo])
			table = append(table, fmt.Sprintf("| %s | %.0f | %s | %d | %d |",
				CurrentSpecReport().LeafNodeText, took.Seconds(), echo, calls.Sent, calls.Failed))
			if replicas[echo] >= promisedFrom {
				Expect(calls.Failed).To(BeZero(), "%s: %s", echo, strings.Join(calls.Failures, "\n"))
			}
			Expect(slices.Collect(maps.Keys(calls.Answers))).To(SatisfyAll(ContainElement(next), HaveEach(BeElementOf(answer, next))))
		}
		answer = next
	},
		Entry("message", edit(`{"message":"second"}`), "second", 1),
		Entry("page on", edit(`{"page":{"title":"A title"}}`), page, 1),
		Entry("page off", edit(`{"page":null}`), "second", 1),
		Entry("resources", edit(`{"resources":{"requests":{"cpu":"20m"}}}`), "second", 1),
		Entry("targetPort", edit(`{"targetPort":8080}`), "second", 1),
		Entry("image", edit(`{"image":"docker.io/hashicorp/http-echo:1.0.0"}`), "second", 1),
		Entry("twice the replicas", scale(2), "second", 1),
		Entry("half of them", scale(1), "second", 1),
		Entry("slow start", startSlowly, "second", 1),
		Entry("pods deleted, one after the other", deleteOneByOne, "second", 2),
		Entry("all pods deleted at once", deleteAll, "second", noPromise),
	)
}

// settle waits until every Echo of the namespace says of its newest spec that it is served,
// and no earlier pod is left.
func settle(namespace string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		var echoes echov1.EchoList
		var pods corev1.PodList
		g.Expect(json.Unmarshal([]byte(kubectl("-n", namespace, "get", "echoes", "-o", "json")), &echoes)).To(Succeed())
		g.Expect(json.Unmarshal([]byte(kubectl("-n", namespace, "get", "pods", "-l", "kkloud.io/echo", "-o", "json")), &pods)).To(Succeed())
		wanted := 0
		for _, echo := range echoes.Items {
			wanted += int(echo.Spec.Replicas)
			g.Expect(echo.Status.ObservedGeneration).To(Equal(echo.Generation), echo.Name)
			g.Expect(echo.Status.Ready).To(Equal(fmt.Sprintf("%d/%[1]d", echo.Spec.Replicas)), echo.Name)
			g.Expect(meta.IsStatusConditionTrue(echo.Status.Conditions, echov1.ConditionReady)).To(BeTrue(), echo.Name)
		}
		g.Expect(pods.Items).To(HaveLen(wanted))
	}, "2m", "200ms").Should(Succeed())
}
