package status

import (
	"fmt"
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

func newEcho() *echov1.Echo {
	return &echov1.Echo{
		ObjectMeta: metav1.ObjectMeta{Namespace: "op-demo", Name: "hello", Generation: 7},
		Spec:       echov1.EchoSpec{Message: "hi", Replicas: 2, Port: 80, TargetPort: 5678},
	}
}

// withProgressing returns the Echo with a status for its generation in which the condition Progressing
// has had this status for so many seconds.
func withProgressing(echo *echov1.Echo, status metav1.ConditionStatus, reason string, seconds int64) *echov1.Echo {
	return withCondition(echo, echov1.ConditionProgressing, status, reason, seconds)
}

// withCondition adds a condition of the Echo's generation that has had this status for so many seconds.
func withCondition(echo *echov1.Echo, conditionType string, status metav1.ConditionStatus, reason string, seconds int64) *echov1.Echo {
	echo.Status.Conditions = append(echo.Status.Conditions, metav1.Condition{
		Type: conditionType, Status: status, Reason: reason, ObservedGeneration: echo.Generation,
		LastTransitionTime: metav1.Unix(now.Unix()-seconds, 0),
	})
	return echo
}

// deployment returns a Deployment of generation 3 whose status describes that generation. Its
// rollout is complete, unless one of the conditions contradicts.
func deployment(total, updated, ready, available int32, conditions ...appsv1.DeploymentCondition) *appsv1.Deployment {
	conditions = append(conditions, appsv1.DeploymentCondition{
		Type: appsv1.DeploymentProgressing, Status: corev1.ConditionTrue, Reason: "NewReplicaSetAvailable",
	})
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Generation: 3},
		Status: appsv1.DeploymentStatus{
			ObservedGeneration: 3,
			Replicas:           total, UpdatedReplicas: updated, ReadyReplicas: ready, AvailableReplicas: available,
			Conditions: conditions,
		},
	}
}

// notObserved returns the Deployment with a status of the generation before.
func notObserved(d *appsv1.Deployment) *appsv1.Deployment {
	d.Status.ObservedGeneration--
	return d
}

// newest is the label pod-template-hash of the newest ReplicaSet.
const newest = "abc"

func named(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, Labels: map[string]string{appsv1.DefaultDeploymentUniqueLabelKey: newest}}
}

func waiting(name, reason, message string) corev1.Pod {
	return corev1.Pod{
		ObjectMeta: named(name),
		Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{
			Name:  "echo",
			State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}},
		}}},
	}
}

// now is the time of every observation. The containers of crashed pods terminated one minute before.
var now = metav1.Unix(1_000_000, 0)

func crashed(pod corev1.Pod, restarts, code int32, log string) corev1.Pod {
	pod.Status.ContainerStatuses[0].RestartCount = restarts
	pod.Status.ContainerStatuses[0].LastTerminationState.Terminated = &corev1.ContainerStateTerminated{
		ExitCode: code, Message: log, FinishedAt: metav1.Unix(now.Unix()-60, 0),
	}
	return pod
}

var (
	replicaFailure = appsv1.DeploymentCondition{
		Type: appsv1.DeploymentReplicaFailure, Status: corev1.ConditionTrue, Message: "exceeded quota: small",
	}
	deadlineCondition = appsv1.DeploymentCondition{
		Type: appsv1.DeploymentProgressing, Status: corev1.ConditionFalse,
	}
	unschedulable = corev1.Pod{
		ObjectMeta: named("p"),
		Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{
			Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: "0/1 nodes",
		}}},
	}
	scheduled   = corev1.Pod{ObjectMeta: named("a"), Spec: corev1.PodSpec{NodeName: "n"}}
	terminating = func() corev1.Pod {
		pod := waiting("a", "ImagePullBackOff", "terminating")
		pod.DeletionTimestamp = &metav1.Time{}
		return pod
	}()
)

