package oracle

import (
	"errors"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/children"
	"github.com/kkloud-io/echo-operator/test/chaos/kinds"
)

// newWorkload returns an Echo that is ready, its children in their desired state, and its pods.
func newWorkload() Workload {
	w := Workload{Echo: ready(newEcho(1)), Children: map[string]client.Object{}, Rejected: map[string]error{}}
	for _, kind := range kinds.Servers() {
		child := kinds.New(kind)
		kinds.Mutate(child, w.Echo)
		w.Children[kind.Name] = child
	}
	for _, name := range []string{"a", "b"} {
		pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: w.deployment().Spec.Template.Labels}}
		pod.Spec = *w.deployment().Spec.Template.Spec.DeepCopy()
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		w.Pods = append(w.Pods, pod)
	}
	return w
}

func (w *Workload) deployment() *appsv1.Deployment {
	return w.Children["Deployment"].(*appsv1.Deployment)
}
func (w *Workload) service() *corev1.Service { return w.Children["Service"].(*corev1.Service) }

// setCondition replaces a condition of the Echo's generation.
func (w *Workload) setCondition(conditionType string, status metav1.ConditionStatus, message string) {
	all := slices.DeleteFunc(w.Echo.Status.Conditions, func(c metav1.Condition) bool { return c.Type == conditionType })
	w.Echo.Status.Conditions = append(all, metav1.Condition{Type: conditionType, Status: status, Message: message, ObservedGeneration: w.Echo.Generation})
}

func (w *Workload) degraded(message string) {
	w.setCondition(echov1.ConditionReady, metav1.ConditionFalse, message)
	w.setCondition(echov1.ConditionDegraded, metav1.ConditionTrue, message)
}

// withoutVerifier has the status report that the verifier does not run. In fact, so many of three are ready.
func (w *Workload) withoutVerifier(ready int32) {
	w.Echo.Spec.Verify = &echov1.Verify{From: echov1.VerifyFromEveryNode}
	kind := kinds.ByName("VerifierDaemonSet")
	verifier := kinds.New(kind).(*appsv1.DaemonSet)
	verifier.Name = kinds.ChildName(kind, w.Echo.Name)
	kinds.Mutate(verifier, w.Echo)
	verifier.Status = appsv1.DaemonSetStatus{DesiredNumberScheduled: 3, UpdatedNumberScheduled: 3, NumberReady: ready}
	w.Children[kind.Name] = verifier
	const message = "no node"
	w.Echo.Status.Conditions = []metav1.Condition{
		{Type: echov1.ConditionReady, Status: metav1.ConditionFalse, Reason: echov1.ReasonVerifierNotRunning, Message: message, ObservedGeneration: w.Echo.Generation},
		{Type: echov1.ConditionVerified, Status: metav1.ConditionUnknown, Reason: echov1.ReasonVerifierNotRunning, Message: message, ObservedGeneration: w.Echo.Generation},
	}
}

func (w *Workload) override(fields ...string) {
	w.setCondition(echov1.ConditionOverridden, metav1.ConditionTrue, "Deployment: "+strings.Join(fields, ", "))
	w.Echo.Status.Overridden = []echov1.OverriddenChild{{Kind: "Deployment", Fields: fields}}
}

const imageField = "spec.template.spec.containers[echo].image"

