// Mutant: does not report an override
// Guarantee: 6
// Suite: policies
// Package: internal/children

package children

import echov1 "github.com/kkloud-io/echo-operator/api/v1"

func (d Difference) Overridden(string) *echov1.OverriddenChild { return nil }
