package status

import (
	"encoding/binary"
	"maps"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/randfill"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/children"
	"github.com/kkloud-io/echo-operator/internal/testing/values"
)

// FuzzOf checks that, for any observation, the status is well-formed and consistent, and that it
// is Ready exactly when every part of the observation is.
func FuzzOf(f *testing.F) {
	for seed := range uint64(300) {
		f.Add(binary.BigEndian.AppendUint64(nil, seed), binary.BigEndian.AppendUint64(nil, ^seed))
	}
	f.Fuzz(func(t *testing.T, data, specData []byte) {
		echo, observed := values.Random(specData), Observation{}
		echo.Generation = 7
		filler := observations(data)
		filler.Fill(&observed)
		filler.Fill(&echo.Status.Conditions)
		fillVerification(echo, &observed, filler)
		var routed bool
		observed.Route, routed = fillRoute(echo, &observed, filler)
		observed.NewestReplicaSet = ""
		var known bool
		if filler.Fill(&known); known {
			observed.NewestReplicaSet = newest
		}
		got := statusOf(echo, observed)

		conditions := map[string]metav1.Condition{}
		for _, c := range got.Conditions {
			conditions[c.Type] = c
			if c.ObservedGeneration != 7 || c.Reason == "" || (c.Status != metav1.ConditionTrue && c.Status != metav1.ConditionFalse && c.Type != echov1.ConditionRouted && c.Type != echov1.ConditionVerified) {
				t.Errorf("condition = %+v, want observedGeneration 7, a reason, and status True or False, except for Routed and Verified", c)
			}
			if utf8.RuneCountInString(c.Message) > maxMessage || strings.ContainsFunc(c.Message, func(r rune) bool { return !unicode.IsPrint(r) }) {
				t.Errorf("message of %s = %.80q, want at most %d printable characters", c.Type, c.Message, maxMessage)
			}
		}
		ready, available := conditions[echov1.ConditionReady], conditions[echov1.ConditionAvailable]
		progressing, degraded := conditions[echov1.ConditionProgressing], conditions[echov1.ConditionDegraded]
		if !equality.Semantic.DeepEqual(got.Overridden, observed.Overridden) || (conditions[echov1.ConditionOverridden].Status == metav1.ConditionTrue) != (len(observed.Overridden) > 0) {
			t.Errorf("Overridden = %v with %v, want %v", conditions[echov1.ConditionOverridden], got.Overridden, observed.Overridden)
		}
		want := 5
		if observed.Route != nil {
			want++
		}
		if observed.Verification != nil {
			want++
		}
		stalled, isStalled := conditions[echov1.ConditionStalled]
		if isStalled {
			want++
		}
		mayEnd := slices.Contains(waits, degraded.Reason)
		if lasts := degraded.Status == metav1.ConditionTrue && progressing.Status == metav1.ConditionFalse; isStalled && !lasts || !isStalled && lasts && !mayEnd {
			t.Errorf("Stalled = %v, want it only while Degraded is True and Progressing is False, and then unless it may end: %v", stalled, got.Conditions)
		}
		repeatsDegraded := stalled.Status == metav1.ConditionTrue && stalled.Reason == degraded.Reason && stalled.Message == degraded.Message
		if isStalled && !repeatsDegraded {
			t.Errorf("Stalled does not repeat reason and message of Degraded: %v", got.Conditions)
		}
		if len(got.Conditions) != want || len(conditions) != want {
			t.Fatalf("conditions = %v, want %d different ones", got.Conditions, want)
		}
		if is := conditions[echov1.ConditionRouted].Status == metav1.ConditionTrue; observed.Route != nil && is != routed {
			t.Errorf("Routed = %+v for %+v, want True: %t", conditions[echov1.ConditionRouted], observed.Route, routed)
		}

		oldPods := Assess(echo, observed).earlierPods
		if is := ready.Status == metav1.ConditionTrue; is != (isReady(observed, echo.Spec.Replicas) && oldPods == 0 && routed && isVerified(echo, observed, conditions[echov1.ConditionVerified])) {
			t.Errorf("Ready = %s (%.80q) for %+v", ready.Status, ready.Message, observed)
		}
		if ready.Status == metav1.ConditionTrue && (available.Status != metav1.ConditionTrue ||
			progressing.Status != metav1.ConditionFalse || degraded.Status != metav1.ConditionFalse || RolloutInFlight(got)) {
			t.Errorf("Ready is True, but the conditions are %v", got.Conditions)
		}
		if is, serves := available.Status == metav1.ConditionTrue, observed.Service != nil && got.AvailableReplicas > 0; is != serves {
			t.Errorf("Available = %s for %+v", available.Status, observed)
		}
		if degraded.Status == metav1.ConditionTrue && (ready.Reason != degraded.Reason || ready.Message != degraded.Message) {
			t.Errorf("Ready does not repeat reason and message of Degraded: %v", got.Conditions)
		}
		if len(observed.Rejected) > 0 && (degraded.Status != metav1.ConditionTrue || degraded.Reason != rejectionReason(observed.Rejected)) {
			t.Errorf("Degraded does not report the rejected children: %v", got.Conditions)
		}
		before := meta.FindStatusCondition(echo.Status.Conditions, echov1.ConditionProgressing)
		if ready.Reason == echov1.ReasonPodsNotReady && (before == nil || before.Reason != echov1.ReasonRolledOut || before.ObservedGeneration != 7) {
			t.Errorf("Ready = PodsNotReady, but the generation was not rolled out before: %v", before)
		}
		isPending := progressing.Status == metav1.ConditionTrue || ready.Reason == echov1.ReasonPodsNotReady || degraded.Reason == echov1.ReasonCrashLooping || mayEnd ||
			conditions[echov1.ConditionRouted].Status == metav1.ConditionUnknown || NeedsVerifierPods(observed) || conditions[echov1.ConditionVerified].Status == metav1.ConditionUnknown
		if wait := requeueSeconds(echo, observed); wait < 0 || wait > 0 && !isPending {
			t.Errorf("requeueAfter = %d for %v", wait, got.Conditions)
		}
		checkTimeLimit(t, echo, observed, got)
		checkTerminating(t, echo, observed)
		checkStable(t, echo, observed, got)

		progress := lastReady(observed.Pods)
		observed.Pods = slices.DeleteFunc(observed.Pods, func(p corev1.Pod) bool {
			return p.Labels[appsv1.DefaultDeploymentUniqueLabelKey] != observed.NewestReplicaSet
		})
		slices.Reverse(observed.Pods)
		if observed.Verification != nil {
			slices.Reverse(observed.Verification.Pods)
		}
		sameTime := oldPods == 0 && progress.Equal(lastReady(observed.Pods))
		if again := statusOf(echo, observed); sameTime && !equality.Semantic.DeepEqual(again, got) {
			t.Errorf("the status depends on pods of other ReplicaSets, or on the order of the pods: %v, %v", got, again)
		}
	})
}