// conditionTests describe observations of an Echo whose generation was rolled out before.
var conditionTests = map[string]struct {
	observed Observation
	ready    string
	// The reasons of Ready, Available, Progressing, Degraded, Overridden and, while a failure lasts, Stalled, prefixed with + for True and - for False.
	want    string
	message string // Part of Ready's message.
}{
	"no children": {
		Observation{}, "0/2",
		"-RollingOut -NotServing +RollingOut -AsExpected -AsExpected", "0 of 2 pods run the newest spec, 0 are",
	},
	"all pods serve": {
		Observation{Deployment: deployment(2, 2, 2, 2), Service: &corev1.Service{}}, "2/2",
		"+Ready +Serving -RolledOut -AsExpected -AsExpected", "Every pod serves the newest spec",
	},
	"the Deployment status describes an earlier spec": {
		Observation{Deployment: notObserved(deployment(2, 2, 2, 2, replicaFailure, deadlineCondition)), Service: &corev1.Service{}}, "2/2",
		"-RollingOut +Serving +RollingOut -AsExpected -AsExpected", "0 of 2 pods run the newest spec",
	},
	"the first pods are starting": {
		Observation{Deployment: deployment(2, 2, 1, 1, appsv1.DeploymentCondition{
			Type: appsv1.DeploymentProgressing, Status: corev1.ConditionTrue, Reason: "ReplicaSetUpdated",
		}), Service: &corev1.Service{}}, "1/2",
		"-RollingOut +Serving +RollingOut -AsExpected -AsExpected", "2 of 2 pods run the newest spec, 1 are available",
	},
	"an old pod is left": {
		Observation{Deployment: deployment(3, 2, 3, 3), Service: &corev1.Service{}}, "3/2",
		"-RollingOut +Serving +RollingOut -AsExpected -AsExpected", "2 of 2 pods run the newest spec",
	},
	"a pod is not ready": {
		Observation{Deployment: deployment(2, 2, 1, 1), Service: &corev1.Service{}}, "1/2",
		"-PodsNotReady +Serving -RolledOut -AsExpected -AsExpected", "1 of 2 pods are available",
	},
	"a child of an earlier Echo is being deleted": {
		Observation{Deployment: deployment(2, 2, 2, 2), Service: &corev1.Service{}, Waiting: []string{"Deployment echo-hello of an earlier Echo"}}, "2/2",
		"-RollingOut +Serving +RollingOut -AsExpected -AsExpected", "Deployment echo-hello of an earlier Echo",
	},
	"the Service is missing": {
		Observation{Deployment: deployment(2, 2, 2, 2)}, "2/2",
		"-RollingOut -NotServing +RollingOut -AsExpected -AsExpected", "",
	},
	"two children are rejected": {
		Observation{Deployment: deployment(2, 2, 2, 2), Rejected: []Failure{{"Rejected", "one"}, {"Conflict", "two"}}}, "2/2",
		"-Conflict -NotServing +RollingOut +Conflict -AsExpected", "one; two",
	},
	"a quota rejects the pods": {
		Observation{Deployment: deployment(1, 1, 1, 1, replicaFailure), Service: &corev1.Service{}}, "1/2",
		"-PodsRejected +Serving -RolledOut +PodsRejected -AsExpected +PodsRejected", "exceeded quota: small",
	},
	"a quota has room for one new pod, while old ones are replaced": {
		Observation{Deployment: deployment(3, 1, 2, 2, rollingOut, replicaFailure), Service: &corev1.Service{}}, "2/2",
		"-RollingOut +Serving +RollingOut -AsExpected -AsExpected", "1 of 2 pods run the newest spec, 2 are available; the others wait: exceeded quota: small",
	},
	"the nodes have room for one new pod, while old ones are replaced": {
		Observation{Deployment: deployment(3, 2, 2, 2, rollingOut), Service: &corev1.Service{}, Pods: []corev1.Pod{scheduled, unschedulable}}, "2/2",
		"-RollingOut +Serving +RollingOut -AsExpected -AsExpected", "2 of 2 pods run the newest spec",
	},
	"the nodes have room for no new pod": {
		Observation{Deployment: deployment(3, 2, 2, 2, rollingOut), Service: &corev1.Service{}, Pods: []corev1.Pod{unschedulable}}, "2/2",
		"-Unschedulable +Serving +RollingOut +Unschedulable -AsExpected", "Pod p: 0/1 nodes",
	},
	"the progress deadlineSeconds is exceeded": {
		Observation{Deployment: deployment(2, 1, 1, 1, deadlineCondition), Service: &corev1.Service{}}, "1/2",
		"-ProgressDeadlineExceeded +Serving -ProgressDeadlineExceeded +ProgressDeadlineExceeded -AsExpected", "1 of 2 pods run the newest spec",
	},
	"a pod is unschedulable": {
		Observation{Deployment: deployment(2, 2, 1, 1), Service: &corev1.Service{}, Pods: []corev1.Pod{unschedulable}}, "1/2",
		"-Unschedulable +Serving -RolledOut +Unschedulable -AsExpected", "Pod p: 0/1 nodes",
	},
	"several pods fail, the first by name is reported": {
		Observation{Deployment: deployment(2, 2, 0, 0), Service: &corev1.Service{}, Pods: []corev1.Pod{
			waiting("b", "CreateContainerConfigError", "no user"), terminating, waiting("a2", "ErrImagePull", "not found"),
		}}, "0/2",
		"-ImagePullFailed -NotServing -RolledOut +ImagePullFailed -AsExpected", "Pod a2, container echo: not found",
	},
	"a pod fails while all pods serve": {
		Observation{Deployment: deployment(2, 2, 2, 2), Service: &corev1.Service{}, Pods: []corev1.Pod{waiting("a", "ImagePullBackOff", "late")}}, "2/2",
		"+Ready +Serving -RolledOut -AsExpected -AsExpected", "",
	},
}

