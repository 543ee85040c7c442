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

// metricValue returns the value of a metric, or its number of samples, as the sum of all series
// with the labels.
func metricValue(name string, labels map[string]string) float64 {
	GinkgoHelper()
	families, err := registry.Gather()
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

// metricFunc returns metricValue as a function for Eventually.
func metricFunc(name string, labels map[string]string) func() float64 {
	return func() float64 { return metricValue(name, labels) }
}

var _ = Describe("The metrics", func() {
	const corrections = "echo_operator_drift_corrections_total"

	It("count the corrections of drift, and no changes by the user", func() {
		startOperator()
		echo := createEcho(newNamespace(), "hello", twoPods)
		expectReady(echo)
		edit(echo, func(s *echov1.EchoSpec) { s.Message = "another" })
		expectReady(echo)
		edit(echo, func(s *echov1.EchoSpec) { s.Replicas = 1 })
		expectReady(echo)
		edit(echo, twoPods)
		expectReady(echo)
		Expect(metricValue(corrections, nil)).To(BeZero(), "a change by the user counts as drift")

		deployment, service := deploymentOf(echo), serviceOf(echo)
		Eventually(komega.Update(deployment, func() { deployment.Spec.Replicas = new(int32(4)) })).Should(Succeed())
		Eventually(metricFunc(corrections, map[string]string{"kind": "Deployment"})).Should(Equal(1.0))
		Expect(admin.Delete(ctx, service)).To(Succeed())
		Eventually(metricFunc(corrections, map[string]string{"kind": "Service"})).Should(Equal(1.0))
	})

	It("record once how long a new Echo takes to become ready", func() {
		const timeToReady = "echo_operator_time_to_ready_seconds"
		startOperator()
		echo := createEcho(newNamespace(), "hello")
		expectReady(echo)
		Eventually(metricFunc(timeToReady, nil)).Should(Equal(1.0))
		time.Sleep(time.Until(echo.CreationTimestamp.Add(time.Second))) // Conditions have times in whole seconds.
		edit(echo, func(s *echov1.EchoSpec) { s.Message = "another" })
		expectReady(echo)
		Consistently(metricFunc(timeToReady, nil)).Should(Equal(1.0))
	})

	It("count Echoes and conflicts, and report for how long an Echo is not ready", func() {
		startOperator()
		namespace := newNamespace()
		expectReady(createEcho(namespace, "good"))
		conflicting := &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "echo-bad"},
			Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}},
		}
		Expect(admin.Create(ctx, conflicting)).To(Succeed())
		Eventually(metricFunc("echo_operator_longest_not_ready_seconds", nil)).Should(BeZero())
		bad := createEcho(namespace, "bad")
		expectCondition(bad, echov1.ConditionDegraded, metav1.ConditionTrue, echov1.ReasonConflict)
		conflicts := map[string]string{"condition": "Degraded", "status": "True", "reason": "Conflict"}
		Eventually(metricFunc("echo_operator_echoes", conflicts)).Should(Equal(1.0))
		Expect(metricValue("echo_operator_echoes", map[string]string{"condition": "Ready", "status": "True", "reason": "Ready"})).To(Equal(1.0))
		Expect(metricValue("echo_operator_conflicts_total", map[string]string{"kind": "Service"})).To(BeNumerically(">=", 1))
		Expect(metricValue("echo_operator_longest_not_ready_seconds", nil)).
			To(BeNumerically("~", time.Since(bad.CreationTimestamp.Time).Seconds(), 2))

		Expect(admin.Delete(ctx, conflicting)).To(Succeed())
		expectReady(bad)
		Eventually(metricFunc("echo_operator_echoes", conflicts)).Should(BeZero())
		Expect(metricValue(corrections, nil)).To(BeZero(), "the creation of the Service counts as drift")
	})
})