// inProgress are the reasons that say that somebody else still works on something.
var inProgress = []string{echov1.ReasonRollingOut, echov1.ReasonRouteNotCreated, echov1.ReasonVerifying}

// checkTimeLimit checks that nothing is in progress, neither the rollout nor another condition, if no object changes.
func checkTimeLimit(t *testing.T, echo *echov1.Echo, observed Observation, got echov1.EchoStatus) {
	later := echo.DeepCopy()
	got.DeepCopyInto(&later.Status)
	for i := range later.Status.Conditions {
		later.Status.Conditions[i].LastTransitionTime = observed.Now
	}
	observed.Now = metav1.Unix(observed.Now.Unix()+5*deadlineSeconds+int64(children.StartSeconds(new(ptr.Deref(echo.Spec.Verify, echov1.Verify{})))), 0)
	after := statusOf(later, observed)
	for _, c := range after.Conditions {
		isInProgress := c.Type == echov1.ConditionProgressing && c.Status == metav1.ConditionTrue || slices.Contains(inProgress, c.Reason)
		if isInProgress || RolloutInFlight(after) {
			t.Errorf("%s is still in progress: was %v, is %v", c.Type, got.Conditions, after.Conditions)
		}
	}
}

// checkTerminating checks that a terminating Echo is neither Ready nor Progressing nor Degraded.
func checkTerminating(t *testing.T, echo *echov1.Echo, observed Observation) {
	terminating := echo.DeepCopy()
	terminating.DeletionTimestamp = &observed.Now
	got := reasons(statusOf(terminating, observed))
	if !strings.HasPrefix(got, "-Terminating ") || !strings.Contains(got, "Serving -Terminating -AsExpected -AsExpected") {
		t.Errorf("conditions of a terminating Echo = %s", got)
	}
}

