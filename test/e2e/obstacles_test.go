//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"slices"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/status"
	. "github.com/kkloud-io/echo-operator/test/e2e/internal/cluster"
	"github.com/kkloud-io/echo-operator/test/e2e/internal/workload"
)

const (
	// causeLimit is how long a status may say that something is in progress.
	causeLimit = 2 * time.Minute
	// causeSlack is the time until the operator has noticed it, on a busy machine.
	causeSlack = 30 * time.Second
)

// obstacles are those that only a kubelet or a node shows. The fault campaign generates all others.
func obstacles() {
	It("reports whatever stops its pods within two minutes, and recovers", func() {
		const namespace, limited = "obstacles-e2e", "quota-e2e"
		NewNamespace(namespace)
		NewNamespace(limited)
		type obstacle struct {
			namespace, name string
			spec            echov1.EchoSpec
			begin, end      func(namespace, name string)
		}
		patchPod := func(prefix, patch string) func(string, string) {
			return func(namespace, name string) {
				deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: prefix + name}}
				Expect(Client().Patch(context.Background(), deployment,
					client.RawPatch(types.StrategicMergePatchType, []byte(`{"spec":{"template":{"spec":`+patch+`}}}`)))).To(Succeed())
			}
		}
		missing := func(container string) string {
			return fmt.Sprintf(`{"volumes":[{"name":"ca","configMap":{"name":"missing"}}],
				"containers":[{"name":%q,"volumeMounts":[{"name":"ca","mountPath":"/ca"}]}]}`, container)
		}
		const optional = `{"volumes":[{"name":"ca","configMap":{"name":"missing","optional":true}}]}`
		all := []obstacle{
			{namespace, "volume", echov1.EchoSpec{Message: "m"}, patchPod("echo-", missing("echo")), patchPod("echo-", optional)},
			{namespace, "verified", verified("m"), patchPod("verify-", missing("dns")), patchPod("verify-", optional)},
			{namespace, "gated", echov1.EchoSpec{Message: "m"},
				patchPod("echo-", `{"schedulingGates":[{"name":"example.com/gate"}]}`), patchPod("echo-", `{"schedulingGates":null}`)},
			{namespace, "readiness", echov1.EchoSpec{Message: "m"},
				patchPod("echo-", `{"readinessGates":[{"conditionType":"example.com/gate"}]}`), patchPod("echo-", `{"readinessGates":null}`)},
			{namespace, "probe", workload.OwnServer("m", 1),
				func(namespace, name string) { PatchEcho(namespace, name, `{"args":["-listen=:1234"]}`) },
				func(namespace, name string) {
					PatchEcho(namespace, name, `{"args":["-text=$(ECHO_TEXT)","-listen=:$(ECHO_PORT)"]}`)
				}},
			{limited, "replicasets", echov1.EchoSpec{Message: "m"},
				func(namespace, name string) {
					quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "one"},
						Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"count/replicasets.apps": resource.MustParse("1")}}}
					Expect(Client().Create(context.Background(), quota)).To(Succeed())
					Eventually(func() corev1.ResourceList { return Get(namespace, "one", &corev1.ResourceQuota{}).Status.Used }).ShouldNot(BeEmpty())
					PatchEcho(namespace, name, `{"message":"newer"}`)
				},
				func(namespace, name string) {
					Kubectl("-n", namespace, "delete", "quota", "one")
					Kubectl("-n", namespace, "rollout", "restart", "deployment", "echo-"+name) // As the message says.
				}},
		}
		for _, o := range all {
			CreateEcho(o.namespace, o.name, o.spec)
		}
		for _, o := range all {
			WaitReady(o.namespace, o.name)
		}
		expectVerified(namespace, "verified")
		for _, o := range all {
			o.begin(o.namespace, o.name)
		}
		time.Sleep(causeLimit)
		Eventually(func() map[string][]string {
			unexplained := map[string][]string{}
			for _, o := range all {
				if said := inProgress(Get(o.namespace, o.name, &echov1.Echo{})); len(said) > 0 {
					unexplained[o.name] = said
				}
			}
			return unexplained
		}, causeSlack).Should(BeEmpty())
		for _, o := range all {
			AddReportEntry(fmt.Sprintf("%s: %s", o.name, causeOf(Get(o.namespace, o.name, &echov1.Echo{}))))
		}
		Expect(causeOf(Get(limited, "replicasets", &echov1.Echo{}))).To(ContainSubstring("exceeded quota: one"))
		for _, o := range all {
			o.end(o.namespace, o.name)
		}
		for _, o := range all {
			WaitReady(o.namespace, o.name)
		}
		expectVerified(namespace, "verified")
		Kubectl("delete", "namespace", namespace, limited) // The measurement of the steady state may follow.
	})
}

// inProgress returns what of a status says that somebody still works on something.
func inProgress(echo *echov1.Echo) (said []string) {
	reasons := []string{echov1.ReasonRollingOut, echov1.ReasonRouteNotCreated, echov1.ReasonVerifying}
	for _, c := range echo.Status.Conditions {
		if slices.Contains(reasons, c.Reason) || c.Type == echov1.ConditionProgressing && c.Status == metav1.ConditionTrue {
			said = append(said, c.Type)
		}
	}
	if status.RolloutInFlight(echo.Status) {
		said = append(said, "an upgrade has to wait")
	}
	if causeOf(echo) == "" {
		said = append(said, "no cause")
	}
	return said
}

// causeOf returns the message of the failure, or of the verifier that does not run.
func causeOf(echo *echov1.Echo) string {
	if c := meta.FindStatusCondition(echo.Status.Conditions, echov1.ConditionDegraded); c != nil && c.Status == metav1.ConditionTrue {
		return c.Message
	}
	if c := meta.FindStatusCondition(echo.Status.Conditions, echov1.ConditionVerified); c != nil && c.Reason == echov1.ReasonVerifierNotRunning {
		return c.Message
	}
	return ""
}
