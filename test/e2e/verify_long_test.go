//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	. "github.com/kkloud-io/echo-operator/test/e2e/internal/cluster"
	"github.com/kkloud-io/echo-operator/test/e2e/internal/workload"
)

const (
	costEchoes      = 50
	costDuration    = 10 * time.Minute
	disturbedEchoes = 20
	disturbedRounds = 3
	// reportDelay is how long after a disturbance its failures may be reported.
	reportDelay = 20 * time.Second
)

// longVerification measures what verifiers cost, and runs them under disturbances.
func longVerification() {
	// createAll creates Echoes with the names e0, e1, and so on, and waits until they are ready.
	createAll := func(namespace string, count int, verify echov1.Verify) {
		GinkgoHelper()
		NewNamespace(namespace)
		for i := range count {
			CreateEcho(namespace, fmt.Sprint("e", i), echov1.EchoSpec{Message: "hello", Verify: &verify})
		}
		for i := range count {
			WaitReady(namespace, fmt.Sprint("e", i))
		}
	}

	It("costs no request to the API server", func() {
		requireLocalCluster("it reads the audit log")
		const namespace = "verify-cost-e2e"
		createAll(namespace, costEchoes, echov1.Verify{})
		time.Sleep(15 * time.Second) // Until the writes of the last status have ended.

		since := time.Now()
		time.Sleep(costDuration)
		Expect(requestsFor(namespace, since)).To(BeEmpty(), "requests of the operator")
		Expect(auditedRequests("system:serviceaccount:"+namespace+":", namespace, since)).To(BeEmpty(), "requests of verifiers")
		rounds := workload.Rounds(namespace, "kkloud.io/verifies")
		Expect(workload.NotVerified(rounds)).To(BeEmpty(), "rounds without the declared response")
		AddReportEntry(fmt.Sprintf("rounds: %v", rounds))
	})

	It("reports every wrong response, and no failure after a disturbance has ended", func() {
		requireLocalCluster("it stops the API server")
		const namespace = "verify-disturbed-e2e"
		createAll(namespace, disturbedEchoes, echov1.Verify{PeriodSeconds: 3})
		CreateEcho(namespace, "other", echov1.EchoSpec{Message: "other"})
		WaitReady(namespace, "other")
		pods, err := Pods(namespace, "kkloud.io/echo=other")
		Expect(err).NotTo(HaveOccurred())

		// notVerified returns the Echoes whose response is not verified.
		notVerified := func() (names []string, err error) {
			var echoes echov1.EchoList
			err = Client().List(context.Background(), &echoes, client.InNamespace(namespace))
			for _, echo := range echoes.Items {
				for _, c := range echo.Status.Conditions {
					if c.Type == echov1.ConditionVerified && c.Status != "True" {
						names = append(names, fmt.Sprintf("%s: %s: %s", echo.Name, c.Reason, c.Message))
					}
				}
			}
			return names, err
		}
		for round := range disturbedRounds {
			for _, disturbance := range disturbances {
				echo := fmt.Sprint("e", round)
				By(disturbance.name)
				disturbance.run(namespace, echo, pods[0].Status.PodIP)
				time.Sleep(reportDelay)
				Eventually(notVerified, "60s", "1s").Should(BeEmpty(), "after: %s", disturbance.name)
				Consistently(notVerified, "10s", "1s").Should(BeEmpty(), "after: %s", disturbance.name)
			}
		}
	})
}

// disturbances are what happens in a namespace. Some of them affect one Echo. The last argument is the address
// of a pod that gives another response.
var disturbances = []struct {
	name string
	run  func(namespace, echo, other string)
}{
	{"a rollout, during which no verification fails", func(namespace, echo, _ string) {
		PatchEcho(namespace, echo, fmt.Sprintf(`{"message":"hello %d"}`, time.Now().Unix()))
		Consistently(Condition(namespace, echo, echov1.ConditionVerified), "10s", "200ms").ShouldNot(HavePrefix("False"))
	}},
	{"a restart of the operator", func(_, _, _ string) {
		Kubectl("-n", operatorNamespace, "delete", "pod", "-l", operatorPods, "--now")
		awaitOperator()
	}},
	// The operator would exit if it could not renew its lease for 10 seconds, and the kubelet delays repeated restarts
	// for up to five minutes.
	{"an outage of the API server", func(_, _, _ string) {
		signal("STOP", "kube-apiserver", "cmdline", "kube-apiserver")
		time.Sleep(7 * time.Second)
		signal("CONT", "kube-apiserver", "cmdline", "kube-apiserver")
		Eventually(func() error { return Client().List(context.Background(), &corev1.NodeList{}) }, "60s").Should(Succeed())
	}},
	{"a restart of the DNS server", func(_, _, _ string) {
		Kubectl("-n", "kube-system", "delete", "pod", "-l", "k8s-app=kube-dns", "--now")
		Kubectl("-n", "kube-system", "rollout", "status", "deployment/coredns", "--timeout=60s")
	}},
	{"a wrong endpoint, which is reported", func(namespace, echo, other string) {
		defer workload.AddWrongEndpoint(namespace, echo, other)()
		Eventually(Condition(namespace, echo, echov1.ConditionVerified), "60s", "500ms").Should(HavePrefix("False"))
	}},
	{"the deletion of a verifier's pod", func(namespace, echo, _ string) {
		Kubectl("-n", namespace, "delete", "pod", "-l", "kkloud.io/verifies="+echo, "--now")
	}},
}
