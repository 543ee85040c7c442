// Package openshift imitates how OpenShift admits pods, with admission policies.
package openshift

import _ "embed" // For the policies.

// Policies is the manifest of the policies. They apply to namespaces with Labels and Annotations.
//
//go:embed restricted-v2.yaml
var Policies []byte

var (
	// Labels select the namespaces of the policies.
	Labels = map[string]string{"openshift.io/scc": "restricted-v2"}
	// Annotations are the user range and the SELinux level, which OpenShift assigns to a namespace.
	Annotations = map[string]string{"openshift.io/sa.scc.uid-range": "1000680000/10000", "openshift.io/sa.scc.mcs": "s0:c26,c15"}
)

// FirstUser is the first user of the range.
const FirstUser = 1000680000
