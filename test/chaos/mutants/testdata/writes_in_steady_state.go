// Mutant: writes in steady state
// Guarantee: 1
// Suite: crash points
// Package: internal/children

package children

import (
	echov1 "github.com/kkloud-io/echo-operator/api/v1"
)

func Desired(kind Kind, live Object, echo *echov1.Echo, in Inputs) (Object, bool) {
	desired, _ := originalDesired(kind, live, echo, in)
	return desired, true
}
