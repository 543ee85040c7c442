package status

import (
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/children"
)

// withVerify adds a verification. A result counts decision seconds after the start of a container.
func withVerify(echo *echov1.Echo) *echov1.Echo {
	echo.Spec.Verify = &echov1.Verify{From: echov1.VerifyFromCluster, PeriodSeconds: 10, TimeoutSeconds: 2, FailureThreshold: 3}
	return echo
}

const (
	newResponse        = "0123456789abcdef"
	decision     int64 = 47
	afterRollout int64 = 145
)

// verifierDeployment returns the verifier with the numbers of its pods. Its status describes its newest spec.
func verifierDeployment(total, updated, ready int32) *appsv1.Deployment {
	d := deployment(total, updated, ready, ready)
	d.Spec.Template.Labels = map[string]string{children.ResponseLabel: newResponse}
	return d
}

func verifierSet(desired, updated, ready int32) *appsv1.DaemonSet {
	set := &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Generation: 3},
		Status: appsv1.DaemonSetStatus{
			ObservedGeneration: 3, DesiredNumberScheduled: desired, UpdatedNumberScheduled: updated, NumberReady: ready,
		},
	}
	set.Spec.Template.Labels = map[string]string{children.ResponseLabel: newResponse}
	return set
}

// verifierPod returns a pod on a node in which the named containers, started so many seconds ago, are
// not ready. The container dns is ready.
func verifierPod(node string, age int64, failing ...string) corev1.Pod {
	pod := corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "verify-" + node, Labels: map[string]string{children.ResponseLabel: newResponse}},
		Spec:       corev1.PodSpec{NodeName: node},
	}
	add := func(name string, ready bool) {
		pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, corev1.ContainerStatus{
			Name: name, Ready: ready, Started: new(true),
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Unix(now.Unix()-age, 0)}},
		})
	}
	add("dns", true)
	for _, name := range failing {
		add(name, false)
	}
	return pod
}

func changed(pod corev1.Pod, change func(*corev1.Pod)) corev1.Pod {
	change(&pod)
	return pod
}

func earlierResponse(pod *corev1.Pod) { pod.Labels[children.ResponseLabel] = "fedcba9876543210" }
func notStarted(pod *corev1.Pod) {
	for i := range pod.Status.ContainerStatuses {
		pod.Status.ContainerStatuses[i].Started = new(false)
	}
}

func asInitContainers(pod *corev1.Pod) {
	pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses = pod.Status.ContainerStatuses, nil
}

func pods(pods ...corev1.Pod) []corev1.Pod { return pods }

// expectVerified checks status and reason of Verified, and after which time the status has to be computed again. It returns
// the message of Verified.
func expectVerified(t *testing.T, echo *echov1.Echo, observed Observation, want string, requeueAfter int64) string {
	t.Helper()
	verified := meta.FindStatusCondition(statusOf(echo, observed).Conditions, echov1.ConditionVerified)
	if got := fmt.Sprint(verified.Status, " ", verified.Reason); got != want {
		t.Errorf("Verified = %s (%s), want %s", got, verified.Message, want)
	}
	if got := requeueSeconds(echo, observed); got != requeueAfter {
		t.Errorf("requeueAfter = %d, want %d", got, requeueAfter)
	}
	return verified.Message
}

