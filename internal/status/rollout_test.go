package status

import (
	"cmp"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/children"
)

const (
	inFlight = "-RollingOut +Serving +RollingOut -AsExpected -AsExpected"
	allReady = "+Ready +Serving -RolledOut -AsExpected -AsExpected"
)

// signed returns the reason of a condition, prefixed with + for True and - for False.
func signed(c metav1.Condition) string {
	return map[metav1.ConditionStatus]string{metav1.ConditionTrue: "+", metav1.ConditionFalse: "-"}[c.Status] + c.Reason
}

// reasons returns the reasons of the conditions, as signed returns them.
func reasons(status echov1.EchoStatus) string {
	var got []string
	for _, c := range status.Conditions {
		got = append(got, signed(c))
	}
	return strings.Join(got, " ")
}

// expectReasons checks the conditions, and after which time the status has to be computed again.
func expectReasons(t *testing.T, echo *echov1.Echo, observed Observation, want string, requeueAfter int64) {
	t.Helper()
	if got := reasons(statusOf(echo, observed)); got != want {
		t.Errorf("conditions = %s, want %s", got, want)
	}
	if got := requeueSeconds(echo, observed); got != requeueAfter {
		t.Errorf("requeueAfter = %d, want %d", got, requeueAfter)
	}
}

// rollingOut is the Deployment controller's condition while it times a rollout.
var rollingOut = appsv1.DeploymentCondition{
	Type: appsv1.DeploymentProgressing, Status: corev1.ConditionTrue, Reason: "ReplicaSetUpdated",
}

// paused is the Deployment controller's condition while an external writer has paused the rollout.
var paused = appsv1.DeploymentCondition{
	Type: appsv1.DeploymentProgressing, Status: corev1.ConditionUnknown, Reason: "DeploymentPaused",
}

// completed is the Deployment controller's condition after a rollout.
var completed = appsv1.DeploymentCondition{Type: appsv1.DeploymentProgressing, Status: corev1.ConditionTrue, Reason: newReplicaSetAvailable}

func unavailableFor(seconds int64) appsv1.DeploymentCondition {
	return appsv1.DeploymentCondition{
		Type: appsv1.DeploymentAvailable, Status: corev1.ConditionFalse, LastTransitionTime: metav1.Unix(now.Unix()-seconds, 0),
	}
}

func withoutConditions(d *appsv1.Deployment) *appsv1.Deployment {
	d.Status.Conditions = nil
	return d
}

// updated returns the Deployment with a condition Progressing that changed so many seconds ago.
func updated(d *appsv1.Deployment, seconds int64) *appsv1.Deployment {
	d.Status.Conditions[0].LastUpdateTime = metav1.Unix(now.Unix()-seconds, 0)
	return d
}

const stallSeconds = int64(stallTime / time.Second)

