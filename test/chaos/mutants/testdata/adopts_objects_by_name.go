// Mutant: adopts objects by their name
// Guarantee: 2
// Suite: external writers
// Package: internal/children

package children

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
)

func IsOrphan(metav1.Object, *echov1.Echo) bool { return true }