// checkStable checks that the same observation has the same status again, at the latest after the time
// of the requeueAfter: the event of the status does not reconcile the Echo.
func checkStable(t *testing.T, echo *echov1.Echo, observed Observation, got echov1.EchoStatus) {
	t.Helper()
	if requeueSeconds(echo, observed) > 0 {
		return
	}
	again := echo.DeepCopy()
	again.Status.Conditions = nil
	for _, c := range got.Conditions {
		c.LastTransitionTime = observed.Now
		if before := meta.FindStatusCondition(echo.Status.Conditions, c.Type); before != nil && before.Status == c.Status {
			c.LastTransitionTime = before.LastTransitionTime
		}
		again.Status.Conditions = append(again.Status.Conditions, c)
	}
	if next := statusOf(again, observed); !equality.Semantic.DeepEqual(next, got) {
		t.Errorf("the status changes without a change: %v, then %v", got, next)
	}
}

// fillRoute returns an observation of the HTTPRoute, and whether every parent accepted it. It is nil
// if the Echo has no route.
func fillRoute(echo *echov1.Echo, observed *Observation, filler *randfill.Filler) (route *Route, routed bool) {
	if echo.Spec.Route == nil {
		return nil, true
	}
	object := &gatewayv1.HTTPRoute{ObjectMeta: metav1.ObjectMeta{Namespace: echo.Namespace, Generation: 3}}
	var state int32
	routed = true
	shop := gatewayv1.HTTPRoute{Spec: gatewayv1.HTTPRouteSpec{CommonRouteSpec: gatewayv1.CommonRouteSpec{ParentRefs: []gatewayv1.ParentReference{{Name: "public"}}}}}
	refs := children.ParentRefs(echo, children.Inputs{OverriddenRoutes: []gatewayv1.HTTPRoute{shop}})
	for _, ref := range refs {
		response := gatewayv1.RouteParentStatus{ParentRef: ref, Conditions: []metav1.Condition{
			{Type: accepted, Status: metav1.ConditionTrue, ObservedGeneration: 3}, {Type: resolvedRefs, Status: metav1.ConditionTrue, ObservedGeneration: 3},
		}}
		filler.Fill(&state)
		switch state {
		case 0, 1, 2:
		case 3:
			response.Conditions[0].Status = metav1.ConditionFalse
			response.Conditions[0].Reason = "NoMatchingParent"
			filler.Fill(&response.Conditions[0].Message)
		case 4:
			response.Conditions[1].ObservedGeneration = 2
		case 5:
			response.Conditions = nil
		}
		routed = routed && state <= 2
		object.Status.Parents = append(object.Status.Parents, response)
	}
	switch filler.Fill(&state); state {
	case 0:
		return &Route{Unresolved: &Failure{Reason: echov1.ReasonGatewayAPINotInstalled, Message: "m"}}, false
	case 1:
		return &Route{}, false
	case 2:
		if len(observed.Rejected) > 0 {
			return &Route{Object: object, Failure: &observed.Rejected[0]}, false
		}
	}
	return &Route{Object: object, ParentRefs: refs}, routed
}

// fillVerification adds a verifier of any state to the observation, if the Echo wants one.
func fillVerification(echo *echov1.Echo, observed *Observation, filler *randfill.Filler) {
	if echo.Spec.Verify == nil {
		return
	}
	var state, ready int32
	filler.Fill(&state)
	filler.Fill(&ready)
	v := &Verification{Outdated: state == 0, NotAllowed: state == 1}
	if v.Object = verifierDeployment(1, 1, min(ready, 1)); state == 2 {
		v.Object = verifierSet(3, 3, min(ready, 3))
	}
	if state == 3 && len(observed.Rejected) > 0 {
		v.Failure = &observed.Rejected[0]
	}
	for _, node := range []string{"a", "b", "c"} {
		pod := verifierPod(node, 0, "service", "route")
		filler.Fill(&pod.Status.ContainerStatuses[1].State)
		filler.Fill(&pod.Status.ContainerStatuses[1].Ready)
		filler.Fill(&pod.Status.ContainerStatuses[2].Started)
		v.Pods = append(v.Pods, pod)
	}
	observed.Verification = v
}