var verificationTests = map[string]struct {
	verification Verification
	want         string // Status and reason of the condition Verified.
	message      string // Part of its message.
	requeueAfter int64
}{
	"not written yet": {Verification{Outdated: true}, "Unknown RollingOut", "after the rollout of the newest spec", 0},
	"an earlier verifier is ready": {Verification{Outdated: true, Object: verifierDeployment(1, 1, 1)},
		"Unknown RollingOut", "", 0},
	"deleted": {Verification{}, "Unknown Verifying", "does not exist", 0},
	"on every node, but not allowed": {Verification{NotAllowed: true, Outdated: true},
		"Unknown EveryNodeNotAllowed", "--allow-every-node-verification", 0},
	"rejected": {Verification{Failure: &Failure{Reason: echov1.ReasonConflict, Message: "exists"}},
		"Unknown Conflict", "exists", 0},
	"ready":                            {Verification{Object: verifierDeployment(1, 1, 1)}, "True Verified", "Every verifier", 0},
	"the status is of an earlier spec": {Verification{Object: notObserved(verifierDeployment(1, 1, 1))}, "Unknown Verifying", "", 0},
	"an old pod is ready":              {Verification{Object: verifierDeployment(1, 0, 1)}, "Unknown Verifying", "", 0},
	"an old pod stops":                 {Verification{Object: verifierDeployment(2, 1, 1)}, "Unknown Verifying", "", 0},
	"starting": {Verification{Object: verifierDeployment(1, 1, 0), Pods: pods(changed(verifierPod("a", 900, "service"), notStarted))},
		"Unknown Verifying", "", 0},
	"one layer fails": {Verification{Object: verifierDeployment(1, 1, 0), Pods: pods(verifierPod("a", 900, "service"))},
		"False VerificationFailed", "service fails on node a", 0},
	"two layers fail": {Verification{Object: verifierDeployment(1, 1, 0), Pods: pods(verifierPod("a", 900, "service", "route"))},
		"False VerificationFailed", "route fails on node a; service fails on node a", 0},
	"started a moment ago": {Verification{Object: verifierDeployment(1, 1, 0), Pods: pods(verifierPod("a", decision-1, "service"))},
		"Unknown Verifying", "", 1},
	"started long enough ago": {Verification{Object: verifierDeployment(1, 1, 0), Pods: pods(verifierPod("a", decision, "service"))},
		"False VerificationFailed", "", 0},
	"a pod that expects an earlier response fails": {Verification{Object: verifierDeployment(1, 0, 0), Pods: pods(changed(verifierPod("a", 900, "service"), earlierResponse))},
		"Unknown Verifying", "", 0},
	"a pod that stops fails": {Verification{Object: verifierDeployment(1, 1, 0), Pods: pods(changed(verifierPod("a", 900, "service"), func(p *corev1.Pod) { p.DeletionTimestamp = &now }))},
		"Unknown Verifying", "", 0},
	"an evicted pod fails": {Verification{Object: verifierDeployment(1, 1, 0), Pods: pods(changed(verifierPod("a", 900, "service"), func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }))},
		"Unknown Verifying", "", 0},
	"the image is missing": {Verification{Object: verifierDeployment(1, 1, 0), Pods: pods(changed(waiting("p", "ImagePullBackOff", "not found"), func(p *corev1.Pod) { p.Labels[children.ResponseLabel] = newResponse }))},
		"Unknown VerifierNotRunning", "not found", 0},
	"no node has room": {Verification{Object: verifierDeployment(1, 1, 0), Pods: pods(changed(*unschedulable.DeepCopy(), func(p *corev1.Pod) { p.Labels[children.ResponseLabel] = newResponse }))},
		"Unknown VerifierNotRunning", "Pod p: 0/1 nodes", 0},
	"a container of a service mesh is not ready": {Verification{Object: verifierDeployment(1, 1, 0), Pods: pods(verifierPod("a", 900, "mesh"))},
		"Unknown VerifierNotRunning", "not ready: mesh fails on node a", 0},
	"a sidecar of Kubernetes is not ready": {Verification{Object: verifierDeployment(1, 1, 0), Pods: pods(changed(verifierPod("a", 900, "mesh"), asInitContainers))},
		"Unknown VerifierNotRunning", "not ready: mesh fails on node a", 0},
	"a container of a service mesh starts": {Verification{Object: verifierDeployment(1, 1, 0), Pods: pods(verifierPod("a", decision-1, "mesh"))},
		"Unknown Verifying", "", 1},
	"a layer fails beside a container of a service mesh": {Verification{Object: verifierDeployment(1, 1, 0), Pods: pods(verifierPod("a", 900, "mesh", "service"))},
		"False VerificationFailed", "service fails on node a", 0},
	"a quota rejects the pod": {Verification{Object: func() *appsv1.Deployment {
		d := verifierDeployment(0, 0, 0)
		d.Status.Conditions = append(d.Status.Conditions, replicaFailure)
		return d
	}()}, "Unknown VerifierNotRunning", "exceeded quota", 0},
	"ready on every node":      {Verification{Object: verifierSet(40, 40, 40)}, "True Verified", "", 0},
	"not created on each node": {Verification{Object: verifierSet(40, 39, 39)}, "Unknown Verifying", "", 34},
	"no node is allowed":       {Verification{Object: verifierSet(0, 0, 0)}, "Unknown VerifierNotRunning", "No node matches the node selector", 0},
	"fails on some nodes": {Verification{Object: verifierSet(40, 40, 38), Pods: pods(verifierPod("b", 900, "service"), verifierPod("a", 900, "service"), verifierPod("c", 900))},
		"False VerificationFailed", "service fails on 2 of 40 nodes: a, b", 0},
	"fails on many nodes": {Verification{Object: verifierSet(40, 40, 33), Pods: pods(verifierPod("a", 900, "dns"), verifierPod("b", 900, "dns"), verifierPod("c", 900, "dns"),
		verifierPod("d", 900, "dns"), verifierPod("e", 900, "dns"), verifierPod("f", 900, "dns"), verifierPod("g", 900, "dns"))},
		"False VerificationFailed", "dns fails on 7 of 40 nodes: a, b, c, d, e and 2 more", 0},
	"a failure counts although another node has no room": {Verification{Object: verifierSet(2, 2, 0), Pods: pods(verifierPod("a", 900, "service"),
		changed(*unschedulable.DeepCopy(), func(p *corev1.Pod) { p.Labels[children.ResponseLabel] = newResponse }))},
		"False VerificationFailed", "service fails on 1 of 2 nodes: a", 0},
}

