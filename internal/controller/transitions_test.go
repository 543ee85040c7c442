package controller

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
)

// A second scale-up has its own two minutes.
func TestARolloutStartsWithEachGeneration(t *testing.T) {
	past := metav1.NewTime(time.Now().Add(-100 * time.Second))
	for name, test := range map[string]struct {
		status     metav1.ConditionStatus
		generation int64
		want       bool
	}{
		"the same rollout":           {metav1.ConditionTrue, 7, false},
		"a rollout of a newer spec":  {metav1.ConditionTrue, 8, true},
		"no rollout of a newer spec": {metav1.ConditionFalse, 8, false},
	} {
		t.Run(name, func(t *testing.T) {
			condition := metav1.Condition{
				Type: echov1.ConditionProgressing, Status: test.status, Reason: "a", ObservedGeneration: 7, LastTransitionTime: past,
			}
			echo := &echov1.Echo{Status: echov1.EchoStatus{Conditions: []metav1.Condition{condition}}}
			condition.LastTransitionTime, condition.ObservedGeneration = metav1.Time{}, test.generation
			next := withTransitionTimes(echov1.EchoStatus{Conditions: []metav1.Condition{condition}}, echo)
			if got := !next.Conditions[0].LastTransitionTime.Equal(&past); got != test.want {
				t.Errorf("new transition time: %t, want %t", got, test.want)
			}
		})
	}
}
