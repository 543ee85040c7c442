package informers

import (
	"maps"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kkloud-io/echo-operator/internal/children"
	"github.com/kkloud-io/echo-operator/internal/status"
)

// largePod returns a pod that a user has made as large as possible.
func largePod() *corev1.Pod {
	text := strings.Repeat("x", 100_000)
	container := corev1.ContainerStatus{
		Name: "echo", RestartCount: 3, Image: text, ImageID: text, ContainerID: text,
		State: corev1.ContainerState{
			Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff", Message: text},
			Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()},
		},
		LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
			ExitCode: 137, Reason: "OOMKilled", Message: "log " + text, StartedAt: metav1.Now(), FinishedAt: metav1.Now(), ContainerID: text,
		}},
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "n", Name: "p", UID: "u", ResourceVersion: "7", DeletionTimestamp: &metav1.Time{Time: time.Now()},
			Labels: map[string]string{
				children.EchoLabel: "hello", children.ManagedByLabel: children.ManagedBy,
				appsv1.DefaultDeploymentUniqueLabelKey: "abc", children.ResponseLabel: "def", "other": "label",
			},
			Annotations: map[string]string{"note": text},
		},
		Spec: corev1.PodSpec{NodeName: text[:253]},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, Message: text, Conditions: []corev1.PodCondition{
			{Type: corev1.PodReady, Status: corev1.ConditionFalse, Message: text},
			{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: text, LastTransitionTime: metav1.Now()},
		}},
	}
	for range 500 {
		pod.Status.InitContainerStatuses = append(pod.Status.InitContainerStatuses, container)
		pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, container)
	}
	return pod
}

func slim(pod *corev1.Pod) *corev1.Pod { return status.TransformPod(pod.DeepCopy()) }

func TestCachedPodHasABoundedSize(t *testing.T) {
	pod := largePod()
	if size, limit := slim(pod).Size(), 150_000; size > limit {
		t.Errorf("size of a pod with the label %s = %d bytes, want at most %d", children.EchoLabel, size, limit)
	}
	pod.Labels[children.EchoLabel] = ""
	if size, limit := slim(pod).Size(), 100; size > limit {
		t.Errorf("size of a pod without the label %s = %d bytes, want at most %d", children.EchoLabel, size, limit)
	}
	pod.Labels[children.EchoLabel] = "hello"
	since := metav1.Now()
	pod.Status = corev1.PodStatus{
		Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{{Name: "echo", Ready: true, Image: "i"}},
		Conditions: []corev1.PodCondition{
			{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: since},
			{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: since, Message: "m"},
		},
	}
	got := slim(pod)
	labels := map[string]string{children.EchoLabel: "hello", appsv1.DefaultDeploymentUniqueLabelKey: "abc", children.ResponseLabel: "def"}
	if !maps.Equal(got.Labels, labels) {
		t.Errorf("labels = %v, want %v", got.Labels, labels)
	}
	if len(got.Status.ContainerStatuses) != 0 {
		t.Errorf("container statuses of a ready pod = %v, want none", got.Status.ContainerStatuses)
	}
	want := []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: since}}
	if !equality.Semantic.DeepEqual(got.Status.Conditions, want) {
		t.Errorf("conditions of a ready pod = %v, want %v", got.Status.Conditions, want)
	}
}

func TestCachedPodNamesItsSchedulingGates(t *testing.T) {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{children.VerifiesLabel: "hello"}},
		Spec:       corev1.PodSpec{SchedulingGates: []corev1.PodSchedulingGate{{Name: "example.com/quota"}, {Name: "example.com/cost"}}},
		Status: corev1.PodStatus{Conditions: []corev1.PodCondition{
			{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonSchedulingGated, Message: "Scheduling is blocked due to non-empty scheduling gates"},
		}},
	}
	want := "SchedulingGated: Scheduling is blocked due to non-empty scheduling gates: example.com/quota, example.com/cost"
	if got := status.PodCause(slim(pod)); !strings.HasSuffix(got, want) {
		t.Errorf("cause = %q, want %q at its end", got, want)
	}
}

// A transform may receive an object that it has already transformed.
func TestCachedPodDoesNotChangeIfItIsReducedAgain(t *testing.T) {
	once := slim(largePod())
	if again := slim(once); !equality.Semantic.DeepEqual(once, again) {
		t.Errorf("reduced once = %v, again = %v", once, again)
	}
}
