package docs

const root = "../.."

const (
	quickStart = "README.md"
	tutorial   = "docs/getting-started.md"
	runbooks   = "docs/runbooks.md"
	statusPage = "docs/status.md"

	// demoNamespace is the namespace that the pages use.
	demoNamespace = "echo-demo"
)

// apply returns a command that applies the Echo "hello" with a spec.
func apply(spec string) string {
	return "kubectl apply -f - <<END\napiVersion: kkloud.io/v1\nkind: Echo\nmetadata: {name: hello}\nspec: " + spec + "\nEND"
}

// hello creates the Echo that most pages are about, in the default namespace of kubectl.
var hello = apply(`{message: hello, verify: {}}`) + `
kubectl wait --for=condition=Ready --timeout=2m echo/hello`

// setups create the Echoes that some sections of the runbooks are about.
var setups = map[string]string{
	"EchoNotReady": apply(`{message: hello, pod: {nodeSelector: {example.com/disk: none}}}`) + `
kubectl wait --for=condition=Degraded --timeout=2m echo/hello`,
	"EchoConflict": `kubectl create service clusterip echo-hello --tcp=80
` + apply(`{message: hello}`) + `
kubectl wait --for=condition=Degraded --timeout=1m echo/hello`,
	"EchoNotVerified": `image=$(kubectl -n echo-operator-system get deployment echo-operator-controller-manager \
  -o jsonpath='{.spec.template.spec.containers[0].env[?(@.name=="RELATED_IMAGE_HTTP_ECHO")].value}')
` + apply(`{message: hello, verify: {periodSeconds: 1, timeoutSeconds: 1}, image: "$image", targetPort: 5678, args: ["-listen=:5678", "-text=hello", "-status-code=404"]}`) + `
kubectl wait --for=condition=Verified=False --timeout=2m echo/hello`,
	"EchoVerifierNotRunning": `kubectl create quota one --hard=pods=1
` + apply(`{message: hello, verify: {}}`) + `
for i in $(seq 120); do
  [ "$(kubectl get echo hello -o jsonpath='{.status.conditions[?(@.type=="Verified")].reason}')" != VerifierNotRunning ] || break
  sleep 1
done`,
}