func TestCheckStatus(t *testing.T) {
	otherImage := func(w *Workload) { w.deployment().Spec.Template.Spec.Containers[0].Image = "mirror:1" }
	otherArgs := func(w *Workload) { w.deployment().Spec.Template.Spec.Containers[0].Args[0] = "-text=other" }
	for name, test := range map[string]struct {
		change func(*Workload)
		want   string // Part of the finding, or empty.
	}{
		"Ready, and clients receive the message":          {func(*Workload) {}, ""},
		"status of an earlier generation":                 {func(w *Workload) { w.Echo.Generation = 2 }, "status.observedGeneration"},
		"Ready, but a pod is missing":                     {func(w *Workload) { w.Pods = w.Pods[:1] }, "want condition Ready=False"},
		"Degraded, and a pod is missing":                  {func(w *Workload) { w.Pods = w.Pods[:1]; w.degraded("no space") }, ""},
		"Degraded without a message":                      {func(w *Workload) { w.Pods = w.Pods[:1]; w.degraded("") }, "want condition Degraded=True with a message"},
		"neither Ready nor Degraded":                      {func(w *Workload) { w.Echo.Status.Conditions = nil }, "want condition Degraded=True with a message"},
		"Degraded, but clients receive the message":       {func(w *Workload) { w.degraded("rejected") }, "want condition Ready=True"},
		"Degraded, a field differs and would be accepted": {func(w *Workload) { otherImage(w); w.degraded("rejected") }, "want condition Ready=True"},
		"Degraded, and a write is rejected":               {func(w *Workload) { w.degraded("rejected"); w.Rejected["Service"] = errors.ErrUnsupported }, ""},
		"Degraded, and a field of the answer differs":     {func(w *Workload) { otherArgs(w); w.degraded("rejected") }, ""},
		"Degraded, and a child has no controller":         {func(w *Workload) { w.service().OwnerReferences = nil; w.degraded("conflict") }, ""},
		"Ready, but a field differs that is not reported": {otherImage, "want condition Overridden=True"},
		"Ready, and the field that differs is reported":   {func(w *Workload) { otherImage(w); w.override(imageField) }, ""},
		"Ready, and the struct that differs is reported":  {func(w *Workload) { otherImage(w); w.override("spec.template.spec.containers[echo]") }, ""},
		"Ready, but another field is reported":            {func(w *Workload) { otherImage(w); w.override("spec.paused") }, "want the field in status.overridden"},
		"Ready, but another child is named": {func(w *Workload) {
			otherImage(w)
			w.override(imageField)
			w.setCondition(echov1.ConditionOverridden, metav1.ConditionTrue, "Service")
		}, "want it named"},
		"the verifier does not run on a node": {func(w *Workload) { w.withoutVerifier(2) }, ""},
		"the verifier does not run":           {func(w *Workload) { w.withoutVerifier(0) }, ""},
		"verifiers of an earlier spec run": {func(w *Workload) {
			w.withoutVerifier(3)
			w.Children["VerifierDaemonSet"].(*appsv1.DaemonSet).Status.UpdatedNumberScheduled = 0
		}, ""},
		"the verifier does not run, and a pod is missing": {func(w *Workload) { w.withoutVerifier(0); w.Pods = w.Pods[:1] }, "do not receive the message"},
		"a verifier runs that is reported as missing":     {func(w *Workload) { w.withoutVerifier(3) }, "all 3 verifiers of the newest spec are ready"},
		"the verifier does not run, and a field differs":  {func(w *Workload) { otherImage(w); w.withoutVerifier(0) }, "want condition Overridden=True"},
		"the verifier does not run, without a message": {func(w *Workload) {
			w.withoutVerifier(0)
			w.Echo.Status.Conditions[0].Message = ""
		}, "want condition Degraded=True with a message"},
		"Ready, but nothing differs of what is reported":      {func(w *Workload) { w.override(imageField) }, "want condition Overridden=False"},
		"Ready, and sixteen of more fields are reported":      {func(w *Workload) { otherImage(w); w.override(slices.Repeat([]string{"spec.paused"}, maxRecorded)...) }, ""},
		"Ready, and an addition beside the operator's fields": {func(w *Workload) { w.deployment().Annotations = map[string]string{"team": "blue"} }, ""},
		"Ready, and a label of a child differs in its notation": {func(w *Workload) {
			delete(w.deployment().Labels, children.ManagedByLabel)
			w.override(`metadata.labels["app.kubernetes.io/managed-by"]`)
		}, ""},
	} {
		w := newWorkload()
		test.change(&w)
		err := w.CheckStatus()
		if test.want == "" && err != nil {
			t.Errorf("%s: finding %v, want none", name, err)
		}
		if test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%s: finding %v, want one that contains %q", name, err, test.want)
		}
	}
}

