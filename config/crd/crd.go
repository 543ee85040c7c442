// Package crd contains the CRD of Echoes.
package crd

import _ "embed"

// Echoes is the manifest of the CRD.
//
//go:embed bases/kkloud.io_echoes.yaml
var Echoes []byte
