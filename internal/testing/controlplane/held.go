package controlplane

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// What holds a pod back, beside the names of images in kubelet.go.
const (
	// Missing is the name of what does not exist: a node, a label of nodes, a scheduler, a Secret of a volume.
	Missing = "missing"

	// Waiting and Rejected precede a reason of the kubelet, in the name of an image: the container waits with that
	// reason, or the kubelet does not run the pod.
	Waiting  = "docker.io/library/waiting:"
	Rejected = "docker.io/library/rejected:"
	// Flapping is the image of a server that is ready every other time.
	Flapping = "docker.io/library/flapping:1"

	// rejectionDelay limits how often a ReplicaSet replaces pods that the kubelet rejects.
	rejectionDelay = 10 * time.Second
	flapInterval   = 5 * time.Second
)

// WaitingReasons and RejectionReasons are reasons of the kubelet. Source: k8s.io/kubernetes/pkg/kubelet (images,
// kuberuntime, container, lifecycle, eviction and nodeshutdown packages).
var (
	WaitingReasons = []string{
		"ContainerCreating", "PodInitializing", "ErrImagePull", "ImagePullBackOff", "ImageInspectError", "ErrImageNeverPull", "InvalidImageName",
		"RegistryUnavailable", "SignatureValidationFailed", "CreateContainerConfigError", "PreCreateHookError", "CreateContainerError",
		"PreStartHookError", "PostStartHookError", "CrashLoopBackOff", "RunContainerError", "KillContainerError", "CreatePodSandboxError",
		"ConfigPodSandboxError", "ResizePodInPlaceError",
	}
	RejectionReasons = []string{"OutOfcpu", "Evicted", "NodeShutdown", "UnexpectedAdmissionError"}
)

// isIgnored reports whether no scheduler and no kubelet looks at the pod. The API server itself reports scheduling gates.
func isIgnored(pod *corev1.Pod) bool {
	hasOtherScheduler := pod.Spec.SchedulerName != corev1.DefaultSchedulerName
	hasOtherNode := pod.Spec.NodeName != "" && !slices.Contains(Nodes, pod.Spec.NodeName)
	return hasOtherScheduler || hasOtherNode || len(pod.Spec.SchedulingGates) > 0
}

// schedulingOf returns what the scheduler reports about the pod.
func schedulingOf(pod *corev1.Pod) corev1.PodCondition {
	message := ""
	switch {
	case strings.HasSuffix(pod.Spec.Containers[0].Image, huge):
		message = "0/1 nodes are available: 1 Insufficient memory."
	case requiresMissing(pod):
		message = "0/2 nodes are available: 2 node(s) didn't match Pod's node affinity/selector."
	case len(pod.Spec.ResourceClaims) > 0:
		message = fmt.Sprintf("waiting for resource claim %q", pod.Spec.ResourceClaims[0].Name)
	default:
		return corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}
	}
	return corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: message}
}

// requiresMissing reports whether no node has the labels that the pod requires.
func requiresMissing(pod *corev1.Pod) bool {
	_, selects := pod.Spec.NodeSelector[Missing]
	spreads := slices.ContainsFunc(pod.Spec.TopologySpreadConstraints, func(c corev1.TopologySpreadConstraint) bool {
		return c.TopologyKey == Missing && c.WhenUnsatisfiable == corev1.DoNotSchedule
	})
	affinity := pod.Spec.Affinity
	isNear := affinity != nil && affinity.PodAffinity != nil &&
		slices.ContainsFunc(affinity.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution, func(t corev1.PodAffinityTerm) bool { return t.TopologyKey == Missing })
	return selects || spreads || isNear
}

// missingVolume returns the name of a volume that cannot be mounted, or an empty name.
func missingVolume(pod *corev1.Pod) string {
	for _, volume := range pod.Spec.Volumes {
		source, err := json.Marshal(volume.VolumeSource)
		if err == nil && strings.Contains(string(source), `"`+Missing+`"`) {
			return volume.Name
		}
	}
	return ""
}

// recordMount records the event that says why a volume cannot be mounted: the status of the pod does not.
func recordMount(ctx context.Context, writer client.Client, pod *corev1.Pod, volume string) {
	_ = writer.Create(ctx, &corev1.Event{ // The pod may have been deleted.
		ObjectMeta:     metav1.ObjectMeta{Namespace: pod.Namespace, GenerateName: pod.Name + "-"},
		InvolvedObject: corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID},
		Type:           corev1.EventTypeWarning, Reason: "FailedMount", Count: 1, FirstTimestamp: metav1.Now(), LastTimestamp: metav1.Now(),
		Message: fmt.Sprintf("MountVolume.SetUp failed for volume %q: %q not found", volume, Missing),
	})
}

// waitingState returns that of a container that waits with the reason. While a pod starts, there is no message.
func waitingState(reason string) *corev1.ContainerStateWaiting {
	state := &corev1.ContainerStateWaiting{Reason: reason}
	if reason != "ContainerCreating" && reason != "PodInitializing" {
		state.Message = "said the kubelet"
	}
	return state
}

// rejectionOf returns with which reason the kubelet does not run the pod, or an empty reason.
func rejectionOf(pod *corev1.Pod) string {
	if pod.Spec.ActiveDeadlineSeconds != nil {
		return "DeadlineExceeded"
	}
	reason, _ := strings.CutPrefix(pod.Spec.Containers[0].Image, Rejected)
	if reason == pod.Spec.Containers[0].Image {
		return ""
	}
	return reason
}

func reject(ctx context.Context, writer client.Client, pod *corev1.Pod, reason string) {
	select {
	case <-ctx.Done():
	case <-time.After(rejectionDelay):
	}
	writeStatus(ctx, writer, pod, corev1.PodStatus{
		Phase: corev1.PodFailed, Reason: reason, Message: "Pod was rejected: said the kubelet",
		Conditions: []corev1.PodCondition{schedulingOf(pod)},
	})
}

// flap reports the pod as not ready, then ready and so on, until it is deleted.
func flap(ctx context.Context, writer client.Client, pod *corev1.Pod) {
	for ready := false; ctx.Err() == nil; ready = !ready {
		select {
		case <-ctx.Done():
		case <-time.After(flapInterval):
		}
		if err := writer.Get(ctx, client.ObjectKeyFromObject(pod), pod); err != nil || pod.DeletionTimestamp != nil {
			return
		}
		status := pod.Status.DeepCopy()
		for i := range status.ContainerStatuses {
			status.ContainerStatuses[i].Ready = ready
		}
		for i := range status.Conditions {
			if c := &status.Conditions[i]; c.Type == corev1.PodReady {
				c.Status, c.LastTransitionTime = corev1.ConditionFalse, metav1.Now()
				if ready {
					c.Status = corev1.ConditionTrue
				}
			}
		}
		writeStatus(ctx, writer, pod, *status)
	}
}