func TestStalledIsWhatDoesNotEndByItself(t *testing.T) {
	late := deployment(2, 2, 1, 1, completed, unavailableFor(120))
	for name, test := range map[string]struct {
		observed Observation
		// waits is true if the failure is Stalled only after some time.
		waits bool
	}{
		"a pod waits for a node":      {Observation{Deployment: deployment(2, 2, 1, 1), Pods: []corev1.Pod{unschedulable}}, true},
		"an image cannot be pulled":   {Observation{Deployment: deployment(2, 2, 1, 1), Pods: []corev1.Pod{waiting("a", "ErrImagePull", "m")}}, true},
		"a pod is not ready":          {Observation{Deployment: late}, true},
		"no progress":                 {Observation{Deployment: deployment(2, 1, 1, 1, deadlineCondition)}, true},
		"the response is another one": {Observation{Deployment: deployment(2, 2, 2, 2), Verification: &Verification{Object: verifierDeployment(1, 1, 0), Pods: pods(verifierPod("a", 900, "service"))}}, true},
		"an image has no valid name":  {Observation{Deployment: deployment(2, 2, 1, 1), Pods: []corev1.Pod{waiting("a", "InvalidImageName", "m")}}, false},
		"a container is not created":  {Observation{Deployment: deployment(2, 2, 1, 1), Pods: []corev1.Pod{waiting("a", "CreateContainerConfigError", "m")}}, false},
		"pods are rejected":           {Observation{Deployment: deployment(1, 1, 1, 1, replicaFailure)}, false},
		"a Gateway rejects the route": {Observation{Deployment: deployment(2, 2, 2, 2), Route: &Route{Object: routeOf(parentStatus(0, no(accepted, "NoMatchingParent", "m")), parentStatus(1))}}, false},
	} {
		for _, degraded := range []int64{0, stallSeconds - 1, stallSeconds} { // seconds
			t.Run(fmt.Sprintf("%s for %d s", name, degraded), func(t *testing.T) {
				echo := withProgressing(newEcho(), metav1.ConditionFalse, echov1.ReasonRolledOut, 3600)
				if test.observed.Verification != nil {
					echo = withVerify(echo)
				}
				if test.observed.Route != nil {
					echo = withRoute(echo)
				}
				if degraded > 0 {
					withCondition(echo, echov1.ConditionDegraded, metav1.ConditionTrue, "", degraded)
				}
				test.observed.NewestReplicaSet, test.observed.Now, test.observed.Service = newest, now, &corev1.Service{}
				status := statusOf(echo, test.observed)
				if !meta.IsStatusConditionTrue(status.Conditions, echov1.ConditionDegraded) {
					t.Fatalf("conditions = %s, want a failure", reasons(status))
				}
				want := !test.waits || degraded >= stallSeconds
				if is := meta.IsStatusConditionTrue(status.Conditions, echov1.ConditionStalled); is != want {
					t.Errorf("Stalled = %t, want %t: %s", is, want, reasons(status))
				}
				if left := requeueSeconds(echo, test.observed); !want && left != stallSeconds-degraded {
					t.Errorf("requeueAfter = %d, want %d", left, stallSeconds-degraded)
				}
			})
		}
	}
}

