package children

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
)

// VerifiesLabel contains the name of the Echo on the pods of its verifier. They do not have EchoLabel,
// which selects the pods that serve the Echo.
const VerifiesLabel = "kkloud.io/verifies"

// ResponseLabel identifies the response of a server's pod. On the pods of a verifier, it identifies the response that they
// expect and the server that should give it. So a pod is of the newest response exactly if the label has the value that the
// pod template has.
const ResponseLabel = "kkloud.io/response"

const verifierPrefix = "verify-"

// Inputs are what the desired state of children depends on beside their Echo.
type Inputs struct {
	// ServerImage is the server image of an Echo that does not set its own.
	ServerImage string
	// VerifierImage is the image of the verifier.
	VerifierImage string
	// ClusterIPs are the addresses of the Echo's Service.
	ClusterIPs []string
	// OverriddenRoutes are the HTTPRoutes that the Echo overrides, in the order of its spec, or the Echo's own one while one of
	// them is missing.
	OverriddenRoutes []gatewayv1.HTTPRoute
	// KeepsRoutePort is true while a Gateway may know an HTTPRoute that the Echo no longer wants.
	KeepsRoutePort bool
	// Route is the HTTPRoute of an Echo that overrides others, if it exists, and Pods are its ready pods. A Gateway learns of
	// deletions in any order, and responds with an error while it knows a route, but no longer its Service. So the Deployment
	// outlives the HTTPRoute, and the Service a pod, which terminates slowly.
	Route, Pods []metav1.OwnerReference
}

// WantsVerifierDaemonSet reports whether the Echo is verified by a pod on every node.
func WantsVerifierDaemonSet(echo *echov1.Echo) bool {
	return ptr.Deref(echo.Spec.Verify, echov1.Verify{}).From == echov1.VerifyFromEveryNode
}

// VerifierSelector returns the labels that select the pods of the Echo's verifier.
func VerifierSelector(echo *echov1.Echo) labels.Set {
	return labels.Set{VerifiesLabel: echo.Name}
}

// VerifierDeployment mutates the verifier of an Echo that is verified by one pod. Two pods would not
// be more reliable: a rollout replaces the pod, so that at most one result exists.
func VerifierDeployment(deployment *appsv1.Deployment, echo *echov1.Echo, in Inputs) {
	spec := &deployment.Spec
	mutateWorkload(deployment, ensure(&spec.Selector), &spec.Template, echo, verifierComponent, VerifierSelector(echo))
	spec.Replicas = ptr.To[int32](1)
	spec.Paused = false
	spec.MinReadySeconds = 0
	spec.ProgressDeadlineSeconds = new(progressDeadlineSeconds)
	spec.RevisionHistoryLimit = ptr.To[int32](1)
	spec.Strategy = appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType}
	mutateVerifierPod(&spec.Template, echo, in)
}

// VerifierDaemonSet mutates the verifier of an Echo that is verified from every node. A rollout
// replaces all pods at once: none of them serves requests.
func VerifierDaemonSet(set *appsv1.DaemonSet, echo *echov1.Echo, in Inputs) {
	spec := &set.Spec
	mutateWorkload(set, ensure(&spec.Selector), &spec.Template, echo, verifierComponent, VerifierSelector(echo))
	spec.MinReadySeconds = 0
	spec.RevisionHistoryLimit = ptr.To[int32](1)
	spec.UpdateStrategy.Type = appsv1.RollingUpdateDaemonSetStrategyType
	rolling := ensure(&spec.UpdateStrategy.RollingUpdate)
	rolling.MaxUnavailable, rolling.MaxSurge = new(intstr.FromString("100%")), new(intstr.FromInt32(0))
	mutateVerifierPod(&spec.Template, echo, in)
}

// verifierGraceSeconds is the time that a verifier has to stop. It stops at once.
const verifierGraceSeconds int64 = 5

func mutateVerifierPod(template *corev1.PodTemplateSpec, echo *echov1.Echo, in Inputs) {
	template.Labels[ResponseLabel] = responseHash(echo, in)
	delete(template.Labels, EchoLabel) // The Service of the Echo would select the pods.
	pod := &template.Spec
	mutatePodIsolation(pod)
	pod.TerminationGracePeriodSeconds = new(verifierGraceSeconds)
	mutatePodSecurity(ensure(&pod.SecurityContext), echo)
	mutateNodes(pod, true)
	wanted := layers(echo, in)
	pod.Containers = slices.DeleteFunc(pod.Containers, func(c corev1.Container) bool {
		return IsLayer(c.Name) && !slices.ContainsFunc(wanted, func(l layer) bool { return l.name == c.Name })
	})
	for i, l := range wanted {
		isNamed := func(c corev1.Container) bool { return c.Name == l.name }
		if !slices.ContainsFunc(pod.Containers, isNamed) {
			pod.Containers = slices.Insert(pod.Containers, i, corev1.Container{Name: l.name})
		}
		mutateVerifierContainer(&pod.Containers[slices.IndexFunc(pod.Containers, isNamed)], l, echo, in)
	}
}

