// Mutant: reports Ready too early
// Guarantee: 6
// Suite: crash points
// Package: internal/status

package status

import echov1 "github.com/kkloud-io/echo-operator/api/v1"

func Assess(echo *echov1.Echo, observed Observation) *Assessment {
	a := originalAssess(echo, observed)
	if observed.Deployment != nil {
		a.isAvailable, a.isUpdated, a.isRolledOut = true, true, true
	}
	return a
}