func TestCheckAnswer(t *testing.T) {
	sidecar := func(port string, number int32) corev1.Container {
		return corev1.Container{Name: "sidecar", Ports: []corev1.ContainerPort{{Name: port, ContainerPort: number, Protocol: corev1.ProtocolTCP}}}
	}
	// prepend adds the container before ours to every pod.
	prepend := func(w *Workload, c corev1.Container) {
		for i := range w.Pods {
			w.Pods[i].Spec.Containers = append([]corev1.Container{c}, w.Pods[i].Spec.Containers...)
		}
	}
	for name, test := range map[string]struct {
		change  func(*Workload)
		answers bool
	}{
		"every pod serves":                  {func(*Workload) {}, true},
		"no Service":                        {func(w *Workload) { delete(w.Children, "Service") }, false},
		"no Deployment":                     {func(w *Workload) { delete(w.Children, "Deployment") }, false},
		"Service without a selector":        {func(w *Workload) { w.service().Spec.Selector = nil }, false},
		"Service of other pods":             {func(w *Workload) { w.service().Spec.Selector["app"] = "other" }, false},
		"Service of type ExternalName":      {func(w *Workload) { w.service().Spec.Type = corev1.ServiceTypeExternalName }, false},
		"other port":                        {func(w *Workload) { w.service().Spec.Ports[0].Port = 81 }, false},
		"other protocol":                    {func(w *Workload) { w.service().Spec.Ports[0].Protocol = corev1.ProtocolUDP }, false},
		"target port by number":             {func(w *Workload) { w.service().Spec.Ports[0].TargetPort = intstr.FromInt32(5678) }, true},
		"other target port":                 {func(w *Workload) { w.service().Spec.Ports[0].TargetPort = intstr.FromInt32(1) }, false},
		"target port that no container has": {func(w *Workload) { w.service().Spec.Ports[0].TargetPort = intstr.FromString("x") }, false},
		"additional port": {func(w *Workload) {
			w.service().Spec.Ports = append(w.service().Spec.Ports, corev1.ServicePort{Port: 9})
		}, true},
		"pod that is not ready":                        {func(w *Workload) { w.Pods[0].Status.Conditions = nil }, false},
		"other args":                                   {func(w *Workload) { w.Pods[1].Spec.Containers[0].Args = nil }, false},
		"other command":                                {func(w *Workload) { w.Pods[1].Spec.Containers[0].Command = []string{"x"} }, false},
		"no container of that name":                    {func(w *Workload) { w.Pods[1].Spec.Containers[0].Name = "x" }, false},
		"container before ours":                        {func(w *Workload) { prepend(w, sidecar("metrics", 1)) }, true},
		"container before ours takes the port's name":  {func(w *Workload) { prepend(w, sidecar(w.service().Spec.Ports[0].TargetPort.StrVal, 1)) }, false},
		"pod that is ready of an Echo of another name": {func(w *Workload) { w.Pods = append(w.Pods, corev1.Pod{Status: w.Pods[0].Status}) }, true},
	} {
		w := newWorkload()
		w.service().Spec.Ports[0].TargetPort = intstr.FromString(w.Pods[0].Spec.Containers[0].Ports[0].Name)
		test.change(&w)
		if err := w.CheckAnswer(); (err == nil) != test.answers {
			t.Errorf("%s: error = %v, want answers: %v", name, err, test.answers)
		}
	}
}

func TestCheckAnswerOfAServerOfTheUsersOwnComparesItsVariables(t *testing.T) {
	w := newWorkload()
	w.Echo.Spec.Image, w.Echo.Spec.Command = "own:1", []string{"serve"}
	kinds.Mutate(w.Children["Deployment"], w.Echo)
	for i := range w.Pods {
		w.Pods[i].Spec = *w.deployment().Spec.Template.Spec.DeepCopy()
	}
	if err := w.CheckAnswer(); err != nil {
		t.Errorf("error = %v, want none", err)
	}
	w.Pods[0].Spec.Containers[0].Env[0].Value = "other"
	if w.CheckAnswer() == nil {
		t.Error("no error for another value of ECHO_TEXT, want one")
	}
}

