// Mutant: forgets which overrides it has accepted
// Guarantee: 1
// Suite: policies
// Package: internal/controller

package controller

import (
	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/children"
)

func (rec *reconciliation) accepted(children.Kind) *echov1.OverriddenChild { return nil }