// layer is a layer that one container of a verifier verifies.
type layer struct {
	name string
	port int32
}

// allLayers are the layers, with the names that the verifier gives them.
var allLayers = []layer{{"dns", 8081}, {"service", 8082}, {"route", 8083}}

// IsLayer reports whether the container with that name verifies a layer. Others may add containers to
// the pods of a verifier.
func IsLayer(container string) bool {
	return slices.ContainsFunc(allLayers, func(l layer) bool { return l.name == container })
}

// layers returns the layers on which the response of the Echo is verified.
func layers(echo *echov1.Echo, in Inputs) (wanted []layer) {
	declared := ptr.Deref(echo.Spec.Verify, echov1.Verify{}).Layers
	for _, l := range allLayers {
		isDeclared := len(declared) == 0 || slices.ContainsFunc(declared, func(name string) bool { return strings.EqualFold(name, l.name) })
		if isDeclared && (l.name != "route" || ExternalURL(echo, in) != "") {
			wanted = append(wanted, l)
		}
	}
	return wanted
}

func (l layer) portName() string { return verifierPrefix + l.name }

const (
	// readinessSeconds is the time in which the kubelet reads the result once.
	readinessSeconds int32 = 2
	// probeTimeoutSeconds is how long it waits for it, on a node without free CPU time.
	probeTimeoutSeconds int32 = 5
)

// defaultVerifierResources are those of each container of a verifier whose Echo sets none.
var defaultVerifierResources = echov1.Resources{Requests: quantities("5m", "16Mi"), Limits: quantities("50m", "32Mi")}

func mutateVerifierContainer(container *corev1.Container, l layer, echo *echov1.Echo, in Inputs) {
	container.Image = in.VerifierImage
	container.ImagePullPolicy = corev1.PullIfNotPresent
	container.TerminationMessagePolicy = corev1.TerminationMessageFallbackToLogsOnError
	container.Command, container.Args = nil, l.args(echo, in)
	mutatePort(&container.Ports, l.portName(), l.port)
	verify := ptr.Deref(echo.Spec.Verify, echov1.Verify{})
	setResources(container, verify.Resources, defaultVerifierResources)
	mutateContainerSecurity(ensure(&container.SecurityContext))
	container.LivenessProbe = nil
	mutateProbe(ensure(&container.StartupProbe), "/startz", intstr.FromString(l.portName()), 1, probeTimeoutSeconds)
	container.StartupProbe.FailureThreshold = StartSeconds(&verify)
	mutateProbe(ensure(&container.ReadinessProbe), "/readyz", intstr.FromString(l.portName()), readinessSeconds, probeTimeoutSeconds)
	container.ReadinessProbe.FailureThreshold = 1
}

// startSeconds is how much longer than its rounds a verifier may take until it has a result.
const startSeconds = 60

// args returns the flags of the verifier. They never contain the message.
func (l layer) args(echo *echov1.Echo, in Inputs) []string {
	verify := ptr.Deref(echo.Spec.Verify, echov1.Verify{PeriodSeconds: 1, TimeoutSeconds: 1, FailureThreshold: 1})
	args := []string{"-layer=" + l.name, "-url=" + l.url(echo, in)}
	if l.name != "route" {
		args = append(args, "-cluster-ips="+strings.Join(ClusterIPs(in), ","))
	}
	if l.name != "dns" {
		args = append(args, expectation(echo, l)...)
	}
	args = append(args,
		fmt.Sprintf("-period=%ds", verify.PeriodSeconds),
		fmt.Sprintf("-timeout=%ds", verify.TimeoutSeconds),
		fmt.Sprintf("-failure-threshold=%d", verify.FailureThreshold),
		fmt.Sprintf("-listen=:%d", l.port),
	)
	for i := range args {
		args[i] = escapeDollars(args[i])
	}
	return args
}

