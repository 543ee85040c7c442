package status

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
)

// restarted returns a pod whose container has restarted twice, is not ready, started and before
// that terminated so many seconds ago.
func restarted(started, terminated int64) corev1.Pod {
	pod := crashed(waiting("p", "", ""), 2, 137, "")
	container := &pod.Status.ContainerStatuses[0]
	container.State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Unix(now.Unix()-started, 0)}}
	container.LastTerminationState.Terminated.FinishedAt = metav1.Unix(now.Unix()-terminated, 0)
	container.LastTerminationState.Terminated.Reason = "OOMKilled"
	return pod
}

func inPhase(pod corev1.Pod, phase corev1.PodPhase) corev1.Pod {
	pod.Status.Phase = phase
	return pod
}

func ofReplicaSet(pod corev1.Pod, hash string) corev1.Pod {
	pod.Labels = map[string]string{appsv1.DefaultDeploymentUniqueLabelKey: hash}
	return pod
}

func TestOnlyPodsOfTheNewestReplicaSetCountAsFailures(t *testing.T) {
	const none = "-RollingOut -NotServing +RollingOut -AsExpected -AsExpected"
	failing := waiting("a", "ImagePullBackOff", "not found")
	for name, test := range map[string]struct {
		pod        corev1.Pod
		newest     string
		deployment *appsv1.Deployment
		want       string
		needsIt    bool
	}{
		"newest": {
			failing, newest, deployment(2, 2, 0, 0),
			"-ImagePullFailed -NotServing +RollingOut +ImagePullFailed -AsExpected", true,
		},
		"earlier":                                {ofReplicaSet(failing, "old"), newest, deployment(2, 2, 0, 0), none, true},
		"without the label":                      {ofReplicaSet(failing, ""), "", deployment(2, 2, 0, 0), none, true},
		"the newest ReplicaSet is unknown":       {failing, "", deployment(2, 2, 0, 0), none, true},
		"the newest ReplicaSet is not there yet": {failing, newest, notObserved(deployment(2, 2, 0, 0)), none, false},
		"without a Deployment":                   {failing, newest, nil, none, false},
		"evicted":                                {inPhase(failing, corev1.PodFailed), newest, deployment(2, 2, 0, 0), none, false},
		"completed":                              {inPhase(failing, corev1.PodSucceeded), newest, deployment(2, 2, 0, 0), none, false},
		"terminating":                            {terminating, newest, deployment(2, 2, 0, 0), none, false},
		"all pods serve": {
			failing, newest, deployment(2, 2, 2, 2),
			"+Ready +Serving -RolledOut -AsExpected -AsExpected", false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			observed := Observation{
				Deployment: test.deployment, Service: &corev1.Service{}, Pods: []corev1.Pod{test.pod}, NewestReplicaSet: test.newest, Now: now,
			}
			if got := reasons(statusOf(newEcho(), observed)); got != test.want {
				t.Errorf("conditions = %s, want %s", got, test.want)
			}
			if got := Assess(newEcho(), observed).NeedsNewestReplicaSet(); got != test.needsIt {
				t.Errorf("NeedsNewestReplicaSet = %t, want %t", got, test.needsIt)
			}
		})
	}
}

