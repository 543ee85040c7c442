//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	. "github.com/kkloud-io/echo-operator/test/e2e/internal/cluster"
	"github.com/kkloud-io/echo-operator/test/e2e/internal/workload"
)

// requests changes Echoes while probers request them. docs/guarantees.md documents what
// it checks.
func requests() {
	const namespace = "requests-e2e"
	response := "first" // The present response of the Echoes.
	specs := map[string]echov1.EchoSpec{
		"own": workload.OwnServer(response, 1), "single": {Message: response, Replicas: 1}, "two": {Message: response, Replicas: 2},
	}
	echoes := slices.Sorted(maps.Keys(specs))
	var table []string

	edit := func(spec string) func() {
		return func() {
			for _, echo := range echoes {
				PatchEcho(namespace, echo, spec)
			}
		}
	}
	scale := func(factor int32) func() {
		return func() {
			for _, echo := range echoes {
				PatchEcho(namespace, echo, fmt.Sprintf(`{"replicas":%d}`, factor*specs[echo].Replicas))
			}
		}
	}
	// An init container, as a webhook might inject, that runs longer than an old pod's preStop hook.
	startSlowly := func() {
		for _, echo := range echoes {
			Kubectl("-n", namespace, "patch", "deployment", "echo-"+echo, "-p", `{"spec":{"template":{"spec":{"initContainers":[{
				"name": "slow", "image": "docker.io/library/busybox:1.37", "command": ["sleep", "7"],
				"securityContext": {"runAsUser": 65532, "allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}}}]}}}}`)
		}
		Eventually(Pods).WithArguments(namespace, "kkloud.io/echo").Should(HaveEach(HaveField("Spec.InitContainers", HaveLen(1))))
	}
	// Like evictions: the next pod is deleted when the replacement of the last one is ready.
	deleteOneByOne := func() {
		pods, err := Pods(namespace, "kkloud.io/echo=two")
		Expect(err).NotTo(HaveOccurred())
		for _, pod := range pods {
			Expect(Client().Delete(context.Background(), &pod)).To(Succeed())
			Eventually(func() error {
				return Client().Get(context.Background(), client.ObjectKeyFromObject(&pod), &corev1.Pod{})
			}).Should(MatchError(apierrors.IsNotFound, "IsNotFound"))
			WaitSettled(namespace)
		}
	}

	BeforeAll(func() {
		NewNamespace(namespace)
		for echo, spec := range specs {
			CreateEcho(namespace, echo, spec)
		}
		WaitSettled(namespace)
		for _, echo := range echoes {
			workload.StartProber(namespace, echo, fmt.Sprintf("http://echo-%s.%s.svc/=first|second", echo, namespace))
		}
	})
	AfterAll(func() {
		AddReportEntry("\n| change | seconds | Echo | requests | failed | on kept connections | failed |\n|---|---|---|---|---|---|---|\n" +
			strings.Join(table, "\n"))
	})

	DescribeTable("responds to every request with the old or the new response during", func(change func(), next string) {
		before := map[string]workload.Requests{}
		for _, echo := range echoes {
			before[echo] = workload.RequestsOf(namespace, echo)
		}
		start := time.Now()
		change()
		WaitSettled(namespace)
		for _, echo := range echoes {
			requests := workload.RequestsOf(namespace, echo).Since(before[echo])
			table = append(table, fmt.Sprintf("| %s | %.0f | %s | %d | %d | %d | %d |", CurrentSpecReport().LeafNodeText, time.Since(start).Seconds(),
				echo, requests.Sent, requests.Failed, requests.KeptSent, requests.KeptFailed))
			kept := requests.KeptFailed
			if echo == "own" {
				kept = 0 // The example of a custom server cuts kept connections when it stops.
			}
			Expect(requests.Failed+kept).To(BeZero(), "failed requests to Echo %s:\n%s", echo, strings.Join(requests.Failures, "\n"))
			Expect(slices.Collect(maps.Keys(requests.Responses))).To(SatisfyAll(ContainElement(next), HaveEach(BeElementOf(response, next))),
				"responses of Echo %s", echo)
		}
		response = next
	},
		Entry("an edit of message", edit(`{"message":"second"}`), "second"),
		Entry("an edit of targetPort", edit(`{"targetPort":8080}`), "second"),
		Entry("an edit of resources", edit(`{"resources":{"limits":{"memory":"72Mi"}}}`), "second"),
		Entry("a doubling of replicas", scale(2), "second"),
		Entry("a halving of replicas", scale(1), "second"),
		Entry("a rollout with slow init containers", startSlowly, "second"),
		Entry("deletions of one pod after the other", deleteOneByOne, "second"),
	)

	It("sends only the response of a generation from the moment when Ready is True for it", func() {
		for _, message := range []string{"first", "second"} {
			edit(`{"message":"` + message + `"}`)()
			for _, echo := range echoes {
				expectOnly(namespace, echo, echo, message)
			}
		}
	})

	It("sends the response from the moment when a new Echo is Ready for the first time", func() {
		for i := range 3 {
			echo := fmt.Sprintf("new-%d", i)
			CreateEcho(namespace, echo, echov1.EchoSpec{Message: "new", Replicas: int32(1 + i)})
			WaitReady(namespace, echo)
			for range 20 {
				Expect(workload.Request(namespace, echoes[0], fmt.Sprintf("http://echo-%s.%s.svc/=new", echo, namespace))).To(Succeed())
			}
		}
	})
}

// expectOnly waits until the Echo is ready. Afterwards, every request of the prober has to receive the response.
func expectOnly(namespace, echo, prober, response string) {
	GinkgoHelper()
	WaitReady(namespace, echo)
	before := workload.RequestsOf(namespace, prober)
	time.Sleep(2 * time.Second)
	requests := workload.RequestsOf(namespace, prober).Since(before)
	Expect(requests.Failed).To(BeZero(), "failed requests to Echo %s:\n%s", echo, strings.Join(requests.Failures, "\n"))
	Expect(requests.Responses).To(And(HaveLen(1), HaveKey(response)), "responses of Echo %s after it was ready", echo)
}
