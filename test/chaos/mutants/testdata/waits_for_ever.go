// Mutant: waits for a verifier without a deadline
// Guarantee: 6
// Suite: obstacles
// Package: internal/status

package status

import echov1 "github.com/kkloud-io/echo-operator/api/v1"

func overdueVerifier(*echov1.Echo, Observation, verifier) *Failure { return nil }