func TestCrashLoopHasATimeWindow(t *testing.T) {
	backOff := crashed(waiting("p", "CrashLoopBackOff", "back-off"), 9, 1, "")
	backOff.Status.ContainerStatuses[0].LastTerminationState.Terminated.FinishedAt = metav1.Unix(now.Unix()-3600, 0)
	ranLong := restarted(1, 1)
	ranLong.Status.ContainerStatuses[0].LastTerminationState.Terminated.StartedAt = metav1.Unix(now.Unix()-3600, 0)
	once := restarted(1, 1)
	once.Status.ContainerStatuses[0].RestartCount = 1
	for name, test := range map[string]struct {
		pod          corev1.Pod
		looping      bool
		requeueAfter int64
	}{
		"started and terminated last month":     {restarted(2_600_000, 2_600_000), false, deadlineSeconds},
		"started and terminated just now":       {restarted(0, 1), true, 601},
		"started at the start of the window":    {restarted(600, 3600), true, 1},
		"started before the window":             {restarted(601, 3600), false, deadlineSeconds},
		"terminated at the start of the window": {restarted(3600, 600), true, 1},
		"terminated before the window":          {restarted(3600, 601), false, deadlineSeconds},
		"the node's clock is ahead":             {restarted(-7200, 10), true, 7801},
		"in back-off since an hour":             {backOff, true, 0},
		"ran for an hour before":                {ranLong, false, deadlineSeconds},
		"restarted once":                        {once, false, deadlineSeconds},
	} {
		t.Run(name, func(t *testing.T) {
			failure := PodFailure(&test.pod, now)
			if got := failure != nil; got != test.looping {
				t.Errorf("PodFailure = %v, want a failure: %t", failure, test.looping)
			}
			observed := Observation{
				Deployment: deployment(2, 2, 1, 1), Service: &corev1.Service{}, Pods: []corev1.Pod{test.pod}, NewestReplicaSet: newest, Now: now,
			}
			echo := withProgressing(newEcho(), metav1.ConditionFalse, echov1.ReasonRolledOut, 1)
			status := statusOf(echo, observed)
			want := echov1.ReasonPodsNotReady
			if test.looping {
				want = echov1.ReasonCrashLooping
			}
			if got := meta.FindStatusCondition(status.Conditions, echov1.ConditionReady).Reason; got != want {
				t.Errorf("reason of Ready = %s, want %s", got, want)
			}
			if got := requeueSeconds(echo, observed); got != test.requeueAfter {
				t.Errorf("requeueAfter = %d, want %d", got, test.requeueAfter)
			}
			observed.Now = metav1.Unix(now.Unix()+test.requeueAfter, 0)
			if test.looping && test.requeueAfter > 0 && PodFailure(&test.pod, observed.Now) != nil {
				t.Errorf("PodFailure after %d seconds = %v, want none", test.requeueAfter, PodFailure(&test.pod, observed.Now))
			}
		})
	}
}

func TestFailureOfAnImageThatNeedsAnotherUserHasAdvice(t *testing.T) {
	const (
		root   = "container has runAsNonRoot and image will run as root"
		named  = "container has runAsNonRoot and image has non-numeric user (x), cannot verify user is non-root"
		advice = ": set spec.pod.runAsUser"
		nginx  = `mkdir() "/var/cache/nginx/client_temp" failed (13: Permission denied)`
		crash  = "Pods never run as root: the image may need its own user in spec.pod.runAsUser, or a variant that runs without root: "
	)
	inInit := waiting("p", "CreateContainerConfigError", root)
	inInit.Status.InitContainerStatuses, inInit.Status.ContainerStatuses = inInit.Status.ContainerStatuses, nil
	crashes := func(log string) corev1.Pod { return crashed(waiting("p", "CrashLoopBackOff", "back-off"), 3, 1, log) }
	for name, test := range map[string]struct {
		pod          corev1.Pod
		image        string
		prefix, want string
	}{
		"root":                        {waiting("p", "CreateContainerConfigError", root), "nginx", "", root + advice},
		"root, in init container":     {inInit, "nginx", "", root + advice},
		"user with a name":            {waiting("p", "CreateContainerConfigError", named), "nginx", "", named + advice},
		"another error":               {waiting("p", "CreateContainerConfigError", `configmap "x" not found`), "nginx", "", `configmap "x" not found`},
		"crash without permission":    {crashes(nginx), "nginx", crash, "exited with code 1: " + nginx},
		"crash on a read-only disk":   {crashes("open /x: read-only file system"), "x", crash, "exited with code 1: open /x: read-only file system"},
		"crash that asks for root":    {crashes("This must be run as root!"), "x", crash, "exited with code 1: This must be run as root!"},
		"crash for another reason":    {crashes("no such file"), "nginx", "", "exited with code 1: no such file"},
		"crash of the default server": {crashes(nginx), "", "", "exited with code 1: " + nginx},
	} {
		echo := newEcho()
		echo.Spec.Image = test.image
		observed := Observation{Deployment: &appsv1.Deployment{}, Pods: []corev1.Pod{test.pod}, NewestReplicaSet: newest, Now: now}
		if got, want := Assess(echo, observed).failureOfPods().Message, test.prefix+"Pod p, container echo: "+test.want; got != want {
			t.Errorf("%s: message = %q, want %q", name, got, want)
		}
	}
}
