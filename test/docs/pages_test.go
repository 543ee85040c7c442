package docs

import "slices"

const root = "../.."

// runPage is a page whose commands run on the cluster, except for examples.
type runPage struct {
	name string
	// sections selects the sections of the page by their headings of level 2. Without sections, all commands of the page run.
	sections []string
	// setup creates what the page is about, in the default namespace of kubectl.
	setup string
	// replace has values for the placeholders of the page, in pairs.
	replace []string
}

// runs reports whether the commands below a heading of level 2 of the page run.
func (p runPage) runs(heading string) bool {
	return p.sections == nil || slices.Contains(p.sections, heading)
}

// apply returns a command that applies the Echo "hello" with a spec.
func apply(spec string) string {
	return "kubectl apply -f - <<END\napiVersion: kkloud.io/v1\nkind: Echo\nmetadata: {name: hello}\nspec: " + spec + "\nEND"
}

const (
	quickStart = "README.md"
	tutorial   = "docs/getting-started.md"
	runbooks   = "docs/runbooks.md"
	statusPage = "docs/status.md"

	// demoNamespace is the namespace that the pages use.
	demoNamespace = "echo-demo"
)

var hello = apply(`{message: hello, verify: {}}`) + `
kubectl wait --for=condition=Ready --timeout=2m echo/hello`

// runPages are the pages whose commands run on the cluster of KUBECONFIG, which has the operator.
var runPages = []runPage{
	{name: "docs/configure.md", setup: hello},
	{name: "docs/disconnected.md"},
	{name: "docs/monitoring.md"},
	{name: statusPage, setup: apply(`{message: hello}`)},
	{name: "docs/troubleshooting.md"},
	{name: "docs/upgrade.md"},
	{name: "docs/verify.md", setup: hello},
	{name: runbooks, sections: []string{
		"EchoOperatorAbsent", "EchoOperatorReconcileErrors", "EchoOperatorQueueLatency", "EchoOperatorNamespaceNotServed",
	}},
	// These sections end with the deletion of the operator's pods.
	{name: runbooks, sections: []string{"EchoOperatorNoLeader"}},
	{name: runbooks, sections: []string{"EchoOperatorQueueStuck"}},
	{name: runbooks, sections: []string{"EchoOperatorWriteStorm", "EchoVerificationStale"}, setup: hello},
	{name: runbooks, sections: []string{"EchoNotReady"}, setup: apply(`{message: hello, pod: {nodeSelector: {example.com/disk: none}}}`) + `
kubectl wait --for=condition=Degraded --timeout=2m echo/hello`},
	{name: runbooks, sections: []string{"EchoConflict"}, setup: `kubectl create service clusterip echo-hello --tcp=80
` + apply(`{message: hello}`) + `
kubectl wait --for=condition=Degraded --timeout=1m echo/hello`, replace: []string{"<kind>", "service", "<object>", "echo-hello"}},
	{name: runbooks, sections: []string{"EchoNotVerified"}, setup: `image=$(kubectl -n echo-operator-system get deployment echo-operator-controller-manager \
  -o jsonpath='{.spec.template.spec.containers[0].env[?(@.name=="RELATED_IMAGE_HTTP_ECHO")].value}')
` + apply(`{message: hello, verify: {periodSeconds: 1, timeoutSeconds: 1}, image: "$image", targetPort: 5678, args: ["-listen=:5678", "-text=hello", "-status-code=404"]}`) + `
kubectl wait --for=condition=Verified=False --timeout=2m echo/hello`, replace: []string{"<layer>", "dns"}},
	{name: runbooks, sections: []string{"EchoVerifierNotRunning"}, setup: `kubectl create quota one --hard=pods=1
` + apply(`{message: hello, verify: {}}`) + `
for i in $(seq 120); do
  [ "$(kubectl get echo hello -o jsonpath='{.status.conditions[?(@.type=="Verified")].reason}')" != VerifierNotRunning ] || break
  sleep 1
done`},
}
