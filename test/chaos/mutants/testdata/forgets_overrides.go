// Mutant: forgets which overrides it has accepted
// Guarantee: 1
// Suite: policies
// Package: internal/controller

package controller

import echov1 "github.com/kkloud-io/echo-operator/api/v1"

func accepted(*echov1.Echo, string) *echov1.OverriddenChild { return nil }
