package children

import "testing"

func TestDeterminesResponse(t *testing.T) {
	for _, test := range []struct {
		kind, field string
		want        bool
	}{
		{"Deployment", "spec.replicas", true},
		{"Deployment", "spec", true},
		{"Deployment", "spec.template.spec.containers", true},
		{"Deployment", "spec.template.spec.containers[echo].args[0]", true},
		{"Deployment", "spec.template.spec.containers[sidecar].args[0]", false},
		{"Deployment", "spec.template.spec.containers[echo].image", false},
		{"Deployment", "spec.replicasX", false},
		{"Deployment", "spec.strategy", false},
		{"Deployment", "spec.template.spec.containers[echo].resources", false},
		{"Deployment", "spec.template.spec.securityContext", false},
		{"Deployment", "spec.template.metadata.labels[kkloud.io/echo]", true},
		{"Deployment", "spec.template.metadata.labels[app.kubernetes.io/name]", false},
		{"Deployment", "metadata.labels[kkloud.io/echo]", false},
		{"Service", "spec.ports[http].targetPort", true},
		{"Service", "spec.sessionAffinity", false},
		{"PodDisruptionBudget", "spec.maxUnavailable", false},
		{"VerifierDeployment", "spec.template.metadata.labels[kkloud.io/response]", true},
		{"VerifierDeployment", "spec.template.metadata.labels[kkloud.io/echo]", true},
		{"VerifierDeployment", "spec.template.spec.containers[service].args[1]", true},
		{"VerifierDeployment", "spec.template.spec.containers[service].resources", false},
		{"VerifierDaemonSet", "spec.template.spec.containers[route].readinessProbe.httpGet.path", true},
		{"VerifierDaemonSet", "spec.template.spec.tolerations[0]", false},
		{"HTTPRoute", "spec.rules[0].backendRefs[echo-hello].weight", true},
		{"HTTPRoute", "spec.parentRefs[0].port", true},
		{"HTTPRoute", "metadata.labels[kkloud.io/echo]", false},
	} {
		if got := kindOf(test.kind).DeterminesResponse(test.field); got != test.want {
			t.Errorf("%s %s: DeterminesResponse = %t, want %t", test.kind, test.field, got, test.want)
		}
	}
}

func TestEchoNameReturnsTheNameOfTheEchoOfAChild(t *testing.T) {
	echo := newEcho()
	for _, kind := range Kinds {
		child := kind.ChildName(echo)
		if name, found := EchoName(child); !found || name != echo.Name {
			t.Errorf("EchoName(%q) = %q, %t, want %q", child, name, found, echo.Name)
		}
	}
	if name, found := EchoName("web"); found {
		t.Errorf("EchoName(web) = %q, want none", name)
	}
}
