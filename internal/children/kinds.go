package children

import (
	"cmp"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
)

// Object is a child. It has the methods of client.Object of controller-runtime, which this
// package does not import.
type Object interface {
	metav1.Object
	runtime.Object
}

// Kind is one kind of object that an Echo owns. The operator and its tests range over Kinds,
// so a new kind is added here.
type Kind struct {
	// Name of the kind of child, in metrics and in the status. It is that of the kind of object, for
	// example "Deployment", unless an Echo has several children of that kind.
	Name string
	// ObjectKind is the kind of object, for example "Deployment".
	ObjectKind string
	// Resource is the name of the kind in RBAC rules, audit logs and request paths.
	Resource schema.GroupVersionResource
	// New returns an empty object.
	New func() Object
	// Conditional is true if an Echo may have no child of this kind.
	Conditional bool
	// OptionalAPI is true for the kind that the cluster may not serve. The operator watches it while the
	// API server serves it.
	OptionalAPI bool
	// Verifier is true for the child that verifies the response. The operator writes it after the rollout
	// of the other children.
	Verifier bool
	// Wanted reports whether the Echo has a child of this kind.
	Wanted func(*echov1.Echo) bool
	// ResponseFields are the fields that determine the response to a client. If admission changes
	// one, the Echo is not Ready. An item of a list is named by its field "name", or its index.
	ResponseFields []string
	// Mutate sets the fields that the operator owns on an empty or a live object.
	Mutate func(object Object, echo *echov1.Echo, in Inputs)
}

// ChildName returns the name of the Echo's child of this kind.
func (k Kind) ChildName(echo *echov1.Echo) string {
	if k.Verifier {
		return VerifierName(echo)
	}
	return Name(echo)
}

// WatchedKinds returns the kinds without those whose kind of object an earlier one has.
func WatchedKinds() []Kind {
	return slices.CompactFunc(slices.Clone(Kinds), func(a, b Kind) bool { return a.Resource == b.Resource })
}

// OptionalKind returns the kind that the cluster may not serve.
func OptionalKind() Kind {
	return Kinds[slices.IndexFunc(Kinds, func(kind Kind) bool { return kind.OptionalAPI })]
}

// The operator deletes only conditional children, and the garbage collector the others. But a cluster
// that protects owner references, such as OpenShift, requires permission to delete an orphan for its
// adoption.
// +kubebuilder:rbac:groups="",resources=services,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=apps,resources=deployments;daemonsets,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=policy,resources=poddisruptionbudgets,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=gateway.networking.k8s.io,resources=httproutes,verbs=get;list;watch;create;patch;delete

// Kinds lists the kinds that an Echo owns, in the order in which the operator writes them. The
// Service comes first, so that the first ready pod is reachable immediately, and the budget before the Deployment, whose
// replicas tell whether there may be one.
var Kinds = []Kind{
	newKind(Kind{
		ObjectKind:     "Service",
		Resource:       corev1.SchemeGroupVersion.WithResource("services"),
		Wanted:         always,
		ResponseFields: []string{"spec.externalName", "spec.ports", "spec.selector", "spec.type"},
	}, Service),
	newKind(Kind{
		ObjectKind: "PodDisruptionBudget",
		Resource:   policyv1.SchemeGroupVersion.WithResource("poddisruptionbudgets"),
		// With a single pod, a budget would only block the drain of its node.
		Wanted:      func(echo *echov1.Echo) bool { return echo.Spec.Replicas > 1 },
		Conditional: true,
	}, PodDisruptionBudget),
	newKind(Kind{
		ObjectKind: "Deployment",
		Resource:   appsv1.SchemeGroupVersion.WithResource("deployments"),
		Wanted:     always,
		ResponseFields: []string{
			"spec.replicas",
			"spec.selector",
			"spec.template.metadata.labels[" + EchoLabel + "]",
			"spec.template.spec.containers[" + containerName + "].args",
			"spec.template.spec.containers[" + containerName + "].command",
			"spec.template.spec.containers[" + containerName + "].env",
			"spec.template.spec.containers[" + containerName + "].name",
			"spec.template.spec.containers[" + containerName + "].ports",
		},
	}, Deployment),
	newKind(Kind{
		Name:           "VerifierDeployment",
		ObjectKind:     "Deployment",
		Resource:       appsv1.SchemeGroupVersion.WithResource("deployments"),
		Conditional:    true,
		Verifier:       true,
		Wanted:         func(echo *echov1.Echo) bool { return echo.Spec.Verify != nil && !WantsVerifierDaemonSet(echo) },
		ResponseFields: append([]string{"spec.replicas"}, verifierResponseFields...),
	}, VerifierDeployment),
	newKind(Kind{
		Name:           "VerifierDaemonSet",
		ObjectKind:     "DaemonSet",
		Resource:       appsv1.SchemeGroupVersion.WithResource("daemonsets"),
		Conditional:    true,
		Verifier:       true,
		Wanted:         WantsVerifierDaemonSet,
		ResponseFields: verifierResponseFields,
	}, VerifierDaemonSet),
	newKind(Kind{
		ObjectKind:     "HTTPRoute",
		Resource:       schema.GroupVersionResource{Group: gatewayv1.GroupName, Version: "v1", Resource: "httproutes"},
		Wanted:         WantsHTTPRoute,
		ResponseFields: []string{"spec.hostnames", "spec.parentRefs", "spec.rules"},
		Conditional:    true,
		OptionalAPI:    true,
	}, HTTPRoute),
}

// newKind completes a kind with the type of its objects, which a mutate function has.
func newKind[T any, O interface {
	*T
	Object
}](kind Kind, mutate func(O, *echov1.Echo, Inputs)) Kind {
	kind.Name = cmp.Or(kind.Name, kind.ObjectKind)
	kind.New = func() Object { return O(new(T)) }
	kind.Mutate = func(o Object, echo *echov1.Echo, in Inputs) { mutate(o.(O), echo, in) }
	return kind
}

func always(*echov1.Echo) bool { return true }

// verifierResponseFields are the fields of a verifier that determine what its result is about.
var verifierResponseFields = func() []string {
	fields := []string{"spec.selector"}
	for _, label := range []string{EchoLabel, VerifiesLabel, ResponseLabel} {
		fields = append(fields, "spec.template.metadata.labels["+label+"]")
	}
	for _, l := range allLayers {
		for _, field := range []string{"args", "command", "name", "ports", "readinessProbe", "startupProbe"} {
			fields = append(fields, "spec.template.spec.containers["+l.name+"]."+field)
		}
	}
	return fields
}()
