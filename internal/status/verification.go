package status

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/children"
)

// Verification is what a reconciliation observed about the verifier of an Echo.
type Verification struct {
	// Deployment or DaemonSet is the verifier as the API server last returned it. Both are nil while
	// the Echo controls none.
	Deployment *appsv1.Deployment
	DaemonSet  *appsv1.DaemonSet
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

// verifier has the numbers of a Deployment or a DaemonSet.
type verifier struct {
	// response is the value of children.ResponseLabel of its pods.
	response                string
	current                 bool
	desired, updated, ready int32
	// missing is how many nodes of a DaemonSet have no pod of the newest template.
	missing int32
	// rejection is why its pods are rejected.
	rejection *Failure
	// replicaSet is why its ReplicaSet is rejected.
	replicaSet *appsv1.DeploymentCondition
}

// missingSeconds is how long nodes may lack a pod of the newest template before the status says so. A
// DaemonSet's status does not say whether a quota or an admission policy rejects a pod, or whether an
// earlier pod does not stop. The DaemonSet controller may create ten pods a second, or more.
func missingSeconds(nodes int32) int64 { return 30 + int64(nodes)/10 }

func (v Verification) verifier() verifier {
	switch deployment, set := v.Deployment, v.DaemonSet; {
	case set != nil:
		return verifier{
			response: set.Spec.Template.Labels[children.ResponseLabel], current: set.Status.ObservedGeneration >= set.Generation,
			desired: set.Status.DesiredNumberScheduled, updated: set.Status.UpdatedNumberScheduled, ready: set.Status.NumberReady,
			missing: set.Status.DesiredNumberScheduled - set.Status.UpdatedNumberScheduled,
		}
	case deployment != nil:
		updated := deployment.Status.UpdatedReplicas
		if deployment.Status.Replicas != updated {
			updated = 0 // A pod of an earlier template is ready, or stops.
		}
		return verifier{
			response: deployment.Spec.Template.Labels[children.ResponseLabel], current: isCurrent(deployment),
			desired: 1, updated: updated, ready: deployment.Status.ReadyReplicas, rejection: podsRejected(deployment),
			replicaSet: rejectedReplicaSet(deployment),
		}
	}
	return verifier{}
}

// isVerified reports whether every pod has the newest template and is ready.
func (v verifier) isVerified() bool {
	return v.current && v.desired > 0 && v.updated == v.desired && v.ready == v.desired
}

// decides reports whether the condition Verified depends on the verifier.
func (v *Verification) decides() bool {
	return v != nil && !v.NotAllowed && v.Failure == nil && !v.Outdated && (v.Deployment != nil || v.DaemonSet != nil)
}

// NeedsVerifierPods reports whether the status depends on the pods of the verifier: one is not ready.
func NeedsVerifierPods(observed Observation) bool {
	return observed.Verification.decides() && !observed.Verification.verifier().isVerified()
}

// verifiedCondition returns the condition Verified.
func verifiedCondition(echo *echov1.Echo, observed Observation) metav1.Condition {
	verification := *observed.Verification
	unknown := func(reason, format string, args ...any) metav1.Condition {
		return condition(echov1.ConditionVerified, metav1.ConditionUnknown, reason, format, args...)
	}
	switch {
	case echo.DeletionTimestamp != nil:
		return unknown(echov1.ReasonTerminating, "The Echo is being deleted")
	case verification.NotAllowed:
		return unknown(echov1.ReasonEveryNodeNotAllowed,
			"The operator does not allow verifiers on every node: set from to Cluster, or run the operator with --allow-every-node-verification")
	case verification.Failure != nil:
		return unknown(verification.Failure.Reason, "%s", verification.Failure.Message)
	case verification.Outdated && IsRolledOut(echo, observed) && observed.isOver(verifyingSince(echo, observed)):
		return unknown(echov1.ReasonVerifierNotRunning, "Service %s has no address", children.Name(echo))
	case verification.Outdated:
		return unknown(echov1.ReasonRollingOut, "The operator updates the verifier after the rollout of the newest spec")
	case !verification.decides():
		message := cmp.Or(verification.Waiting, fmt.Sprintf("The verifier %s does not exist", children.VerifierName(echo)))
		if observed.isOver(verifyingSince(echo, observed)) {
			return unknown(echov1.ReasonVerifierNotRunning, "%s", message)
		}
		return unknown(echov1.ReasonVerifying, "%s", message)
	}
	state := verification.verifier()
	if state.isVerified() {
		return condition(echov1.ConditionVerified, metav1.ConditionTrue, echov1.ReasonVerified, "Every verifier receives the declared response")
	}
	layers, others, _ := failingContainers(echo, observed)
	if len(layers) > 0 {
		return condition(echov1.ConditionVerified, metav1.ConditionFalse, echov1.ReasonVerificationFailed, "%s", describe(layers, state.desired))
	}
	if failure := verifierFailure(echo, observed, state); failure != nil {
		return unknown(echov1.ReasonVerifierNotRunning, "%s", failure.Message)
	}
	if len(others) > 0 {
		return unknown(echov1.ReasonVerifierNotRunning, "The verifier's pod has a container of another owner that is not ready: %s", describe(others, state.desired))
	}
	return unknown(echov1.ReasonVerifying, "Not every verifier of the newest spec has a result yet")
}

// verifierFailure returns what prevents a verifier from running, or nil.
func verifierFailure(echo *echov1.Echo, observed Observation, state verifier) *Failure {
	switch {
	case !state.current:
		return overdueVerifier(echo, observed, state)
	case state.rejection != nil:
		return state.rejection
	case state.desired == 0:
		return &Failure{Message: "No node matches the node selector, affinity and tolerations of the verifier's pods"}
	}
	for _, pod := range verifierPods(observed) {
		if failure := PodFailure(&pod, observed.Now); failure != nil {
			return failure
		}
	}
	if state.missing > 0 && observed.Now.Unix() >= missingDeadline(echo, observed, state) {
		message := fmt.Sprintf("DaemonSet %s has a pod of the newest spec on %d of %d nodes", children.VerifierName(echo), state.updated, state.desired)
		return &Failure{Message: message + events(echo, "daemonset "+children.VerifierName(echo))}
	}
	return overdueVerifier(echo, observed, state)
}

// overdueVerifier returns the failure of a verifier that the operator has waited for too long, or nil. A pod whose
// containers run may take longer: its result depends on the period and on the threshold.
func overdueVerifier(echo *echov1.Echo, observed Observation, state verifier) *Failure {
	var deciding, others int
	for _, pod := range verifierPods(observed) {
		switch {
		case decides(echo, observed, &pod):
			deciding++
		case PodCause(&pod) != "":
			others++
		}
	}
	isDeciding := deciding > 0 && others == 0 && state.current && state.missing <= 0
	switch {
	case isDeciding, !observed.isOver(verifyingSince(echo, observed)):
		return nil
	case state.replicaSet != nil:
		return &Failure{Message: state.replicaSet.Message + restartHint(echo, children.VerifierName(echo))}
	case !state.current:
		return &Failure{Message: fmt.Sprintf("The controller of the verifier %s has not observed its newest spec", children.VerifierName(echo))}
	}
	isNewest := func(pod *corev1.Pod) bool {
		return pod.Labels[children.ResponseLabel] == state.response && !decides(echo, observed, pod)
	}
	text := causeOfPods(observed.Verification.Pods, isNewest)
	if i := slices.IndexFunc(observed.Verification.Pods, func(pod corev1.Pod) bool { return pod.DeletionTimestamp != nil }); text == "" && i >= 0 {
		text = fmt.Sprintf("Pod %s of an earlier spec does not stop", observed.Verification.Pods[i].Name)
	}
	text = cmp.Or(text, fmt.Sprintf("The verifier %s has %d of %d pods of the newest spec, of which %d are ready",
		children.VerifierName(echo), state.updated, state.desired, state.ready))
	return &Failure{Message: text + eventsOfVerifier(echo)}
}

// decides reports whether a pod of a verifier has no result yet, and may still take for it.
func decides(echo *echov1.Echo, observed Observation, pod *corev1.Pod) bool {
	containers := containersOf(pod)
	return len(containers) > 0 && PodCause(pod) != "" && !slices.ContainsFunc(containers, func(container corev1.ContainerStatus) bool {
		running := container.State.Running
		isPending := !container.Ready && !isFailing(container)
		return isPending && (running == nil || observed.Now.Unix() > running.StartedAt.Unix()+children.StartSeconds(echo.Spec.Verify))
	})
}

// verifyingSince returns since when, in seconds, the operator waits for a result. The verifier is written after the
// rollout, during which the condition was Unknown, too, or later, after a rejection.
func verifyingSince(echo *echov1.Echo, observed Observation) int64 {
	since := max(unknownSince(echo, echov1.ConditionVerified, observed.Now), rolloutEnd(observed.Deployment))
	switch v := observed.Verification; {
	case v.DaemonSet != nil:
		return max(since, v.DaemonSet.CreationTimestamp.Unix())
	case v.Deployment != nil:
		return max(since, v.Deployment.CreationTimestamp.Unix())
	}
	return since
}

// missingDeadline returns the time, in seconds, from which missing pods count as a failure.
func missingDeadline(echo *echov1.Echo, observed Observation, state verifier) int64 {
	return verifyingSince(echo, observed) + missingSeconds(state.desired)
}

// verifierPods returns the pods that verify the newest response, by name.
func verifierPods(observed Observation) []corev1.Pod {
	response := observed.Verification.verifier().response
	return selected(observed.Verification.Pods, func(pod *corev1.Pod) bool {
		return response != "" && pod.Labels[children.ResponseLabel] == response && !isFinished(pod)
	})
}

// FailingContainers returns the names of the started containers of a verifier's pod that are not
// ready: those of the layers on which the response is not verified, and those that others added, for
// example a service mesh.
func FailingContainers(pod *corev1.Pod) (names []string) {
	if isFinished(pod) {
		return nil
	}
	for _, container := range containersOf(pod) {
		if isFailing(container) {
			names = append(names, container.Name)
		}
	}
	return names
}

func isFailing(container corev1.ContainerStatus) bool {
	return ptr.Deref(container.Started, false) && !container.Ready
}

// failingContainers returns the nodes on which each layer and each other container fails, and the time,
// in seconds, of the next result that does not count yet, or 0.
func failingContainers(echo *echov1.Echo, observed Observation) (layers, others map[string][]string, next int64) {
	layers, others = map[string][]string{}, map[string][]string{}
	for _, pod := range verifierPods(observed) {
		for _, container := range containersOf(&pod) {
			if !isFailing(container) {
				continue
			}
			if at := resultTime(echo, observed.Deployment, container); at > observed.Now.Unix() {
				if next == 0 || at < next {
					next = at
				}
				continue
			}
			failing := others
			if children.IsLayer(container.Name) {
				failing = layers
			}
			failing[container.Name] = append(failing[container.Name], pod.Spec.NodeName)
		}
	}
	return layers, others, next
}

// resultTime returns the time, in seconds, from which the result of a container counts. A container
// is not ready for a moment after it has started, and while it remembers the responses of an earlier
// spec that it received during a rollout.
func resultTime(echo *echov1.Echo, deployment *appsv1.Deployment, container corev1.ContainerStatus) int64 {
	var started int64
	if running := container.State.Running; running != nil {
		started = running.StartedAt.Unix()
	}
	at := started + children.DecisionSeconds(echo.Spec.Verify, false)
	if rolledOut := rolloutEnd(deployment); started < rolledOut {
		at = max(at, rolledOut+children.DecisionSeconds(echo.Spec.Verify, true))
	}
	return at
}

// rolloutEnd returns the time, in seconds, at which the last rollout of the server ended, or 0.
func rolloutEnd(deployment *appsv1.Deployment) int64 {
	if c := deploymentCondition(deployment, appsv1.DeploymentProgressing); c != nil && c.Reason == newReplicaSetAvailable {
		return c.LastUpdateTime.Unix()
	}
	return 0
}

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

// verificationFailure returns the failure that the condition Verified reports, or nil.
func verificationFailure(verified *metav1.Condition) *Failure {
	if verified == nil || verified.Status != metav1.ConditionFalse {
		return nil
	}
	return &Failure{Reason: verified.Reason, Message: verified.Message}
}

// wasReady reports whether the Echo was Ready with this generation.
func wasReady(echo *echov1.Echo) bool {
	ready := meta.FindStatusCondition(echo.Status.Conditions, echov1.ConditionReady)
	return ready != nil && ready.Status == metav1.ConditionTrue && ready.ObservedGeneration == echo.Generation
}

// verificationRecheck returns the number of seconds until a result counts or, while the verifier decides, until a
// missing pod or an overdue verifier counts, or 0.
func verificationRecheck(echo *echov1.Echo, observed Observation, status echov1.EchoStatus) int64 {
	verified := meta.FindStatusCondition(status.Conditions, echov1.ConditionVerified)
	if verified == nil || verified.Status == metav1.ConditionTrue {
		return 0
	}
	_, _, result := failingContainers(echo, observed)
	next := []int64{result}
	if isPending := verified.Reason == echov1.ReasonVerifying || verified.Reason == echov1.ReasonRollingOut; isPending {
		since, state := verifyingSince(echo, observed), observed.Verification.verifier()
		next = append(next, since+deadline)
		if state.missing > 0 {
			next = append(next, missingDeadline(echo, observed, state))
		}
		for _, pod := range verifierPods(observed) {
			for _, container := range containersOf(&pod) {
				if running := container.State.Running; running != nil && !isFailing(container) {
					next = append(next, running.StartedAt.Unix()+children.StartSeconds(echo.Spec.Verify)+1)
				}
			}
		}
	}
	next = slices.DeleteFunc(next, func(at int64) bool { return at <= observed.Now.Unix() })
	if len(next) == 0 {
		return 0
	}
	return slices.Min(next) - observed.Now.Unix()
}
