package controller

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/kkloud-io/echo-operator/internal/children"
	"github.com/kkloud-io/echo-operator/internal/status"
)

// failingPods are pods in each state that the status distinguishes.
func failingPods() map[string]*corev1.Pod {
	pods := map[string]*corev1.Pod{}
	add := func(name string, change func(*corev1.Pod)) {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "p", CreationTimestamp: metav1.Now(), Labels: map[string]string{
				children.EchoLabel: "hello", children.ManagedByLabel: children.ManagedBy, appsv1.DefaultDeploymentUniqueLabelKey: "abc",
			}},
			Status: corev1.PodStatus{
				Phase:      corev1.PodRunning,
				Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, Reason: "Unschedulable"}},
				ContainerStatuses: []corev1.ContainerStatus{{
					Name: "echo", RestartCount: 3,
					State: corev1.ContainerState{
						Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff", Message: "back-off"},
						Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()},
					},
					LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
						ExitCode: 137, Reason: "OOMKilled", Message: "log\n", FinishedAt: metav1.Now(),
					}},
				}},
			},
		}
		change(pod)
		pods[name] = pod
	}
	container := func(pod *corev1.Pod) *corev1.ContainerStatus { return &pod.Status.ContainerStatuses[0] }
	add("crash loop", func(*corev1.Pod) {})
	add("restarted", func(pod *corev1.Pod) { container(pod).State.Waiting = nil })
	add("between two runs", func(pod *corev1.Pod) { container(pod).State = corev1.ContainerState{} })
	add("restarted long ago", func(pod *corev1.Pod) {
		container(pod).State = corev1.ContainerState{}
		container(pod).LastTerminationState.Terminated.FinishedAt = metav1.Unix(1, 0)
	})
	add("started again", func(pod *corev1.Pod) {
		container(pod).State.Waiting = nil
		container(pod).LastTerminationState.Terminated.FinishedAt = metav1.Unix(1, 0)
	})
	add("ready", func(pod *corev1.Pod) { container(pod).Ready, container(pod).State.Waiting = true, nil })
	add("failed", func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodFailed })
	add("succeeded", func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodSucceeded })
	add("terminating", func(pod *corev1.Pod) { pod.DeletionTimestamp = &metav1.Time{Time: time.Now()} })
	add("root image", func(pod *corev1.Pod) {
		container(pod).RestartCount, container(pod).LastTerminationState = 0, corev1.ContainerState{}
		container(pod).State.Waiting = &corev1.ContainerStateWaiting{Reason: "CreateContainerConfigError", Message: "container has runAsNonRoot and image will run as root"}
	})
	add("unschedulable", func(pod *corev1.Pod) {
		pod.Status.Conditions[0].Status, pod.Status.Conditions[0].Message = corev1.ConditionFalse, "0/1 nodes"
	})
	add("gated", func(pod *corev1.Pod) {
		pod.Status = corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{
			{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "SchedulingGated", Message: "blocked"}}}
	})
	add("waits for a gate", func(pod *corev1.Pod) {
		pod.Status.Conditions = append(pod.Status.Conditions,
			corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionFalse, Reason: "ReadinessGatesNotReady", Message: "not yet"})
		pod.Status.ContainerStatuses[0] = corev1.ContainerStatus{Name: "echo", Ready: true}
	})
	add("starts", func(pod *corev1.Pod) {
		pod.Status.ContainerStatuses[0] = corev1.ContainerStatus{Name: "echo", State: corev1.ContainerState{
			Waiting: &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}}}
	})
	add("failing init container", func(pod *corev1.Pod) {
		pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses = pod.Status.ContainerStatuses, nil
	})
	return pods
}

func TestCachedPodHasTheSameFailure(t *testing.T) {
	for name, pod := range failingPods() {
		slimmed := status.TransformPod(pod)
		if got, want := fmt.Sprint(status.PodFailure(slimmed, metav1.Now())), fmt.Sprint(status.PodFailure(pod, metav1.Now())); got != want {
			t.Errorf("%s: failure of the cached pod = %s, want %s", name, got, want)
		}
		if got, want := status.PodCause(slimmed), status.PodCause(pod); got != want {
			t.Errorf("%s: cause of the cached pod = %s, want %s", name, got, want)
		}
	}
}

