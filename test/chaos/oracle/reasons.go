package oracle

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// CheckNoReason finds statuses of Echoes with a condition of that reason.
func (h *History) CheckNoReason(reason string) (findings []error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, echo := range h.echoes {
		conditions := echo.object.Status.Conditions
		if i := slices.IndexFunc(conditions, func(c metav1.Condition) bool { return c.Reason == reason }); i >= 0 {
			findings = append(findings, Findingf(echo.object, "want no condition with reason %s, got %s (resource version %d)", reason, describe(&conditions[i]), echo.number))
		}
	}
	return findings
}