// isVerified reports whether the verification allows the Echo to be Ready.
func isVerified(echo *echov1.Echo, observed Observation, verified metav1.Condition) bool {
	v := observed.Verification
	if v == nil {
		return true
	}
	var numbers bool
	switch object := v.Object.(type) {
	case *appsv1.Deployment:
		numbers = object.Status.ReadyReplicas == 1
	case *appsv1.DaemonSet:
		numbers = object.Status.NumberReady == 3
	}
	if decided := !v.Outdated && !v.NotAllowed && v.Failure == nil && numbers; decided != (verified.Status == metav1.ConditionTrue) {
		return verified.Status != metav1.ConditionTrue // FuzzOf reports that Ready differs.
	}
	return verified.Status == metav1.ConditionTrue || verified.Status == metav1.ConditionUnknown && Assess(echo, observed).previous(echov1.ConditionReady).Status == metav1.ConditionTrue
}

// rejectionReason returns the expected reason if children were rejected.
func rejectionReason(rejected []Failure) string {
	for _, reason := range []string{echov1.ReasonConflict, echov1.ReasonRejected} {
		if slices.ContainsFunc(rejected, func(f Failure) bool { return f.Reason == reason }) {
			return reason
		}
	}
	return echov1.ReasonRepeatedDrift
}

// isReady restates the criteria of Ready in one expression.
func isReady(observed Observation, desired int32) bool {
	if observed.Deployment == nil || observed.Service == nil || len(observed.Rejected)+len(observed.Waiting) > 0 {
		return false
	}
	status := observed.Deployment.Status
	return status.ObservedGeneration >= observed.Deployment.Generation &&
		slices.ContainsFunc(status.Conditions, func(c appsv1.DeploymentCondition) bool {
			return c.Type == appsv1.DeploymentProgressing && c.Reason == "NewReplicaSetAvailable"
		}) &&
		status.UpdatedReplicas >= desired && status.Replicas == status.UpdatedReplicas && status.AvailableReplicas >= desired
}

// observations fills an Observation with any combination of values that controllers and
// kubelets write, and with values that they never write.
func observations(data []byte) *randfill.Filler {
	filler := randfill.NewFromGoFuzz(data).NilChance(0.3).NumElements(0, 3)
	return filler.Funcs(deploymentFuncs()...).Funcs(podFuncs()...).Funcs(
		func(i *int32, c randfill.Continue) { *i = c.Int31n(6) },
		func(i *int64, c randfill.Continue) { *i = c.Int63n(3) },
		func(s *string, c randfill.Continue) {
			*s = pick(c, "", "ImagePullBackOff", "CrashLoopBackOff", "Unschedulable", "ReplicaSetUpdated", "ErrImagePull: ErrImagePull: no",
				"two\nlines", "\x1b[31m", "\x00", string(make([]rune, 3000)))
		},
		func(f *[]Failure, c randfill.Continue) {
			if c.Intn(4) == 0 {
				*f = make([]Failure, 1+c.Intn(3))
				for i := range *f {
					c.Fill(&(*f)[i])
				}
			}
		},
		func(f *Failure, c randfill.Continue) {
			f.Reason = []string{echov1.ReasonConflict, echov1.ReasonRejected, echov1.ReasonRepeatedDrift}[c.Intn(3)]
			c.Fill(&f.Message)
			f.Message = "m" + f.Message
		},
		func(*Route, randfill.Continue) {},        // fillRoute fills it.
		func(*Verification, randfill.Continue) {}, // fillVerification fills it.
		func(s *metav1.Time, c randfill.Continue) { *s = metav1.Unix(c.Int63n(2*crashWindowSeconds), 0) },
		// Of the previous conditions, only Progressing and Ready matter.
		func(list *[]metav1.Condition, c randfill.Continue) {
			if reason := pick(c, "", echov1.ReasonRollingOut, echov1.ReasonRolledOut, echov1.ReasonProgressDeadlineExceeded); reason != "" {
				*list = []metav1.Condition{{Type: echov1.ConditionProgressing, Status: metav1.ConditionFalse, Reason: reason, ObservedGeneration: 6 + c.Int63n(2)}}
				if reason == echov1.ReasonRollingOut {
					(*list)[0].Status = metav1.ConditionTrue
				}
				c.Fill(&(*list)[0].LastTransitionTime)
			}
			if c.Bool() {
				*list = append(*list, metav1.Condition{Type: echov1.ConditionReady, Status: metav1.ConditionTrue, ObservedGeneration: 6 + c.Int63n(2)})
			}
		},
		func(w *[]string, c randfill.Continue) {
			if c.Intn(8) == 0 {
				*w = []string{"m" + pick(c, "", "\x00")}
			}
		},
	)
}