// url returns the URL that the verifier requests. Only the default server gives the same response at
// every path.
func (l layer) url(echo *echov1.Echo, in Inputs) string {
	switch l.name {
	case "service":
		return URL(echo) + requestableReadinessPath(echo)
	case "route":
		return routedURL(echo, in)
	default:
		return URL(echo)
	}
}

// requestableReadinessPath returns the readiness path, or an empty string if a client cannot request it. It may have a
// percent sign without two digits, which the kubelet escapes.
func requestableReadinessPath(echo *echov1.Echo) string {
	if _, err := url.Parse("http://host" + echo.Spec.ReadinessPath); err != nil {
		return ""
	}
	return echo.Spec.ReadinessPath
}

// routedURL returns the URL that the verifier requests through the route: that of the readiness path where the route serves
// it, or else the external URL.
func routedURL(echo *echov1.Echo, in Inputs) string {
	t, readinessPath := targetOf(echo, in), requestableReadinessPath(echo)
	withoutQuery, _, _ := strings.Cut(readinessPath, "?")
	for _, match := range t.matches {
		if readinessPath != "" && matchesRequest(match, withoutQuery) {
			return t.address(echo) + readinessPath
		}
	}
	return ExternalURL(echo, in)
}

// ClusterIPs returns the addresses of the Service. A headless Service has none.
func ClusterIPs(in Inputs) []string {
	return slices.DeleteFunc(slices.Clone(in.ClusterIPs), func(ip string) bool {
		_, err := netip.ParseAddr(ip)
		return err != nil
	})
}

// expectation returns the flags that describe the response on a layer. The status of a custom server is
// the only thing known about its response.
func expectation(echo *echov1.Echo, l layer) []string {
	if isCustomServer(echo) {
		return []string{"-status=0"}
	}
	code, headers := cmp.Or(int(echo.Spec.StatusCode), http.StatusOK), serverHeaders(echo)
	body := Text(echo) + "\n" // The server appends the newline.
	switch code {
	case http.StatusNoContent, http.StatusResetContent, http.StatusNotModified:
		body = ""
	}
	// The server declares its default only for a body.
	if body != "" && !hasHeader(headers, contentType) {
		headers = append(slices.Clone(headers), echov1.Header{Name: contentType, Value: "text/plain; charset=utf-8"})
	}
	digest := sha256.Sum256([]byte(body))
	flags := []string{"-status=" + strconv.Itoa(code), "-length=" + strconv.Itoa(len(body)), "-sha256=" + hex.EncodeToString(digest[:])}
	for _, header := range headers {
		if l.name != "route" || !forProxies.MatchString(header.Name) {
			flags = append(flags, "-header="+header.Name+": "+header.Value)
		}
	}
	return flags
}

// forProxies matches the headers of a response that proxies replace, complete or remove, because they are about them or
// for them: those that RFC 9110 names, and the instructions for nginx and Envoy.
var forProxies = regexp.MustCompile(`(?i)^(server|via|warning|te|proxy-.*|x-accel-.*|x-envoy-.*)$`)

// responseHash returns the value of ResponseLabel for a verifier.
func responseHash(echo *echov1.Echo, in Inputs) string {
	spec := &echo.Spec
	parts := slices.Concat([]string{cmp.Or(spec.Image, in.ServerImage), strconv.Itoa(len(spec.Command))}, spec.Command, spec.Args)
	for _, l := range layers(echo, in) {
		parts = append(parts, l.args(echo, in)...)
	}
	return hashOf(parts)
}

func hashOf(parts []string) string {
	hash := sha256.New()
	for _, part := range parts {
		fmt.Fprintf(hash, "%d %s", len(part), part)
	}
	return hex.EncodeToString(hash.Sum(nil)[:8])
}

// resultWindow is the number of rounds that the result of a verifier remembers.
const resultWindow = 10

// DecisionSeconds returns how long a verifier may take for a result, in seconds: from its start, or,
// for a verifier that received the responses of an earlier spec during a rollout, from the end of the
// rollout.
func DecisionSeconds(verify *echov1.Verify, sawRollout bool) int32 {
	rounds := verify.FailureThreshold
	if sawRollout {
		rounds = resultWindow
	}
	return rounds*(verify.PeriodSeconds*11/10+1+verify.TimeoutSeconds) + settleSeconds // The period varies by a tenth.
}

// settleSeconds is how long the kubelet may take to report a result.
const settleSeconds = 5

// StartSeconds returns after how many seconds the kubelet restarts a container of a verifier that has no result.
func StartSeconds(verify *echov1.Verify) int32 { return DecisionSeconds(verify, false) + startSeconds }
