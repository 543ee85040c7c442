package docs

import (
	"path"
	"slices"
	"testing"
)

const root = "../.."

// runPage is a page whose commands run on the cluster, except for examples.
type runPage struct {
	name string
	// setup creates what the page is about, in the default namespace of kubectl.
	setup string
	// replace has values for the placeholders of the page, in pairs.
	replace []string
}

// apply returns a command that applies the Echo "hello" with a spec.
func apply(spec string) string {
	return "kubectl apply -f - <<END\napiVersion: kkloud.io/v1\nkind: Echo\nmetadata: {name: hello}\nspec: " + spec + "\nEND"
}

// quickStart is the page whose commands TestQuickStart runs.
const quickStart = "README.md"

// demoNamespace is the namespace that the pages use.
const demoNamespace = "echo-demo"

var hello = apply(`{message: hello, verify: {}}`) + `
kubectl wait --for=condition=Ready --timeout=2m echo/hello`

// runPages are the pages whose commands run on the cluster of KUBECONFIG, which has the operator.
var runPages = []runPage{
	{name: "docs/administration.md", setup: hello},
	{name: "docs/disconnected.md"},
	{name: "docs/echo.md", setup: apply(`{message: hello}`)},
	{name: "docs/install.md"},
	{name: "docs/upgrade.md"},
	{name: "docs/verify.md", setup: hello},
	{name: "docs/runbooks/EchoConflict.md", setup: `kubectl create service clusterip echo-hello --tcp=80
` + apply(`{message: hello}`) + `
kubectl wait --for=condition=Degraded --timeout=1m echo/hello`, replace: []string{"<kind>", "service", "<object>", "echo-hello"}},
	{name: "docs/runbooks/EchoNotReady.md", setup: apply(`{message: hello, pod: {nodeSelector: {example.com/disk: none}}}`) + `
kubectl wait --for=condition=Degraded --timeout=2m echo/hello`},
	{name: "docs/runbooks/EchoNotVerified.md", setup: `image=$(kubectl -n echo-operator-system get deployment echo-operator-controller-manager \
  -o jsonpath='{.spec.template.spec.containers[0].env[?(@.name=="RELATED_IMAGE_HTTP_ECHO")].value}')
` + apply(`{message: hello, verify: {periodSeconds: 1, timeoutSeconds: 1}, image: "$image", args: ["-listen=:5678", "-text=hello", "-status-code=404"]}`) + `
kubectl wait --for=condition=Verified=False --timeout=2m echo/hello`, replace: []string{"<layer>", "dns"}},
	{name: "docs/runbooks/EchoOperatorAbsent.md"},
	{name: "docs/runbooks/EchoOperatorNamespaceNotServed.md", replace: []string{"<namespace>", "default"}},
	{name: "docs/runbooks/EchoOperatorNoLeader.md"},
	{name: "docs/runbooks/EchoOperatorQueueLatency.md"},
	{name: "docs/runbooks/EchoOperatorQueueStuck.md"},
	{name: "docs/runbooks/EchoOperatorReconcileErrors.md"},
	{name: "docs/runbooks/EchoOperatorWriteStorm.md", setup: hello},
	{name: "docs/runbooks/EchoVerificationStale.md", setup: hello},
	{name: "docs/runbooks/EchoVerifierNotRunning.md", setup: `kubectl create quota one --hard=pods=1
` + apply(`{message: hello, verify: {}}`) + `
for i in $(seq 120); do
  [ "$(kubectl get echo hello -o jsonpath='{.status.conditions[?(@.type=="Verified")].reason}')" != VerifierNotRunning ] || break
  sleep 1
done`},
}

// test/e2e/helm runs the commands of docs/helm.md.
func TestEveryShellBlockRunsOrIsAnExample(t *testing.T) {
	for _, page := range pages(t) {
		top := page == "README.md" || path.Dir(page) == "docs" || path.Dir(page) == "docs/runbooks"
		runs := slices.Contains([]string{tutorial, quickStart, "docs/helm.md"}, page) ||
			slices.ContainsFunc(runPages, func(p runPage) bool { return p.name == page })
		for _, b := range blocks(readFile(t, page)) {
			if top && !runs && !b.example {
				t.Errorf("%s:%d: the commands run in no test: add the page to runPages, or precede the block with %s", page, b.line, exampleMark)
			}
		}
	}
}
