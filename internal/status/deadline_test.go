package status

import (
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/children"
)

// overduePods are pods that no rule about failures knows, by what the cluster says about them.
func overduePods() map[string]corev1.Pod {
	pod := func(change func(*corev1.PodStatus)) corev1.Pod {
		p := corev1.Pod{ObjectMeta: named("p")}
		p.Labels = map[string]string{appsv1.DefaultDeploymentUniqueLabelKey: newest, children.ResponseLabel: newResponse}
		change(&p.Status)
		return p
	}
	notReady := func(s *corev1.PodStatus, reason, message string) {
		s.Conditions = append(s.Conditions, corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionFalse, Reason: reason, Message: message})
	}
	container := func(s *corev1.PodStatus, state corev1.ContainerState) {
		s.ContainerStatuses = []corev1.ContainerStatus{{Name: "service", State: state}}
	}
	pods := map[string]corev1.Pod{
		"Pod p: is not scheduled": pod(func(*corev1.PodStatus) {}),
		"Pod p: is not scheduled: SchedulingGated: blocked": pod(func(s *corev1.PodStatus) {
			s.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "SchedulingGated", Message: "blocked"}}
		}),
		"Pod p: is not ready: ReadinessGatesNotReady: gate": pod(func(s *corev1.PodStatus) {
			s.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}}
			notReady(s, "ReadinessGatesNotReady", "gate")
		}),
		"Pod p: container service does not run": pod(func(s *corev1.PodStatus) { container(s, corev1.ContainerState{}) }),
		"Pod p: container service runs, but its probe fails": pod(func(s *corev1.PodStatus) {
			container(s, corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Unix(now.Unix()-3600, 0)}})
		}),
		"Pod p: OutOfcpu: no room": pod(func(s *corev1.PodStatus) { s.Phase, s.Reason, s.Message = corev1.PodFailed, "OutOfcpu", "no room" }),
	}
	for _, reason := range []string{"ContainerCreating", "PodInitializing", "NewInKubernetes"} {
		for said, message := range map[string]string{reason: "", reason + ": words": "words"} {
			pods["Pod p: container service waits: "+said] = pod(func(s *corev1.PodStatus) {
				container(s, corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}})
			})
		}
	}
	return pods
}

func TestServersThatAreOverdueHaveACause(t *testing.T) {
	for want, pod := range overduePods() {
		for _, test := range []struct {
			echo       *echov1.Echo
			deployment *appsv1.Deployment
			want       string
		}{
			{withProgressing(newEcho(), metav1.ConditionTrue, echov1.ReasonRollingOut, deadlineSeconds-1), deployment(2, 1, 1, 1, rollingOut), ""},
			{withProgressing(newEcho(), metav1.ConditionTrue, echov1.ReasonRollingOut, deadlineSeconds), deployment(2, 1, 1, 1, rollingOut), echov1.ReasonProgressDeadlineExceeded},
			{withProgressing(newEcho(), metav1.ConditionFalse, echov1.ReasonRolledOut, 3600), deployment(2, 2, 1, 1, completed, unavailableFor(deadlineSeconds-1)), ""},
			{withProgressing(newEcho(), metav1.ConditionFalse, echov1.ReasonRolledOut, 3600), deployment(2, 2, 1, 1, completed, unavailableFor(deadlineSeconds)), echov1.ReasonPodsNotReady},
		} {
			observed := Observation{Deployment: test.deployment, Service: &corev1.Service{}, Pods: []corev1.Pod{pod}, NewestReplicaSet: newest, Now: now}
			degraded := meta.FindStatusCondition(statusOf(test.echo, observed).Conditions, echov1.ConditionDegraded)
			if test.want == "" {
				if degraded.Status == metav1.ConditionTrue {
					t.Errorf("%s: Degraded = %s before the deadlineSeconds", want, degraded.Message)
				}
				continue
			}
			if degraded.Reason != test.want || !strings.Contains(degraded.Message, want+" (its events: kubectl describe -n op-demo ") {
				t.Errorf("Degraded = %s %q, want %s with %q and the command for events", degraded.Reason, degraded.Message, test.want, want)
			}
			if !Assess(test.echo, observed).NeedsNewestReplicaSet() {
				t.Errorf("%s: NeedsNewestReplicaSet = false", want)
			}
		}
	}
}

