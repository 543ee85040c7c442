package oracle

import (
	"errors"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/status"
	"github.com/kkloud-io/echo-operator/test/chaos/kinds"
)

// inProgress are the reasons of conditions that expect to change without an action of the user.
var inProgress = []string{echov1.ReasonRollingOut, echov1.ReasonRouteNotCreated, echov1.ReasonVerifying}

// CheckCause checks that nothing of the Echo is in progress: it is ready, or it says why it is not. Then it names one
// of its objects, and the obstacle by one of its names, or a command, if the cluster said that name in its messages.
func CheckCause(echo *echov1.Echo, obstacle, said []string) error {
	findings := []error{CheckObserved(echo), CheckKstatus(echo)}
	for i := range echo.Status.Conditions {
		c := &echo.Status.Conditions[i]
		isProgressing := c.Type == echov1.ConditionProgressing && c.Status == metav1.ConditionTrue
		if isProgressing || slices.Contains(inProgress, c.Reason) {
			findings = append(findings, Findingf(echo, "want nothing in progress, got %s", describe(c)))
		}
	}
	if status.RolloutInFlight(echo.Status) {
		findings = append(findings, Findingf(echo, "the rollout is in flight, so that OLM does not upgrade the operator"))
	}
	ready := meta.FindStatusCondition(echo.Status.Conditions, echov1.ConditionReady)
	degraded := meta.FindStatusCondition(echo.Status.Conditions, echov1.ConditionDegraded)
	verified := meta.FindStatusCondition(echo.Status.Conditions, echov1.ConditionVerified)
	isReady := ready != nil && ready.Status == metav1.ConditionTrue
	isDegraded := degraded != nil && degraded.Status == metav1.ConditionTrue
	doesNotVerify := verified != nil && verified.Reason == echov1.ReasonVerifierNotRunning
	var message string
	if isDegraded {
		message = degraded.Message
	}
	if doesNotVerify {
		message += verified.Message
	}
	switch {
	case isReady && !doesNotVerify:
	case isDegraded && degraded.Reason == echov1.ReasonVerificationFailed: // It names layers and nodes.
	case message == "":
		findings = append(findings, Findingf(echo, "want a failure, got %s and %s", describe(ready), describe(degraded)))
	default:
		findings = append(findings, checkNames(echo, message, obstacle, said))
	}
	return errors.Join(findings...)
}

// checkNames checks that a message names an object of the Echo, and what the cluster said.
func checkNames(echo *echov1.Echo, message string, obstacle, said []string) error {
	contains := func(name string) bool { return strings.Contains(message, name) }
	namesObject := slices.ContainsFunc(kinds.ChildNames(echo.Name), contains)
	if !namesObject {
		return Findingf(echo, "the message names none of its objects: %s", message)
	}
	knows := slices.ContainsFunc(obstacle, func(name string) bool {
		return slices.ContainsFunc(said, func(text string) bool { return strings.Contains(text, name) })
	})
	if knows && !slices.ContainsFunc(append(slices.Clone(obstacle), "kubectl"), contains) {
		return Findingf(echo, "the message has neither %v, which the cluster said, nor a command: %s", obstacle, message)
	}
	return nil
}