func TestOnlyDeletionsAndChangesOfFailuresOfPodsRequeueTheirEcho(t *testing.T) {
	pods := failingPods()
	for name, pod := range failingPods() {
		pods[name] = status.TransformPod(pod)
		pod.CreationTimestamp = metav1.NewTime(time.Now().Add(-time.Hour))
		pods["old, "+name] = status.TransformPod(pod)
	}
	for _, test := range []struct {
		before, after string
		want          bool
	}{
		{"crash loop", "crash loop", false}, {"crash loop", "restarted", false}, {"restarted", "ready", true}, {"ready", "restarted", true},
		{"restarted long ago", "ready", false}, {"restarted long ago", "started again", true}, {"restarted long ago", "crash loop", true},
		{"crash loop", "terminating", true}, {"unschedulable", "failed", true}, {"ready", "succeeded", false}, {"crash loop", "root image", true},
		{"gated", "starts", false}, {"old, gated", "old, starts", true}, {"old, starts", "old, waits for a gate", true}, {"old, starts", "old, starts", false},
	} {
		if got := podChanged.Update(event.UpdateEvent{ObjectOld: pods[test.before], ObjectNew: pods[test.after]}); got != test.want {
			t.Errorf("update from %s to %s: requeue = %t, want %t", test.before, test.after, got, test.want)
		}
	}
	for name, want := range map[string]bool{"crash loop": true, "unschedulable": true, "ready": false, "failed": false, "restarted long ago": false} {
		if got := podChanged.Create(event.CreateEvent{Object: pods[name]}); got != want {
			t.Errorf("creation of %s: requeue = %t, want %t", name, got, want)
		}
		if !podChanged.Delete(event.DeleteEvent{Object: pods[name]}) {
			t.Errorf("deletion of %s does not requeue the Echo, which may wait for it", name)
		}
	}
}

// replicaSets is an API server that returns two ReplicaSets in each page of a list.
type replicaSets struct {
	client.Reader
	t     *testing.T
	items []metav1.PartialObjectMetadata
	err   error
}

func (r replicaSets) List(_ context.Context, list client.ObjectList, options ...client.ListOption) error {
	all := client.ListOptions{}
	all.ApplyOptions(options)
	if all.Namespace != "n" || all.LabelSelector.String() != "kkloud.io/echo=hello" || all.Limit == 0 {
		r.t.Errorf("options of the list = %+v, want the namespace, the selector and a limit", all)
	}
	sets, first := list.(*metav1.PartialObjectMetadataList), 0
	if all.Continue != "" {
		_, _ = fmt.Sscan(all.Continue, &first)
	}
	end := min(first+2, len(r.items))
	sets.Items, sets.Continue = r.items[first:end], ""
	if end < len(r.items) {
		sets.Continue = fmt.Sprint(end)
	}
	return r.err
}

func TestNewestReplicaSetHasTheHighestRevisionOfTheDeployment(t *testing.T) {
	deployment := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "echo-hello", UID: "own"},
		Spec:       appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{children.EchoLabel: "hello"}}},
	}
	set := func(hash, revision, controller string) metav1.PartialObjectMetadata {
		return metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
			Labels:          map[string]string{appsv1.DefaultDeploymentUniqueLabelKey: hash},
			Annotations:     map[string]string{revisionAnnotation: revision},
			OwnerReferences: []metav1.OwnerReference{{UID: "own"}, {UID: "x", Controller: new(false)}, {UID: types.UID(controller), Controller: new(true)}},
		}}
	}
	for name, test := range map[string]struct {
		sets []metav1.PartialObjectMetadata
		want string
	}{
		"none":                    {nil, ""},
		"numbers, not strings":    {[]metav1.PartialObjectMetadata{set("a", "9", "own"), set("b", "10", "own"), set("c", "8", "own")}, "b"},
		"on a later page":         {[]metav1.PartialObjectMetadata{set("a", "1", "own"), set("b", "2", "own"), set("c", "4", "own"), set("d", "3", "own"), set("e", "5", "own")}, "e"},
		"of another controller":   {[]metav1.PartialObjectMetadata{set("a", "1", "own"), set("b", "2", "other")}, "a"},
		"without a valid number":  {[]metav1.PartialObjectMetadata{set("a", "", "own"), set("b", "99999999999999999999", "own"), set("c", "-1", "own")}, ""},
		"one with a valid number": {[]metav1.PartialObjectMetadata{set("a", "3", "own"), set("b", "x", "own")}, "a"},
	} {
		r := &EchoReconciler{APIReader: replicaSets{t: t, items: test.sets}}
		if got, err := r.newestReplicaSet(t.Context(), deployment); got != test.want || err != nil {
			t.Errorf("%s: newestReplicaSet = %q, %v, want %q", name, got, err, test.want)
		}
	}
	failed := errors.New("unavailable")
	r := &EchoReconciler{APIReader: replicaSets{t: t, err: failed}}
	if _, err := r.newestReplicaSet(t.Context(), deployment); !errors.Is(err, failed) {
		t.Errorf("error of newestReplicaSet = %v, want %v", err, failed)
	}
}