func TestScaleUpIsInFlightUntilEveryPodWasAvailableOrItsTimeIsOver(t *testing.T) {
	const (
		lost = "-PodsNotReady +Serving -RolledOut -AsExpected -AsExpected"
		// The newest spec is rolled out, so Progressing does not change.
		lostForLong = "-PodsNotReady +Serving -RolledOut +PodsNotReady -AsExpected"
		exceeded    = "-ProgressDeadlineExceeded +Serving -ProgressDeadlineExceeded +ProgressDeadlineExceeded -AsExpected"
	)
	rolling := func(seconds int64) *echov1.Echo {
		return withProgressing(newEcho(), metav1.ConditionTrue, echov1.ReasonRollingOut, seconds)
	}
	rolledOut := withProgressing(newEcho(), metav1.ConditionFalse, echov1.ReasonRolledOut, 3600)
	failed := withProgressing(newEcho(), metav1.ConditionFalse, echov1.ReasonProgressDeadlineExceeded, 1)
	earlier := withProgressing(newEcho(), metav1.ConditionFalse, echov1.ReasonRolledOut, 3600)
	earlier.Generation++
	earlierFailed := withProgressing(newEcho(), metav1.ConditionFalse, echov1.ReasonProgressDeadlineExceeded, 3600)
	earlierFailed.Generation++
	earlierInFlight := rolling(3600)
	earlierInFlight.Generation++

	for name, test := range map[string]struct {
		echo         *echov1.Echo
		deployment   *appsv1.Deployment
		want         string
		requeueAfter int64
	}{
		"without a status, one pod is available":        {newEcho(), deployment(2, 2, 1, 1), inFlight, deadlineSeconds},
		"after another generation":                      {earlier, deployment(2, 2, 1, 1), inFlight, deadlineSeconds},
		"after another generation that failed":          {earlierFailed, deployment(2, 2, 1, 1), inFlight, deadlineSeconds},
		"after another generation in flight":            {earlierInFlight, deployment(2, 2, 1, 1), inFlight, deadlineSeconds},
		"while the ReplicaSet creates pods":             {rolling(10), deployment(1, 1, 1, 1), inFlight, 110},
		"one second before its time is over":            {rolling(119), deployment(2, 2, 1, 1), inFlight, 1},
		"when its time is over":                         {rolling(120), deployment(2, 2, 1, 1), exceeded, stallSeconds},
		"after its time was over":                       {failed, deployment(2, 2, 1, 1), exceeded, stallSeconds},
		"while its controller replaces rejected pods":   {rolling(120), updated(deployment(2, 2, 1, 1, rollingOut), 1), exceeded, stallSeconds},
		"while the Deployment is paused":                {rolling(120), deployment(2, 2, 1, 1, paused), exceeded, stallSeconds},
		"without the Deployment's condition":            {rolling(120), withoutConditions(deployment(2, 2, 1, 1)), exceeded, stallSeconds},
		"while the Deployment controller lags":          {rolling(119), notObserved(deployment(2, 2, 1, 1)), inFlight, 1},
		"while the Deployment controller does nothing":  {rolling(120), notObserved(deployment(2, 2, 1, 1)), exceeded, stallSeconds},
		"after all pods became available":               {rolling(10), deployment(2, 2, 2, 2), allReady, 0},
		"after all pods became available, but too late": {failed, deployment(2, 2, 2, 2), allReady, 0},
		"after a pod became unavailable again":          {rolledOut, deployment(2, 2, 1, 1), lost, deadlineSeconds},
		"after a pod was deleted":                       {rolledOut, deployment(1, 1, 1, 1), lost, deadlineSeconds},
		"while a pod is lost":                           {rolledOut, deployment(2, 2, 1, 1, completed, unavailableFor(119)), lost, 1},
		"after a pod was lost for long":                 {rolledOut, deployment(2, 2, 1, 1, completed, unavailableFor(120)), lostForLong, stallSeconds},
		"after an old pod appeared":                     {rolledOut, deployment(3, 2, 2, 2), inFlight, deadlineSeconds},
	} {
		t.Run(name, func(t *testing.T) {
			expectReasons(t, test.echo, Observation{Deployment: test.deployment, Service: &corev1.Service{}, Now: now}, test.want, test.requeueAfter)
		})
	}
}

func TestScaleUpFailsTwoMinutesAfterItsLastProgress(t *testing.T) {
	ready := func(secondsAgo int64) corev1.Pod {
		return corev1.Pod{ObjectMeta: named("p"), Status: corev1.PodStatus{Conditions: []corev1.PodCondition{
			{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Unix(now.Unix()-secondsAgo, 0)},
		}}}
	}
	notReady := ready(1)
	notReady.Status.Conditions[0].Status = corev1.ConditionFalse
	deleted := ready(1)
	deleted.DeletionTimestamp = new(metav1.Unix(now.Unix()+3600, 0))

	for name, test := range map[string]struct {
		replicas int32
		started  int64 // seconds ago
		pods     []corev1.Pod
		// left is the number of seconds that are left, or 0.
		left int64
	}{
		"pods become ready steadily":                     {5, 150, []corev1.Pod{ready(500), ready(110), ready(70), ready(30)}, 90},
		"no pod has become ready for two minutes":        {5, 240, []corev1.Pod{ready(500), ready(160), ready(120)}, 0},
		"every ready pod was ready before it started":    {5, 110, []corev1.Pod{ready(500)}, 10},
		"a pod is no longer ready":                       {5, 119, []corev1.Pod{ready(500), notReady}, 1},
		"a ready pod is being deleted":                   {5, 119, []corev1.Pod{ready(500), deleted}, 1},
		"pods become ready repeatedly for four minutes":  {2, 239, []corev1.Pod{ready(1), ready(2)}, 1},
		"pods have become ready repeatedly for too long": {2, 240, []corev1.Pod{ready(1), ready(2)}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			echo := newEcho()
			echo.Spec.Replicas = test.replicas
			echo = withProgressing(echo, metav1.ConditionTrue, echov1.ReasonRollingOut, test.started)
			observed := Observation{
				Deployment: deployment(test.replicas, test.replicas, 1, 1), Service: &corev1.Service{}, Pods: test.pods, Now: now,
			}
			progressing := meta.FindStatusCondition(statusOf(echo, observed).Conditions, echov1.ConditionProgressing)
			if got, want := progressing.Status == metav1.ConditionTrue, test.left > 0; got != want {
				t.Errorf("Progressing = %s %s, want True: %t", progressing.Status, progressing.Reason, want)
			}
			if got, want := requeueSeconds(echo, observed), cmp.Or(test.left, stallSeconds); got != want {
				t.Errorf("requeueAfter = %d, want %d", got, want)
			}
		})
	}
}

