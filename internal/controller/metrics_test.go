package controller

import (
	"maps"
	"slices"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/envtest/komega"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
)

// numberOf returns the value of a metric, or of its samples how many there are, added up over
// the series with these labels.
func numberOf(name string, labels map[string]string) float64 {
	GinkgoHelper()
	families, err := numbers.Gather()
	Expect(err).NotTo(HaveOccurred())
	sum := 0.0
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			has := map[string]string{}
			for _, label := range metric.GetLabel() {
				has[label.GetName()] = label.GetValue()
			}
			if family.GetName() != name || slices.ContainsFunc(slices.Collect(maps.Keys(labels)), func(l string) bool { return has[l] != labels[l] }) {
				continue
			}
			sum += metric.GetCounter().GetValue() + metric.GetGauge().GetValue() + float64(metric.GetHistogram().GetSampleCount())
		}
	}
	return sum
}

// number is numberOf for Eventually.
func number(name string, labels map[string]string) func() float64 {
	return func() float64 { return numberOf(name, labels) }
}

var _ = Describe("The metrics", func() {
	const corrections = "echo_operator_drift_corrections_total"

	It("tell of what was put back, and of nothing else", func() {
		startOperator()
		echo := createEcho(newNamespace(), "hello", twoPods)
		becomesReady(echo)
		edit(echo, func(s *echov1.EchoSpec) { s.Message = "another" })
		becomesReady(echo)
		edit(echo, func(s *echov1.EchoSpec) { s.Replicas = 1 })
		becomesReady(echo)
		edit(echo, twoPods)
		becomesReady(echo)
		Expect(numberOf(corrections, nil)).To(BeZero(), "the user has asked for every change")

		deployment, service := deploymentOf(echo), serviceOf(echo)
		Eventually(komega.Update(deployment, func() { deployment.Spec.Replicas = new(int32(4)) })).Should(Succeed())
		Eventually(number(corrections, map[string]string{"kind": "Deployment"})).Should(Equal(1.0))
		Expect(admin.Delete(ctx, service)).To(Succeed())
		Eventually(number(corrections, map[string]string{"kind": "Service"})).Should(Equal(1.0))
	})

	It("tell how long a new Echo took, once", func() {
		const timeToReady = "echo_operator_time_to_ready_seconds"
		startOperator()
		echo := createEcho(newNamespace(), "hello")
		becomesReady(echo)
		Eventually(number(timeToReady, nil)).Should(Equal(1.0))
		time.Sleep(time.Until(echo.CreationTimestamp.Add(time.Second))) // Times of conditions are whole seconds.
		edit(echo, func(s *echov1.EchoSpec) { s.Message = "another" })
		becomesReady(echo)
		Consistently(number(timeToReady, nil)).Should(Equal(1.0))
	})

	It("count the Echoes, tell of a conflict while it lasts, and for how long one is not ready", func() {
		startOperator()
		namespace := newNamespace()
		becomesReady(createEcho(namespace, "good"))
		inTheWay := &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "echo-bad"},
			Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}},
		}
		Expect(admin.Create(ctx, inTheWay)).To(Succeed())
		Expect(numberOf("echo_operator_longest_not_ready_seconds", nil)).To(BeZero())
		bad := createEcho(namespace, "bad")
		becomes(bad, echov1.ConditionDegraded, metav1.ConditionTrue, echov1.ReasonConflict)
		conflicts := map[string]string{"condition": "Degraded", "status": "True", "reason": "Conflict"}
		Eventually(number("echo_operator_echoes", conflicts)).Should(Equal(1.0))
		Expect(numberOf("echo_operator_echoes", map[string]string{"condition": "Ready", "status": "True", "reason": "Ready"})).To(Equal(1.0))
		Expect(numberOf("echo_operator_conflicts_total", map[string]string{"kind": "Service"})).To(BeNumerically(">=", 1))
		Expect(numberOf("echo_operator_longest_not_ready_seconds", nil)).
			To(BeNumerically("~", time.Since(bad.CreationTimestamp.Time).Seconds(), 2))

		Expect(admin.Delete(ctx, inTheWay)).To(Succeed())
		becomesReady(bad)
		Eventually(number("echo_operator_echoes", conflicts)).Should(BeZero())
		Expect(numberOf(corrections, nil)).To(BeZero(), "the Service was never there")
	})
})