func TestVerifiedFollowsTheVerifier(t *testing.T) {
	for name, test := range verificationTests {
		for _, before := range []string{"", "after Ready"} {
			t.Run(name+" "+before, func(t *testing.T) {
				echo := withProgressing(withVerify(newEcho()), metav1.ConditionFalse, echov1.ReasonRolledOut, 1)
				if before != "" {
					withCondition(echo, echov1.ConditionReady, metav1.ConditionTrue, "", 0)
				}
				observed := Observation{Deployment: deployment(2, 2, 2, 2), Service: &corev1.Service{}, Verification: &test.verification, Now: now}
				if test.verification.Failure != nil {
					observed.Rejected = []Failure{*test.verification.Failure}
				}
				status := statusOf(echo, observed)
				verified, ready := meta.FindStatusCondition(status.Conditions, echov1.ConditionVerified), meta.FindStatusCondition(status.Conditions, echov1.ConditionReady)
				if got := fmt.Sprint(verified.Status, " ", verified.Reason); got != test.want || !strings.Contains(verified.Message, test.message) {
					t.Errorf("Verified = %s (%s), want %s with %q", got, verified.Message, test.want, test.message)
				}
				isTrue, isUnknown := verified.Status == metav1.ConditionTrue, verified.Status == metav1.ConditionUnknown
				wantReady := isTrue || isUnknown && before != "" && test.verification.Failure == nil
				if is := ready.Status == metav1.ConditionTrue; is != wantReady {
					t.Errorf("Ready = %s %s, want True: %t", ready.Status, ready.Reason, wantReady)
				}
				if !wantReady && (ready.Reason != verified.Reason || ready.Message != verified.Message) {
					t.Errorf("Ready = %s (%s), want the reason and the message of Verified", ready.Reason, ready.Message)
				}
				wantDegraded := verified.Status == metav1.ConditionFalse || test.verification.Failure != nil
				if is := meta.IsStatusConditionTrue(status.Conditions, echov1.ConditionDegraded); is != wantDegraded {
					t.Errorf("Degraded = %t, want %t", is, wantDegraded)
				}
				requeueAfter := test.requeueAfter
				if isPending := test.want == "Unknown Verifying" || test.want == "Unknown RollingOut"; isPending && requeueAfter == 0 {
					requeueAfter = deadlineSeconds
				}
				if test.want == "False VerificationFailed" && requeueAfter == 0 {
					requeueAfter = stallSeconds
				}
				if got := requeueSeconds(echo, observed); test.verification.Failure == nil && got != requeueAfter {
					t.Errorf("requeueAfter = %d, want %d", got, requeueAfter)
				}
				if needs := NeedsVerifierPods(observed); !needs && len(test.verification.Pods) > 0 {
					t.Error("NeedsVerifierPods = false, but the verifier is not ready")
				}
			})
		}
	}
}