func TestVerifierThatIsOverdueHasACause(t *testing.T) {
	withoutReplicaSet := notObserved(verifierDeployment(0, 0, 0))
	withoutReplicaSet.Status.Conditions = []appsv1.DeploymentCondition{{Reason: replicaSetCreateError, Message: "exceeded quota: one"}}
	tests := map[string]Verification{
		"The verifier verify-hello does not exist":                              {},
		"verify-hello is being deleted":                                         {Waiting: "VerifierDeployment verify-hello is being deleted"},
		"The controller of the verifier verify-hello has not observed":          {Object: notObserved(verifierDeployment(1, 0, 0))},
		"exceeded quota: one (when that is solved: kubectl rollout restart -n ": {Object: withoutReplicaSet},
		"The verifier verify-hello has 0 of 1 pods of the newest spec":          {Object: verifierDeployment(0, 0, 0)},
		"Pod p of an earlier spec does not stop": {Object: verifierDeployment(1, 0, 0), Pods: pods(corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "p", DeletionTimestamp: &now}})},
	}
	counted := verifierPod("a", 900)
	counted.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	tests["has 1 of 1 pods of the newest spec, of which 0 are ready"] = Verification{Object: verifierDeployment(1, 1, 0), Pods: pods(counted)}
	for want, pod := range overduePods() {
		tests[want] = Verification{Object: verifierDeployment(1, 1, 0), Pods: pods(pod)}
		tests[want+" "] = Verification{Object: verifierSet(2, 2, 1), Pods: pods(pod)}
	}
	for want, verification := range tests {
		for seconds, reason := range map[int64]string{deadlineSeconds - 1: echov1.ReasonVerifying, deadlineSeconds: echov1.ReasonVerifierNotRunning} {
			t.Run(fmt.Sprintf("%s after %d s", want, seconds), func(t *testing.T) {
				echo := withProgressing(withVerify(newEcho()), metav1.ConditionFalse, echov1.ReasonRolledOut, 3600)
				withCondition(echo, echov1.ConditionVerified, metav1.ConditionUnknown, echov1.ReasonVerifying, seconds)
				observed := Observation{Deployment: deployment(2, 2, 2, 2), Service: &corev1.Service{}, Verification: &verification, Now: now}
				message := expectVerified(t, echo, observed, "Unknown "+reason, deadlineSeconds-seconds)
				if isOverdue := seconds == deadlineSeconds; isOverdue && !strings.Contains(message, strings.TrimSpace(want)) {
					t.Errorf("message = %q, want it to contain %q", message, want)
				}
			})
		}
	}
}

// The condition was Unknown before, for example because the administrator did not allow it.
func TestVerifierThatIsWrittenLateIsNotOverdue(t *testing.T) {
	for name, verification := range map[string]Verification{
		"Deployment": {Object: verifierDeployment(1, 0, 0)}, "DaemonSet": {Object: verifierSet(1, 1, 0)},
	} {
		for age, want := range map[int64]string{deadlineSeconds - 1: echov1.ReasonVerifying, deadlineSeconds: echov1.ReasonVerifierNotRunning} {
			created := metav1.Unix(now.Unix()-age, 0)
			verification.Object.SetCreationTimestamp(created)
			t.Run(fmt.Sprintf("%s after %d s", name, age), func(t *testing.T) {
				echo := withCondition(withVerify(newEcho()), echov1.ConditionVerified, metav1.ConditionUnknown, "", now.Unix())
				observed := Observation{Deployment: deployment(2, 2, 2, 2), Service: &corev1.Service{}, Verification: &verification, Now: now}
				expectVerified(t, echo, observed, "Unknown "+want, deadlineSeconds-age)
			})
		}
	}
}

// A long period or a high threshold is no failure.
func TestVerifierThatDecidesMayTakeLonger(t *testing.T) {
	echo := withCondition(withVerify(newEcho()), echov1.ConditionVerified, metav1.ConditionUnknown, echov1.ReasonVerifying, now.Unix())
	echo.Spec.Verify.PeriodSeconds, echo.Spec.Verify.FailureThreshold = 600, 5
	pod := verifierPod("a", int64(children.StartSeconds(echo.Spec.Verify)), "service")
	notStarted(&pod)
	observed := Observation{Deployment: deployment(2, 2, 2, 2), Service: &corev1.Service{}, Now: now,
		Verification: &Verification{Object: verifierDeployment(1, 1, 0), Pods: pods(pod)}}
	for after, want := range map[int64]string{0: echov1.ReasonVerifying, 1: echov1.ReasonVerifierNotRunning} {
		observed.Now = metav1.Unix(now.Unix()+after, 0)
		expectVerified(t, echo, observed, "Unknown "+want, 1-after)
	}
}

func TestRouteThatIsOverdueIsAFailure(t *testing.T) {
	for seconds, overdue := range map[int64]bool{deadlineSeconds - 1: false, deadlineSeconds: true} {
		for name, test := range map[string]struct {
			route  Route
			routed string
		}{
			"nobody responds": {Route{Object: &gatewayv1.HTTPRoute{}}, "Unknown " + echov1.ReasonRouteNotReconciled},
			"being deleted":   {Route{Waiting: "HTTPRoute echo-hello is being deleted"}, "False " + echov1.ReasonProgressDeadlineExceeded},
		} {
			echo := withProgressing(newEcho(), metav1.ConditionFalse, echov1.ReasonRolledOut, 3600)
			echo.Spec.Route = &echov1.Route{ParentRefs: []echov1.ParentRef{{Name: "public"}}, Hostnames: []string{"a.example"}, Paths: []echov1.Path{{Value: "/"}}}
			withCondition(echo, echov1.ConditionRouted, metav1.ConditionUnknown, "", seconds)
			observed := Observation{Deployment: deployment(2, 2, 2, 2), Service: &corev1.Service{}, Route: &test.route, Now: now}
			status := statusOf(echo, observed)
			if got := meta.IsStatusConditionTrue(status.Conditions, echov1.ConditionDegraded); got != overdue {
				t.Errorf("%s for %d s: Degraded = %t, want %t", name, seconds, got, overdue)
			}
			routed := meta.FindStatusCondition(status.Conditions, echov1.ConditionRouted)
			if got := fmt.Sprint(routed.Status, " ", routed.Reason); overdue && got != test.routed {
				t.Errorf("%s: Routed = %s, want %s", name, got, test.routed)
			}
			if got := requeueSeconds(echo, observed); !overdue && got != 1 {
				t.Errorf("%s: requeueAfter = %d, want 1", name, got)
			}
			echo.Status = status // It remains a failure.
			if again := statusOf(echo, observed); overdue && !meta.IsStatusConditionTrue(again.Conditions, echov1.ConditionDegraded) {
				t.Errorf("%s: Degraded = False when the status is computed again", name)
			}
		}
	}
}
