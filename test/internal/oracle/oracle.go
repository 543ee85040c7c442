// Package oracle says what is true of an Echo and its children when the operator has nothing left to do.
package oracle

import (
	"errors"
	"fmt"
	"strings"

	kstatus "github.com/fluxcd/cli-utils/pkg/kstatus/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/children"
	"github.com/kkloud-io/echo-operator/internal/testing/controlplane"
)

// CheckObserved checks that the status is about the newest spec.
func CheckObserved(echo *echov1.Echo) error {
	if echo.Status.ObservedGeneration != echo.Generation {
		return fmt.Errorf("echo %s: status.observedGeneration = %d, want %d", echo.Name, echo.Status.ObservedGeneration, echo.Generation)
	}
	return nil
}

// CheckReady checks that the Echo is ready with its newest spec.
func CheckReady(echo *echov1.Echo) error {
	return errors.Join(CheckObserved(echo), CheckCondition(echo, echov1.ConditionReady, echov1.ReasonReady, ""))
}

// CheckDegraded checks that the Echo's newest spec is degraded for that reason, with a message that contains the text, and that Ready is
// False with the same message.
func CheckDegraded(echo *echov1.Echo, reason, text string) error {
	if err := CheckCondition(echo, echov1.ConditionDegraded, reason, text); err != nil {
		return err
	}
	degraded := meta.FindStatusCondition(echo.Status.Conditions, echov1.ConditionDegraded)
	ready := meta.FindStatusCondition(echo.Status.Conditions, echov1.ConditionReady)
	if ready == nil || ready.Status != metav1.ConditionFalse || ready.Message != degraded.Message {
		return fmt.Errorf("echo %s: want condition Ready=False with the message of Degraded, %q, got %v", echo.Name, degraded.Message, ready)
	}
	return nil
}

// CheckCondition checks the reason of a condition of the newest spec, and that its message contains the text.
func CheckCondition(echo *echov1.Echo, conditionType, reason, text string) error {
	c := meta.FindStatusCondition(echo.Status.Conditions, conditionType)
	if c == nil {
		c = &metav1.Condition{}
	}
	if c.Reason != reason || c.ObservedGeneration != echo.Generation || !strings.Contains(c.Message, text) {
		return fmt.Errorf("echo %s: condition %s of generation %d has reason %q: %q, want reason %q of generation %d and a message with %q",
			echo.Name, conditionType, c.ObservedGeneration, c.Reason, c.Message, reason, echo.Generation, text)
	}
	return nil
}

// CheckKstatus checks that tools that use kstatus, such as Flux and Helm, agree with the conditions: Current only for an Echo that is
// ready with its newest spec, and Failed only while it is Stalled, because other failures may still pass.
func CheckKstatus(echo *echov1.Echo) error {
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(echo)
	if err != nil {
		return err
	}
	result, err := kstatus.Compute(&unstructured.Unstructured{Object: object})
	if err != nil {
		return err
	}
	want := kstatus.InProgressStatus
	switch {
	case echo.DeletionTimestamp != nil:
		want = kstatus.TerminatingStatus
	case CheckReady(echo) == nil:
		want = kstatus.CurrentStatus
	case CheckObserved(echo) == nil && isStalled(echo):
		want = kstatus.FailedStatus
	}
	if result.Status != want {
		return fmt.Errorf("echo %s: kstatus is %s, want %s", echo.Name, result.Status, want)
	}
	return nil
}

// isStalled reports whether a failure lasts that does not end by itself.
func isStalled(echo *echov1.Echo) bool {
	return meta.IsStatusConditionTrue(echo.Status.Conditions, echov1.ConditionStalled) &&
		meta.IsStatusConditionTrue(echo.Status.Conditions, echov1.ConditionDegraded) &&
		!meta.IsStatusConditionTrue(echo.Status.Conditions, echov1.ConditionProgressing)
}

// Differences returns how the children of an Echo differ from what it declares, in the order of their kinds. find returns the object of a
// kind and name, or nil.
func Differences(echo *echov1.Echo, find func(kind children.Kind, name string) (children.Object, error)) (all []Difference, err error) {
	inputs := children.Inputs{ServerImage: controlplane.ServerImage, VerifierImage: controlplane.VerifierImage}
	names := children.Overrides(echo)
	for _, name := range names {
		found, err := find(children.OptionalKind(), name)
		if err != nil {
			return nil, err
		}
		if route, is := found.(*gatewayv1.HTTPRoute); is {
			inputs.OverriddenRoutes = append(inputs.OverriddenRoutes, *route)
		}
	}
	for _, kind := range children.Kinds {
		if isUnknown := kind.OptionalAPI && len(inputs.OverriddenRoutes) < len(names); isUnknown {
			continue
		}
		live, err := find(kind, kind.ChildName(echo))
		if err != nil {
			return nil, err
		}
		if service, is := live.(*corev1.Service); is {
			inputs.ClusterIPs = service.Spec.ClusterIPs
		}
		if text := difference(kind, live, echo, inputs); text != "" {
			all = append(all, Difference{kind, text})
		}
	}
	return all, nil
}

// Difference is how a child differs.
type Difference struct {
	Kind children.Kind
	Text string
}

func (d Difference) String() string { return d.Kind.Name + ": " + d.Text }

// difference returns how a child differs, or an empty text. live is nil if there is no object with its name.
func difference(kind children.Kind, live children.Object, echo *echov1.Echo, inputs children.Inputs) string {
	isControlled := live != nil && metav1.IsControlledBy(live, echo)
	switch {
	case !kind.Wanted(echo) && isControlled:
		return "it is not wanted"
	case !kind.Wanted(echo):
		return ""
	case !isControlled:
		return "it does not exist"
	}
	desired, changed := children.Desired(kind, live, echo, inputs)
	if !changed {
		return ""
	}
	return fmt.Sprint(children.Compare(kind, live, desired).Fields)
}