// deploymentFuncs fill Deployments and their conditions.
func deploymentFuncs() []any {
	return []any{
		func(d *appsv1.Deployment, c randfill.Continue) {
			c.Fill(&d.Generation)
			c.Fill(&d.Status)
			if c.Bool() { // Similar to a healthy Deployment.
				pods := c.Int31n(6)
				d.Status.Replicas, d.Status.UpdatedReplicas, d.Status.AvailableReplicas = pods, pods, pods+c.Int31n(2)
				d.Status.ObservedGeneration = d.Generation
			}
			// The list is a map by type: the API server allows each type once.
			d.Status.Conditions = slices.CompactFunc(d.Status.Conditions, func(a, b appsv1.DeploymentCondition) bool { return a.Type == b.Type })
			if len(d.Status.Conditions) == 3 {
				d.Status.Conditions = d.Status.Conditions[:2]
			}
		},
		func(d *appsv1.DeploymentCondition, c randfill.Continue) {
			d.Type = []appsv1.DeploymentConditionType{appsv1.DeploymentProgressing, appsv1.DeploymentProgressing, appsv1.DeploymentReplicaFailure}[c.Intn(3)]
			d.Status = []corev1.ConditionStatus{corev1.ConditionTrue, corev1.ConditionFalse, corev1.ConditionUnknown}[c.Intn(3)]
			d.Reason = pick(c, newReplicaSetAvailable, newReplicaSetAvailable, "ReplicaSetUpdated")
			c.Fill(&d.Message)
		},
	}
}

// podFuncs fill pods and their containers.
func podFuncs() []any {
	names := 0
	return []any{
		func(p *corev1.Pod, c randfill.Continue) {
			p.Name = string(rune('a' + names)) // Names are unique in a namespace.
			names++
			p.Labels = map[string]string{appsv1.DefaultDeploymentUniqueLabelKey: pick(c, "", "old", newest, newest)}
			p.Status.Phase = []corev1.PodPhase{"", corev1.PodPending, corev1.PodRunning, corev1.PodSucceeded, corev1.PodFailed}[c.Intn(5)]
			if c.Intn(4) == 0 {
				c.Fill(&p.DeletionTimestamp)
			}
			c.Fill(&p.Status.Conditions)
			c.Fill(&p.Status.InitContainerStatuses)
			c.Fill(&p.Status.ContainerStatuses)
		},
		func(s *corev1.ContainerStatus, c randfill.Continue) {
			c.Fill(&s.Name)
			c.Fill(&s.Ready)
			c.Fill(&s.RestartCount)
			c.Fill(&s.State)
			c.Fill(&s.LastTerminationState)
		},
		func(w *corev1.ContainerStateWaiting, c randfill.Continue) {
			w.Reason = pick(c, slices.Sorted(maps.Keys(waitingReasons))...)
			c.Fill(&w.Message)
		},
		func(p *corev1.PodConditionType, c randfill.Continue) {
			*p = []corev1.PodConditionType{corev1.PodScheduled, corev1.PodReady}[c.Intn(2)]
		},
		func(s *corev1.ConditionStatus, c randfill.Continue) {
			*s = []corev1.ConditionStatus{corev1.ConditionTrue, corev1.ConditionFalse}[c.Intn(2)]
		},
	}
}

// pick returns one of the choices, or sometimes a random string.
func pick(c randfill.Continue, choices ...string) string {
	if c.Intn(8) == 0 {
		return c.String(0)
	}
	return choices[c.Intn(len(choices))]
}
