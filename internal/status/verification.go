package status

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/children"
)

// Verification is what a reconciliation observed about the verifier of an Echo.
type Verification struct {
	// Object is the Deployment or the DaemonSet as the API server last returned it. It is nil while the Echo controls none.
	Object children.Object
	// Failure is the failure of the verifier in Observation.Rejected, or nil.
	Failure *Failure
	// NotAllowed is true if the operator does not allow a verifier on every node.
	NotAllowed bool
	// Outdated is true until the verifier is written for the newest spec: after its rollout.
	Outdated bool
	// Waiting is what the verifier waits for, without a failure.
	Waiting string
	// Pods of the verifier, if NeedsVerifierPods.
	Pods []corev1.Pod
}

// missingTime is how long nodes may lack a pod of the newest template before the status says so. A
// DaemonSet's status does not say whether a quota or an admission policy rejects a pod, or whether an
// earlier pod does not stop. The DaemonSet controller may create ten pods a second, or more.
func missingTime(nodes int32) time.Duration { return seconds(30 + nodes/10) }

// workload holds the pod counts of the verifier's Deployment or DaemonSet.
type workload struct {
	// response is the value of children.ResponseLabel of its pods.
	response                string
	isCurrent               bool
	desired, updated, ready int32
	// missing is the number of nodes of a DaemonSet without a pod of the newest template.
	missing int32
	// rejection is why its pods or its ReplicaSet are rejected, or empty.
	podRejection, replicaSetRejection string
	created                           time.Time
}

func (v *Verification) workload() workload {
	switch object := v.Object.(type) {
	case *appsv1.DaemonSet:
		pods := object.Status
		return workload{
			response: object.Spec.Template.Labels[children.ResponseLabel], isCurrent: pods.ObservedGeneration >= object.Generation,
			desired: pods.DesiredNumberScheduled, updated: pods.UpdatedNumberScheduled, ready: pods.NumberReady,
			missing: pods.DesiredNumberScheduled - pods.UpdatedNumberScheduled, created: object.CreationTimestamp.Time,
		}
	case *appsv1.Deployment:
		updated := object.Status.UpdatedReplicas
		if object.Status.Replicas != updated {
			updated = 0 // A pod of an earlier template is ready, or stops.
		}
		w := workload{
			response: object.Spec.Template.Labels[children.ResponseLabel], isCurrent: isCurrent(object),
			desired: 1, updated: updated, ready: object.Status.ReadyReplicas,
			replicaSetRejection: replicaSetRejection(object), created: object.CreationTimestamp.Time,
		}
		if c := deploymentCondition(object, appsv1.DeploymentReplicaFailure); c.Status == corev1.ConditionTrue {
			w.podRejection = c.Message
		}
		return w
	}
	return workload{}
}

// isVerified reports whether every pod has the newest template and is ready.
func (w workload) isVerified() bool {
	return w.isCurrent && w.desired > 0 && w.updated == w.desired && w.ready == w.desired
}

// hasWorkload reports whether the condition Verified depends on the verifier's workload.
func (v *Verification) hasWorkload() bool {
	return v != nil && !v.NotAllowed && v.Failure == nil && !v.Outdated && v.Object != nil
}

// NeedsVerifierPods reports whether the status depends on the pods of the verifier: one is not ready.
func NeedsVerifierPods(observed Observation) bool {
	return observed.Verification.hasWorkload() && !observed.Verification.workload().isVerified()
}