func TestOfReportsTheConditions(t *testing.T) {
	for name, test := range conditionTests {
		t.Run(name, func(t *testing.T) {
			test.observed.NewestReplicaSet, test.observed.Now = newest, now
			status := statusOf(withProgressing(newEcho(), metav1.ConditionFalse, echov1.ReasonRolledOut, 3600), test.observed)
			if status.Ready != test.ready {
				t.Errorf("status.ready = %s, want %s", status.Ready, test.ready)
			}
			if got := reasons(status); got != test.want {
				t.Errorf("conditions = %s, want %s", got, test.want)
			}
			if is, want := RolloutInFlight(status), strings.Contains(test.want, "+RollingOut -AsExpected"); is != want {
				t.Errorf("RolloutInFlight = %t, want %t", is, want)
			}
			ready := meta.FindStatusCondition(status.Conditions, echov1.ConditionReady)
			if !strings.Contains(ready.Message, test.message) {
				t.Errorf("message of Ready = %q, want it to contain %q", ready.Message, test.message)
			}
		})
	}
}

func TestOfReportsEndpointAndPods(t *testing.T) {
	status := statusOf(newEcho(), Observation{Deployment: deployment(3, 2, 2, 1)})
	got := fmt.Sprint(status.URL, " ", status.Selector, " ", status.Ready, " ", status.Replicas, " ", status.ReadyReplicas, " ", status.AvailableReplicas, " ", status.ObservedGeneration)
	if want := "http://echo-hello.op-demo.svc kkloud.io/echo=hello 2/2 3 2 1 7"; got != want {
		t.Errorf("endpoint and pods = %s, want %s", got, want)
	}
}

func TestPodFailureReturnsTheCause(t *testing.T) {
	running := crashed(waiting("p", "", ""), 2, 1, "")
	running.Status.ContainerStatuses[0].State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	recovered := *running.DeepCopy()
	recovered.Status.ContainerStatuses[0].Ready = true
	inInit := waiting("p", "ErrImageNeverPull", "absent")
	inInit.Status.InitContainerStatuses, inInit.Status.ContainerStatuses = inInit.Status.ContainerStatuses, nil
	several := waiting("p", "ContainerCreating", "")
	for _, reason := range []string{"ErrImagePull", "CreateContainerError"} {
		several.Status.ContainerStatuses = append(several.Status.ContainerStatuses, waiting("p", reason, "is "+reason).Status.ContainerStatuses...)
	}
	ended := func(reason string) corev1.Pod {
		pod := crashed(waiting("p", "CrashLoopBackOff", "back-off"), 3, 137, "log\n")
		pod.Status.ContainerStatuses[0].LastTerminationState.Terminated.Reason = reason
		return pod
	}

	for name, test := range map[string]struct {
		pod  corev1.Pod
		want string
	}{
		"starting":                   {waiting("p", "ContainerCreating", ""), "<nil>"},
		"without a status":           {corev1.Pod{}, "<nil>"},
		"failed pull":                {waiting("p", "ErrImagePull", "not found"), "&{ImagePullFailed Pod p, container echo: not found}"},
		"pull in back-off":           {waiting("p", "ImagePullBackOff", `Back-off pulling image "x": ErrImagePull: not found`), "&{ImagePullFailed Pod p, container echo: not found}"},
		"init container":             {inInit, "&{ImagePullFailed Pod p, container echo: absent}"},
		"first crash in back-off":    {crashed(waiting("p", "CrashLoopBackOff", "back-off 10s"), 1, 127, "no -text\n"), "&{CrashLooping Pod p, container echo: exited with code 127: no -text}"},
		"restarted after a crash":    {running, "&{CrashLooping Pod p, container echo: exited with code 1}"},
		"recovered from a crash":     {recovered, "<nil>"},
		"crash without a log":        {crashed(waiting("p", "CrashLoopBackOff", "back-off"), 3, 2, ""), "&{CrashLooping Pod p, container echo: exited with code 2}"},
		"two containers fail":        {several, "&{ImagePullFailed Pod p, container echo: is ErrImagePull}"},
		"ended with an error":        {ended("Error"), "&{CrashLooping Pod p, container echo: exited with code 137: log}"},
		"ended without an error":     {ended("Completed"), "&{CrashLooping Pod p, container echo: exited with code 137: log}"},
		"ended for a reason":         {ended("OOMKilled"), "&{CrashLooping Pod p, container echo: exited with code 137 (OOMKilled): log}"},
		"crash without an exit code": {waiting("p", "CrashLoopBackOff", "back-off 10s"), "&{CrashLooping Pod p, container echo: back-off 10s}"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := fmt.Sprint(PodFailure(&test.pod, now)); got != test.want {
				t.Errorf("PodFailure = %s, want %s", got, test.want)
			}
		})
	}
}