func TestEchoIsReadyAfterPodsOfEarlierSpecsHaveStopped(t *testing.T) {
	pod := func(hash string, phase corev1.PodPhase) corev1.Pod {
		p := corev1.Pod{ObjectMeta: named(hash), Status: corev1.PodStatus{Phase: phase}}
		p.Labels = map[string]string{appsv1.DefaultDeploymentUniqueLabelKey: hash, children.ResponseLabel: hash}
		return p
	}
	sameResponse := func(p corev1.Pod) corev1.Pod {
		p.Labels = map[string]string{appsv1.DefaultDeploymentUniqueLabelKey: hashOf(&p), children.ResponseLabel: newest}
		return p
	}
	stopping := func(hash string, deleted, grace int64) corev1.Pod { // deleted is in seconds ago
		p := pod(hash, corev1.PodRunning)
		p.DeletionTimestamp, p.DeletionGracePeriodSeconds = new(metav1.Unix(now.Unix()-deleted+grace, 0)), new(grace)
		return p
	}
	old := pod("old", corev1.PodRunning)
	running := []corev1.Pod{pod(newest, corev1.PodRunning), pod(newest, corev1.PodRunning)}
	for name, test := range map[string]struct {
		pods           []corev1.Pod
		rolledOut      int64 // seconds ago
		want           string
		requeueAfter   int64
		stillReachable string
	}{
		"no other pod":                            {running, 0, allReady, 0, ""},
		"an old pod stops":                        {append(running, stopping("old", 5, 30)), 5, inFlight, 40, "; clients may still reach 1 of an earlier spec until they have stopped"},
		"two old pods stop":                       {append(running, stopping("old", 5, 30), stopping("old", 3, 30)), 5, inFlight, 42, "reach 2 of"},
		"an old pod has a moment left":            {append(running, stopping("old", 44, 30)), 60, inFlight, 1, ""},
		"an old pod should have stopped":          {append(running, stopping("old", 45, 30)), 60, allReady, 0, ""},
		"an old pod on a lost node":               {append(running, stopping("old", 130, 30)), 200, allReady, 0, ""},
		"an old pod has a short grace period":     {append(running, stopping("old", 2, 5)), 5, inFlight, 18, ""},
		"an old pod has twice the grace period":   {append(running, stopping("old", 0, 60)), 5, inFlight, 75, ""},
		"twice the grace period is over":          {append(running, stopping("old", 75, 60)), 80, allReady, 0, ""},
		"an old pod has an hour":                  {append(running, stopping("old", 1, 3600)), 5, inFlight, 3614, ""},
		"the clock is late":                       {append(running, stopping("old", -10, 30)), -10, inFlight, 55, ""},
		"the clock is fast":                       {append(running, stopping("old", 14, 30)), 14, inFlight, 31, ""},
		"a pod of the newest spec stops":          {append(running, stopping(newest, 5, 30)), 5, allReady, 0, ""},
		"an evicted old pod remains":              {append(running, pod("old", corev1.PodFailed)), 0, allReady, 0, ""},
		"an old pod stops beside an evicted":      {append(running, pod("old", corev1.PodFailed), stopping("old", 5, 30)), 5, inFlight, 40, ""},
		"the cache lacks a deletion":              {append(running, old), 1, inFlight, 119, "reach 1 of"},
		"the cache lacks three deletions":         {append(running, old, old, old), 1, inFlight, 119, "reach 3 of"},
		"the cache lacks every new pod":           {[]corev1.Pod{old}, 100, inFlight, 20, "reach 1 of"},
		"an old pod is never deleted":             {append(running, old), 120, allReady, 0, ""},
		"an old pod with the same response":       {append(running, sameResponse(old)), 1, inFlight, 119, "reach 1 of"},
		"an old pod with the same response stops": {append(running, sameResponse(stopping("old", 5, 30))), 5, inFlight, 40, ""},
		"a pod that the operator did not declare": {append(running, pod("", corev1.PodRunning)), 1, allReady, 0, ""},
		"every pod is deleted":                    {[]corev1.Pod{stopping(newest, 5, 30)}, 5, allReady, 0, ""},
		"every pod is deleted, of an old spec":    {[]corev1.Pod{stopping("old", 5, 30)}, 5, inFlight, 40, ""},
	} {
		t.Run(name, func(t *testing.T) {
			rolledOut := updated(deployment(2, 2, 2, 2), test.rolledOut)
			rolledOut.Spec.Template.Labels = map[string]string{children.ResponseLabel: newest}
			observed := Observation{Deployment: rolledOut, Service: &corev1.Service{}, Pods: test.pods, Now: now}
			expectReasons(t, newEcho(), observed, test.want, test.requeueAfter)
			if got := meta.FindStatusCondition(statusOf(newEcho(), observed).Conditions, echov1.ConditionReady).Message; !strings.Contains(got, test.stillReachable) {
				t.Errorf("message = %q, want %q", got, test.stillReachable)
			}
		})
	}
}