func TestPodsOfAVerifierThatAreMissingForLong(t *testing.T) {
	for _, test := range []struct {
		seconds, rolledOut, generation int64 // The first two are seconds ago.
		status                         metav1.ConditionStatus
		want                           string
		requeueAfter                   int64
	}{
		{29, 900, 7, metav1.ConditionUnknown, "Unknown Verifying", 1},
		{30, 900, 7, metav1.ConditionUnknown, "Unknown VerifierNotRunning", 0},
		{30, 900, 6, metav1.ConditionUnknown, "Unknown Verifying", 30},
		{30, 900, 7, metav1.ConditionTrue, "Unknown Verifying", 30},
		{300, 29, 7, metav1.ConditionUnknown, "Unknown Verifying", 1},
		{300, 30, 7, metav1.ConditionUnknown, "Unknown VerifierNotRunning", 0},
	} {
		t.Run(fmt.Sprint(test), func(t *testing.T) {
			echo := withCondition(withVerify(newEcho()), echov1.ConditionVerified, test.status, "", test.seconds)
			echo.Status.Conditions[0].ObservedGeneration = test.generation
			observed := Observation{
				Deployment: updated(deployment(2, 2, 2, 2), test.rolledOut), Service: &corev1.Service{}, Now: now,
				Verification: &Verification{Object: verifierSet(3, 1, 2)},
			}
			message := expectVerified(t, echo, observed, test.want, test.requeueAfter)
			if isFailure := test.requeueAfter == 0; isFailure != strings.Contains(message, "on 1 of 3 nodes") {
				t.Errorf("message = %q", message)
			}
		})
	}
}

func TestVerifierThatSawARolloutHasTimeToForgetIt(t *testing.T) {
	for _, test := range []struct {
		started, rolledOut int64 // Seconds ago.
		want               string
		requeueAfter       int64
	}{
		{started: 900, rolledOut: afterRollout - 1, want: "Unknown Verifying", requeueAfter: 1},
		{started: 900, rolledOut: afterRollout, want: "False VerificationFailed", requeueAfter: stallSeconds},
		{started: decision, rolledOut: decision, want: "False VerificationFailed", requeueAfter: stallSeconds},
		{started: 10, rolledOut: 900, want: "Unknown Verifying", requeueAfter: decision - 10},
	} {
		t.Run(fmt.Sprint(test), func(t *testing.T) {
			expectVerified(t, withVerify(newEcho()), Observation{
				Deployment: updated(deployment(2, 2, 2, 2), test.rolledOut), Service: &corev1.Service{}, Now: now,
				Verification: &Verification{Object: verifierDeployment(1, 1, 0), Pods: pods(verifierPod("a", test.started, "service"))},
			}, test.want, test.requeueAfter)
		})
	}
}

// A failure of the servers is more severe: it is the cause.
func TestFailureOfTheServersComesBeforeThatOfTheVerification(t *testing.T) {
	observed := Observation{
		Deployment: deployment(2, 2, 1, 1), Service: &corev1.Service{}, Now: now, NewestReplicaSet: newest,
		Pods:         pods(waiting("p", "ImagePullBackOff", "not found")),
		Verification: &Verification{Object: verifierDeployment(1, 1, 0), Pods: pods(verifierPod("a", 900, "service"))},
	}
	echo := withProgressing(withVerify(newEcho()), metav1.ConditionFalse, echov1.ReasonRolledOut, 1)
	if got, want := reasons(statusOf(echo, observed)), "-ImagePullFailed +Serving -RolledOut +ImagePullFailed -AsExpected -VerificationFailed"; got != want {
		t.Errorf("conditions = %s, want %s", got, want)
	}
}