func TestTruncateReturnsOneLineOfPrintableCharacters(t *testing.T) {
	for text, want := range map[string]string{"short": "short", "exact!": "exact!", "too long": "too l…", "ééééééé": "ééééé…",
		"a\nb\x1b[": "a b [", "\u202etxt": " txt"} {
		if got := Truncate(text, 6); got != want {
			t.Errorf("Truncate(%q, 6) = %q, want %q", text, got, want)
		}
	}
	status := statusOf(newEcho(), Observation{Rejected: []Failure{{"Rejected", strings.Repeat("x", 40000)}}})
	if length := len(status.Conditions[0].Message); length > 32768 {
		t.Errorf("the message has %d characters, the API allows 32768", length)
	}
}

func TestPreviewIsTheFirstLineOfTheMessage(t *testing.T) {
	wide := strings.Repeat("😀", 16384)
	for message, want := range map[string]string{
		"":                              "",
		"xin chao operator":             "xin chao operator",
		"one\n":                         "one",
		"\n\n one\ntwo":                 "one…",
		"one\r\ntwo":                    "one…",
		"one\u2028two":                  "one…",
		"tab\tand \x1b[31m \u202e":      "tab and  [31m  ",
		strings.Repeat("a", 40):         strings.Repeat("a", 40),
		strings.Repeat("a", 41):         strings.Repeat("a", 39) + "…",
		strings.Repeat("\n", 16384):     "",
		wide:                            strings.Repeat("😀", 39) + "…",
		strings.Repeat("مرحبا ", 20):    strings.Repeat("مرحبا ", 7)[:len("مرحبا ")*6+len("مرح")] + "…",
		strings.Repeat("a", 40) + "\nb": strings.Repeat("a", 39) + "…",
	} {
		if got := preview(message); got != want {
			t.Errorf("preview(%.60q) = %q, want %q", message, got, want)
		}
	}
}

const (
	deadlineSeconds    = int64(deadline / time.Second)
	crashWindowSeconds = int64(crashWindow / time.Second)
)

// statusOf returns the status without transition times.
func statusOf(echo *echov1.Echo, observed Observation) echov1.EchoStatus {
	withParents(echo, &observed)
	status, _ := Assess(echo, observed).Status()
	for i := range status.Conditions {
		status.Conditions[i].LastTransitionTime = metav1.Time{}
	}
	return status
}

// withParents adds the references of the HTTPRoute that the Echo declares.
func withParents(echo *echov1.Echo, observed *Observation) {
	if observed.Route != nil && observed.Route.ParentRefs == nil {
		observed.Route.ParentRefs = children.ParentRefs(echo, children.Inputs{})
	}
}

// requeueSeconds returns when the status has to be computed again.
func requeueSeconds(echo *echov1.Echo, observed Observation) int64 {
	withParents(echo, &observed)
	_, after := Assess(echo, observed).Status()
	return int64(after / time.Second)
}

// A second scale-up has its own two minutes.
func TestARolloutStartsWithEachGeneration(t *testing.T) {
	past := metav1.Unix(now.Unix()-100, 0)
	for name, test := range map[string]struct {
		pods       int32
		generation int64
		want       metav1.Time
	}{
		"the same rollout":           {1, 7, past},
		"a rollout of a newer spec":  {1, 8, now},
		"no rollout of a newer spec": {2, 8, past},
	} {
		t.Run(name, func(t *testing.T) {
			observed := Observation{Deployment: deployment(2, 2, test.pods, test.pods), Service: &corev1.Service{}, Now: past}
			echo := newEcho()
			echo.Status, _ = Assess(echo, observed).Status()
			echo.Generation, observed.Now = test.generation, now
			next, _ := Assess(echo, observed).Status()
			if got := meta.FindStatusCondition(next.Conditions, echov1.ConditionProgressing).LastTransitionTime; !got.Equal(&test.want) {
				t.Errorf("transition time of Progressing = %s, want %s", got, test.want)
			}
		})
	}
}