func TestCheckAnswerFindsThePortOfAnInitContainerThatKeepsRunning(t *testing.T) {
	w := newWorkload()
	w.service().Spec.Ports[0].TargetPort = intstr.FromString("late")
	always := corev1.ContainerRestartPolicyAlways
	for i := range w.Pods {
		w.Pods[i].Spec.InitContainers = []corev1.Container{{RestartPolicy: &always,
			Ports: []corev1.ContainerPort{{Name: "late", ContainerPort: 1, Protocol: corev1.ProtocolTCP}}}}
	}
	if err := w.CheckAnswer(); err == nil || !strings.Contains(err.Error(), "endpoint has port 1") {
		t.Errorf("error = %v, want one about port 1", err)
	}
}

func TestCheckAsDeclared(t *testing.T) {
	asExpected := metav1.Condition{Type: echov1.ConditionOverridden, Status: metav1.ConditionFalse, Reason: echov1.ReasonAsExpected, ObservedGeneration: 1}
	// degradedFor makes a pod fail, with the reason.
	degradedFor := func(reason string) func(*Workload) {
		return func(w *Workload) {
			w.Pods = w.Pods[:1]
			w.degraded("failed")
			meta.FindStatusCondition(w.Echo.Status.Conditions, echov1.ConditionDegraded).Reason = reason
		}
	}
	for name, test := range map[string]struct {
		change func(*Workload)
		want   string // Part of the finding, or empty.
	}{
		"ready":                {func(*Workload) {}, ""},
		"condition is missing": {func(w *Workload) { w.Echo.Status.Conditions = w.Echo.Status.Conditions[:1] }, "want condition Overridden"},
		"field differs": {func(w *Workload) {
			w.deployment().Spec.Template.Spec.Containers[0].Image = "mirror:1"
			w.override(imageField)
		}, imageField},
		"pods are rejected":          {degradedFor(echov1.ReasonPodsRejected), ""},
		"child is rejected":          {degradedFor(echov1.ReasonRejected), "nothing rejects or changes the children"},
		"child is in conflict":       {degradedFor(echov1.ReasonConflict), "nothing rejects or changes the children"},
		"child is changed again":     {degradedFor(echov1.ReasonRepeatedDrift), "nothing rejects or changes the children"},
		"neither Ready nor Degraded": {func(w *Workload) { w.Echo.Status.Conditions = nil }, "want condition Degraded=True"},
	} {
		w := newWorkload()
		w.Echo.Status.Conditions = append(w.Echo.Status.Conditions, asExpected)
		test.change(&w)
		err := w.CheckAsDeclared()
		if test.want == "" && err != nil {
			t.Errorf("%s: finding %v, want none", name, err)
		}
		if test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%s: finding %v, want one that contains %q", name, err, test.want)
		}
	}
}

func TestDifferencesNameTheLeafFields(t *testing.T) {
	w := newWorkload()
	container := &w.deployment().Spec.Template.Spec.Containers[0]
	container.Image = "mirror:1"
	container.Args = container.Args[:1]
	delete(w.deployment().Labels, children.ManagedByLabel)
	got := Differences(w.Children["Deployment"], w.Echo)
	want := []string{"metadata.labels[app.kubernetes.io/managed-by]", "spec.template.spec.containers[echo].args", imageField}
	if !slices.Equal(got, want) {
		t.Errorf("differences = %q, want %q", got, want)
	}
}

func TestDeterminesAnswer(t *testing.T) {
	const container = "spec.template.spec.containers[1]"
	for field, want := range map[string]bool{
		"spec.replicas": true, "spec.selector.matchLabels[a.b/c]": true, container + ".args[0]": true, container: true,
		container + ".ports[0].name": true, "spec.template.metadata.labels[kkloud.io/echo]": true, "spec.template.metadata.annotations": false,
		container + ".image": false, container + ".argsx": false, "spec.paused": false, "metadata.labels": false,
	} {
		if got := determinesAnswer("Deployment", field); got != want {
			t.Errorf("determinesAnswer(Deployment, %s) = %v, want %v", field, got, want)
		}
	}
	for field, want := range map[string]bool{"spec.ports[0].targetPort": true, "spec.ports": true, "spec.type": true, "spec.sessionAffinity": false} {
		if got := determinesAnswer("Service", field); got != want {
			t.Errorf("determinesAnswer(Service, %s) = %v, want %v", field, got, want)
		}
	}
}