// verification returns the condition Verified.
func (a *Assessment) verification(progressing metav1.Condition) verdict {
	v := a.Verification
	if v == nil {
		return verdict{}
	}
	w := v.workload()
	since := a.verifyingSince(w)
	end := since.Add(deadline)
	unknown := func(reason, message string, until ...time.Time) verdict {
		return verdict{condition: condition(echov1.ConditionVerified, metav1.ConditionUnknown, reason, "%s", message), until: a.next(until...)}
	}
	switch {
	case a.echo.DeletionTimestamp != nil:
		return unknown(echov1.ReasonTerminating, "The Echo is being deleted")
	case v.NotAllowed:
		return unknown(echov1.ReasonEveryNodeNotAllowed,
			"The operator does not allow verifiers on every node: set from to Cluster, or run the operator with --allow-every-node-verification")
	case v.Failure != nil:
		return unknown(v.Failure.Reason, v.Failure.Message)
	case v.Outdated && a.isRolledOut && a.expired(end):
		return unknown(echov1.ReasonVerifierNotRunning, fmt.Sprintf("Service %s has no address", children.Name(a.echo)))
	case v.Outdated:
		reason := echov1.ReasonRollingOut
		if progressing.Reason == echov1.ReasonProgressDeadlineExceeded {
			reason = progressing.Reason
		}
		return unknown(reason, "The operator updates the verifier after the rollout of the newest spec", end)
	case !v.hasWorkload():
		message := cmp.Or(v.Waiting, fmt.Sprintf("The verifier %s does not exist", children.VerifierName(a.echo)))
		if a.expired(end) {
			return unknown(echov1.ReasonVerifierNotRunning, message)
		}
		return unknown(echov1.ReasonVerifying, message, end)
	case w.isVerified():
		return verdict{condition: condition(echov1.ConditionVerified, metav1.ConditionTrue, echov1.ReasonVerified, "Every verifier receives the declared response")}
	}
	results := a.results(w)
	if len(results.layers) > 0 {
		layer := slices.Min(slices.Collect(maps.Keys(results.layers)))
		verified := condition(echov1.ConditionVerified, metav1.ConditionFalse, echov1.ReasonVerificationFailed,
			"%s (the cause: kubectl logs -n %s -l %s=%s -c %s --tail=1)",
			describe(results.layers, w.desired), a.echo.Namespace, children.VerifiesLabel, a.echo.Name, layer)
		return verdict{verified, &Failure{Reason: verified.Reason, Message: verified.Message}, results.next}
	}
	missingEnd := since.Add(missingTime(w.desired))
	if message := a.verifierFailure(w, results, missingEnd, end); message != "" {
		return unknown(echov1.ReasonVerifierNotRunning, message, results.next)
	}
	if w.missing <= 0 {
		missingEnd = time.Time{}
	}
	return unknown(echov1.ReasonVerifying, "Not every verifier of the newest spec has a result yet",
		results.next, end, missingEnd, results.awaitedEnd)
}

// results sums up the pods that verify the newest response.
type results struct {
	pods []corev1.Pod
	// layers and others name the nodes on which each layer and each container of another owner fails.
	layers, others map[string][]string
	// next is when the next failure counts, or zero.
	next time.Time
	// isAwaited is true if some pods may still have their first result, and no other pod is not ready.
	isAwaited bool
	// awaitedEnd is the first time at which a container has had the time for its first result.
	awaitedEnd time.Time
}

func (a *Assessment) results(w workload) results {
	r := results{layers: map[string][]string{}, others: map[string][]string{}}
	r.pods = selected(a.Verification.Pods, func(pod *corev1.Pod) bool { return w.response != "" && isOfResponse(pod, w) && !isFinished(pod) })
	var awaited, blocked bool
	for i := range r.pods {
		pod := &r.pods[i]
		isAwaited := a.isAwaitingResult(pod)
		awaited, blocked = awaited || isAwaited, blocked || !isAwaited && PodCause(pod) != ""
		for _, container := range containersOf(pod) {
			running := container.State.Running
			switch at := a.resultTime(container); {
			case !isFailing(container) && running != nil:
				r.awaitedEnd = a.next(r.awaitedEnd, a.firstResultEnd(running).Add(time.Second))
			case !isFailing(container):
			case !a.expired(at):
				r.next = a.next(r.next, at)
			case children.IsLayer(container.Name):
				r.layers[container.Name] = append(r.layers[container.Name], pod.Spec.NodeName)
			default:
				r.others[container.Name] = append(r.others[container.Name], pod.Spec.NodeName)
			}
		}
	}
	r.isAwaited = awaited && !blocked
	return r
}

func isOfResponse(pod *corev1.Pod, w workload) bool {
	return pod.Labels[children.ResponseLabel] == w.response
}

// isAwaitingResult reports whether a pod has no result yet, and may still take for it: that depends on the period and on
// the threshold.
func (a *Assessment) isAwaitingResult(pod *corev1.Pod) bool {
	containers := containersOf(pod)
	return len(containers) > 0 && PodCause(pod) != "" && !slices.ContainsFunc(containers, func(container corev1.ContainerStatus) bool {
		running := container.State.Running
		isPending := !container.Ready && !isFailing(container)
		return isPending && (running == nil || a.Now.After(a.firstResultEnd(running)))
	})
}

// firstResultEnd returns until when a container may take for its first result.
func (a *Assessment) firstResultEnd(running *corev1.ContainerStateRunning) time.Time {
	return running.StartedAt.Add(seconds(children.StartSeconds(a.echo.Spec.Verify)))
}