func TestExceededDeadlineNamesTheProgress(t *testing.T) {
	echo := withProgressing(newEcho(), metav1.ConditionTrue, echov1.ReasonRollingOut, 120)
	const command = " (its events: kubectl describe -n op-demo deployments,replicasets,pods -l kkloud.io/echo=hello)"
	replicaSetRejected := notObserved(deployment(1, 1, 1, 1))
	replicaSetRejected.Status.Conditions = append(replicaSetRejected.Status.Conditions,
		appsv1.DeploymentCondition{Type: "Other", Reason: replicaSetCreateError, Message: "exceeded quota: one"})
	for want, observed := range map[string]Observation{
		"Deployment echo-hello: 2 of 2 pods run the newest spec, 1 are available" + command:                   {Deployment: deployment(2, 2, 1, 1), Service: &corev1.Service{}},
		"Deployment echo-hello does not exist" + command:                                                      {Service: &corev1.Service{}},
		"Service echo-hello does not exist" + command:                                                         {Deployment: deployment(2, 2, 2, 2)},
		"one is being deleted; so is two":                                                                     {Waiting: []string{"one is being deleted", "so is two"}},
		"exceeded quota: one (when that is solved: kubectl rollout restart -n op-demo deployment echo-hello)": {Deployment: replicaSetRejected, Service: &corev1.Service{}},
		"the Deployment controller has not observed the newest spec of Deployment echo-hello" + command: {
			Deployment: notObserved(deployment(2, 2, 2, 2)), Service: &corev1.Service{}},
	} {
		observed.Now = now
		status := statusOf(echo, observed)
		for _, conditionType := range []string{echov1.ConditionReady, echov1.ConditionProgressing, echov1.ConditionDegraded} {
			if got := meta.FindStatusCondition(status.Conditions, conditionType); got.Reason != echov1.ReasonProgressDeadlineExceeded || got.Message != "The rollout has not completed in time: "+want {
				t.Errorf("%s = %s %q, want ProgressDeadlineExceeded and %q", conditionType, got.Reason, got.Message, want)
			}
		}
	}
}

func TestTerminatingEchoIsNeitherReadyNorInFlight(t *testing.T) {
	echo := withVerify(newEcho())
	echo.DeletionTimestamp = &now
	echo.Status.Overridden = []echov1.OverriddenChild{{Kind: "Deployment", Fields: []string{"spec.a"}}}
	for name, test := range map[string]struct {
		observed Observation
		want     string
	}{
		"the verifier has just started": {
			Observation{Deployment: deployment(2, 2, 2, 2), Service: &corev1.Service{}, Now: now, Verification: &Verification{
				Object: verifierDeployment(1, 1, 0), Pods: pods(verifierPod("a", 1, "service")),
			}},
			"-Terminating +Serving -Terminating -AsExpected +ChangedByAdmission Terminating",
		},
		"all pods serve": {
			Observation{Deployment: deployment(2, 2, 2, 2), Service: &corev1.Service{}},
			"-Terminating +Serving -Terminating -AsExpected +ChangedByAdmission",
		},
		"the Service is deleted": {
			Observation{Deployment: deployment(2, 2, 2, 2)},
			"-Terminating -NotServing -Terminating -AsExpected +ChangedByAdmission",
		},
		"a failure is ignored": {
			Observation{Deployment: deployment(2, 2, 0, 0), Service: &corev1.Service{}, Pods: []corev1.Pod{unschedulable}, NewestReplicaSet: newest},
			"-Terminating -NotServing -Terminating -AsExpected +ChangedByAdmission",
		},
	} {
		status := statusOf(echo, test.observed)
		if got := reasons(status); got != test.want {
			t.Errorf("%s: conditions = %s, want %s", name, got, test.want)
		}
		if got := meta.FindStatusCondition(status.Conditions, echov1.ConditionReady).Message; got != "The Echo is being deleted" {
			t.Errorf("%s: message of Ready = %q", name, got)
		}
		if RolloutInFlight(status) || requeueSeconds(echo, test.observed) != 0 || Assess(echo, test.observed).NeedsNewestReplicaSet() {
			t.Errorf("%s: the status may change without a change of an object", name)
		}
	}
}

