package children

import (
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
)

// PodDisruptionBudget mutates the budget of the Echo. It allows one eviction at a time, and
// an unhealthy pod never blocks the drain of its node.
func PodDisruptionBudget(budget *policyv1.PodDisruptionBudget, echo *echov1.Echo, _ Inputs) {
	setMeta(budget, echo, serverComponent)
	budget.Spec.Selector = &metav1.LabelSelector{MatchLabels: Selector(echo)}
	budget.Spec.MinAvailable = nil
	budget.Spec.MaxUnavailable = new(intstr.FromInt32(1))
	budget.Spec.UnhealthyPodEvictionPolicy = ptr.To(policyv1.AlwaysAllow)
}