// verifierFailure returns what prevents a verifier from running, or an empty text.
func (a *Assessment) verifierFailure(w workload, r results, missingEnd, end time.Time) string {
	name := children.VerifierName(a.echo)
	if w.isCurrent {
		switch {
		case w.podRejection != "":
			return w.podRejection
		case w.desired == 0:
			return "No node matches the node selector, affinity and tolerations of the verifier's pods"
		}
		for i := range r.pods {
			if failure := PodFailure(&r.pods[i], a.Now); failure != nil {
				return failure.Message
			}
		}
		if w.missing > 0 && a.expired(missingEnd) {
			return fmt.Sprintf("DaemonSet %s has a pod of the newest spec on %d of %d nodes (its events: kubectl describe -n %s daemonset %s)",
				name, w.updated, w.desired, a.echo.Namespace, name)
		}
	}
	isAwaited := r.isAwaited && w.isCurrent && w.missing <= 0
	switch {
	case !isAwaited && a.expired(end):
		return a.overdueVerifier(w, name)
	case len(r.others) > 0:
		return "The verifier's pod has a container of another owner that is not ready: " + describe(r.others, w.desired)
	default:
		return ""
	}
}

// overdueVerifier returns what the cluster says about a verifier without a result.
func (a *Assessment) overdueVerifier(w workload, name string) string {
	if w.replicaSetRejection != "" {
		return w.replicaSetRejection + restartHint(a.echo, name)
	}
	if !w.isCurrent {
		return fmt.Sprintf("The controller of the verifier %s has not observed its newest spec", name)
	}
	text := causeOfPods(a.Verification.Pods, func(pod *corev1.Pod) bool { return isOfResponse(pod, w) && !a.isAwaitingResult(pod) })
	if i := slices.IndexFunc(a.Verification.Pods, func(pod corev1.Pod) bool { return pod.DeletionTimestamp != nil }); text == "" && i >= 0 {
		text = fmt.Sprintf("Pod %s of an earlier spec does not stop", a.Verification.Pods[i].Name)
	}
	text = cmp.Or(text, fmt.Sprintf("The verifier %s has %d of %d pods of the newest spec, of which %d are ready", name, w.updated, w.desired, w.ready))
	return text + eventsHint(a.echo, "", children.VerifiesLabel)
}

// verifyingSince returns since when the operator waits for a result. The verifier is written after the rollout, during
// which the condition was Unknown, too, or later, after a rejection.
func (a *Assessment) verifyingSince(w workload) time.Time {
	return latest(a.unknownSince(echov1.ConditionVerified), a.rolloutEnd(), w.created)
}

// resultTime returns the time from which the result of a container counts. A container
// is not ready for a moment after it has started, and while it remembers the responses of an earlier
// spec that it received during a rollout.
func (a *Assessment) resultTime(container corev1.ContainerStatus) time.Time {
	started := ptr.Deref(container.State.Running, corev1.ContainerStateRunning{}).StartedAt.Time
	at := started.Add(seconds(children.DecisionSeconds(a.echo.Spec.Verify, false)))
	if rolledOut := a.rolloutEnd(); started.Before(rolledOut) {
		at = latest(at, rolledOut.Add(seconds(children.DecisionSeconds(a.echo.Spec.Verify, true))))
	}
	return at
}

// rolloutEnd returns the time at which the last rollout of the server ended, or a zero time.
func (a *Assessment) rolloutEnd() time.Time {
	if a.progressing.Reason != newReplicaSetAvailable {
		return time.Time{}
	}
	return a.progressing.LastUpdateTime.Time
}

func latest(times ...time.Time) time.Time { return slices.MaxFunc(times, time.Time.Compare) }

// maxNodes is the maximum number of nodes that a message names for each layer.
const maxNodes = 5

// describe describes on which nodes each layer, or each other container, fails.
func describe(failing map[string][]string, desired int32) string {
	var messages []string
	for _, layer := range slices.Sorted(maps.Keys(failing)) {
		nodes := failing[layer]
		slices.Sort(nodes)
		named := strings.Join(nodes[:min(len(nodes), maxNodes)], ", ")
		if more := len(nodes) - maxNodes; more > 0 {
			named = fmt.Sprintf("%s and %d more", named, more)
		}
		if desired == 1 {
			messages = append(messages, fmt.Sprintf("%s fails on node %s", layer, named))
		} else {
			messages = append(messages, fmt.Sprintf("%s fails on %d of %d nodes: %s", layer, len(nodes), desired, named))
		}
	}
	return strings.Join(messages, "; ")
}
