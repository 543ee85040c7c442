package oracle

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
)

func TestCheckNoReasonFindsEarlierStatuses(t *testing.T) {
	history := NewHistory()
	for i, reason := range []string{echov1.ReasonConflict, echov1.ReasonReady} {
		echo := &echov1.Echo{Status: echov1.EchoStatus{Conditions: []metav1.Condition{{Type: echov1.ConditionReady, Reason: reason}}}}
		echo.Name, echo.ResourceVersion = "one", []string{"1", "2"}[i]
		history.Add(echo, time.Now())
	}
	expect(t, history.CheckNoReason(echov1.ReasonConflict), "want no condition with reason Conflict")
	expect(t, history.CheckNoReason(echov1.ReasonCrashLooping))
}