func TestOverriddenNamesChildrenAndFields(t *testing.T) {
	overridden := []echov1.OverriddenChild{
		{Kind: "Deployment", Fields: []string{"spec.template.spec.containers[0].image", "spec.a"}, Hash: "1"},
		{Kind: "Service", Fields: []string{"spec.b"}, Hash: "2"},
	}
	observed := Observation{Deployment: deployment(2, 2, 2, 2), Service: &corev1.Service{}, Overridden: overridden}
	status := statusOf(newEcho(), observed)
	if got, want := reasons(status), "+Ready +Serving -RolledOut -AsExpected +ChangedByAdmission"; got != want {
		t.Errorf("conditions = %s, want %s", got, want)
	}
	want := "Deployment: an admission policy or webhook changed spec.template.spec.containers[0].image, spec.a; " +
		"Service: an admission policy or webhook changed spec.b"
	if got := meta.FindStatusCondition(status.Conditions, echov1.ConditionOverridden).Message; got != want {
		t.Errorf("message of Overridden = %q, want %q", got, want)
	}
	observed.Overridden = nil
	status = statusOf(newEcho(), observed)
	if got := meta.FindStatusCondition(status.Conditions, echov1.ConditionOverridden).Message; got != "No child was changed by admission" || status.Overridden != nil {
		t.Errorf("message of Overridden = %q with status.overridden = %v, want no change", got, status.Overridden)
	}
}

func TestRejectionsAreJoinedUnderTheMostSevereReason(t *testing.T) {
	for _, test := range []struct{ reasons, want string }{
		{"RepeatedDrift", "RepeatedDrift"}, {"RepeatedDrift Rejected", "Rejected"}, {"Rejected RepeatedDrift", "Rejected"},
		{"Rejected Conflict", "Conflict"}, {"RepeatedDrift Conflict Rejected", "Conflict"},
	} {
		var observed Observation
		for reason := range strings.FieldsSeq(test.reasons) {
			observed.Rejected = append(observed.Rejected, Failure{reason, "of " + reason})
		}
		degraded := meta.FindStatusCondition(statusOf(newEcho(), observed).Conditions, echov1.ConditionDegraded)
		if message := "of " + strings.Join(strings.Fields(test.reasons), "; of "); degraded.Reason != test.want || degraded.Message != message {
			t.Errorf("%s: Degraded = %s %q, want %s %q", test.reasons, degraded.Reason, degraded.Message, test.want, message)
		}
	}
}

// The Deployment controller may report the rejected pods of a rollout before it counts the first one.
func TestAQuotaWithoutRoomIsAFailureAfterAMoment(t *testing.T) {
	const (
		rejected = "-PodsRejected +Serving +RollingOut +PodsRejected -AsExpected"
		overdue  = "-PodsRejected +Serving -ProgressDeadlineExceeded +PodsRejected -AsExpected +PodsRejected"
	)
	for name, test := range map[string]struct {
		seconds      int64
		updated      int32
		want         string
		requeueAfter int64
	}{
		"at the start":                  {0, 0, inFlight, 10},
		"a moment later":                {9, 0, inFlight, 1},
		"when no pod was created":       {10, 0, rejected, 110},
		"when one pod was created":      {10, 1, inFlight, 110},
		"when the rollout is overdue":   {120, 1, overdue, 0},
		"when it is, and without a pod": {120, 0, overdue, 0},
	} {
		t.Run(name, func(t *testing.T) {
			echo := withProgressing(newEcho(), metav1.ConditionTrue, echov1.ReasonRollingOut, test.seconds)
			rejecting := deployment(2+test.updated, test.updated, 2, 2, rollingOut, replicaFailure)
			expectReasons(t, echo, Observation{Deployment: rejecting, Service: &corev1.Service{}, Now: now}, test.want, test.requeueAfter)
		})
	}
}
