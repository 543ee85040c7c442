package oracle

import (
	kstatus "github.com/fluxcd/cli-utils/pkg/kstatus/status"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
)

// Kstatus returns what Flux, Helm and other tools that use kstatus see of the Echo.
func Kstatus(echo *echov1.Echo) (*kstatus.Result, error) {
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(echo)
	if err != nil {
		return nil, err
	}
	return kstatus.Compute(&unstructured.Unstructured{Object: object})
}

// CheckKstatus checks that kstatus agrees with the conditions.
func CheckKstatus(echo *echov1.Echo) error {
	got, err := Kstatus(echo)
	if err != nil {
		return Findingf(echo, "kstatus: %w", err)
	}
	if want := wantKstatus(echo); got.Status != want {
		return Findingf(echo, "kstatus = %s (%s), want %s with observedGeneration %d of %d and conditions %v",
			got.Status, got.Message, want, echo.Status.ObservedGeneration, echo.Generation, echo.Status.Conditions)
	}
	return nil
}

// wantKstatus returns Current only for an Echo that is ready with its newest spec, and Failed only while a failure lasts:
// one during a rollout may still pass.
func wantKstatus(echo *echov1.Echo) kstatus.Status {
	isFailure := meta.IsStatusConditionTrue(echo.Status.Conditions, echov1.ConditionDegraded)
	isRollingOut := meta.IsStatusConditionTrue(echo.Status.Conditions, echov1.ConditionProgressing)
	switch {
	case echo.DeletionTimestamp != nil:
		return kstatus.TerminatingStatus
	case CheckReadyNow(echo) == nil:
		return kstatus.CurrentStatus
	case CheckObserved(echo) == nil && isFailure && !isRollingOut:
		return kstatus.FailedStatus
	default:
		return kstatus.InProgressStatus
	}
}

// CheckKstatus checks every version of the Echoes.
func (h *History) CheckKstatus() (findings []error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, echo := range h.echoes {
		if err := CheckKstatus(echo.object); err != nil {
			findings = append(findings, err)
		}
	}
	return findings
}
