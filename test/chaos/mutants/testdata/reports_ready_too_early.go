// Mutant: reports Ready too early
// Guarantee: 6
// Suite: crash points
// Package: internal/status

package status

import echov1 "github.com/kkloud-io/echo-operator/api/v1"

func IsRolledOut(_ *echov1.Echo, observed Observation) bool { return observed.Deployment != nil }
