// Mutant: does not report an override
// Guarantee: 6
// Suite: policies
// Package: internal/controller

package controller

import echov1 "github.com/kkloud-io/echo-operator/api/v1"

func (c changes) overridden(string) *echov1.OverriddenChild { return nil }
