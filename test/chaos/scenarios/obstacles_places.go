package scenarios

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/discovery"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/children"
	"github.com/kkloud-io/echo-operator/internal/testing/controlplane"
	"github.com/kkloud-io/echo-operator/test/chaos/harness"
)

// place is where an obstacle is.
type place struct {
	name string
	// resource is what it stops.
	resource schema.GroupVersionResource
	// object returns an object that is the obstacle in its namespace. policy has cluster-wide objects that are one in
	// each namespace with the label. Without both, the obstacle is a finalizer.
	object func() client.Object
	policy []client.Object
	// patience is how much longer the status may take, because the place makes progress now and then.
	patience time.Duration
	// everywhere is true if one case is enough for a resource that no Echo has.
	everywhere bool
	// ofDeletion is true if it denies deletions.
	ofDeletion bool
	// holdsPods is true if the obstacle remains in the pods after its policy is removed.
	holdsPods bool
	// byOperator is true if it stops the operator itself, not a controller.
	byOperator bool
}

// coreOfPlaces has one place of each kind.
var coreOfPlaces = []string{
	"quota count/replicasets.apps", "quota requests.cpu", "LimitRange Container min memory", "policy denies CREATE replicasets", "policy denies CREATE pods",
	"finalizer on pods", "Pod spec.schedulingGates", "Pod spec.volumes.secret", "kubelet waiting:PreStartHookError", "kubelet rejected:OutOfcpu",
}

func (p place) isFinalizer() bool { return p.object == nil && p.policy == nil }

// objectName is the name of the object that is an obstacle.
func objectName(place string) string {
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(place)) // It never fails.
	return fmt.Sprintf("obstacle-%08x", hash.Sum32())
}

// survey is what the API server serves, and what of it belongs to the Echoes of each target.
type survey struct {
	*harness.Environment
	discovery *discovery.DiscoveryClient
	// resources are all that can be created in a namespace.
	resources []schema.GroupVersionResource
	// trees are the resources of the objects of an Echo, by target: its children, and what controllers create for these.
	trees  map[string]sets.Set[schema.GroupVersionResource]
	places []place
}

func surveyed(i int) string { return fmt.Sprintf("surveyed-%d", i) }

// run creates an Echo of each target, and generates the places from what the API server has.
func (s *survey) run(ctx context.Context) (err error) {
	if s.discovery, err = discovery.NewDiscoveryClientForConfig(s.Plane.Config); err != nil {
		return err
	}
	if err := s.discover(); err != nil {
		return err
	}
	s.trees = map[string]sets.Set[schema.GroupVersionResource]{}
	for i, t := range targets {
		c := &obstacleCase{survey: s, target: t, namespace: surveyed(i)}
		if err := errors.Join(s.createNamespace(ctx, c.namespace, t), c.createReady(ctx, t.verify)); err != nil {
			return err
		}
		s.trees[t.name] = sets.Set[schema.GroupVersionResource]{}
		for _, resource := range s.resources {
			if list, err := c.list(ctx, resource); err != nil {
				return err
			} else if len(list) > 0 {
				s.trees[t.name].Insert(resource)
			}
		}
	}
	settings, err := s.podSettings(ctx, surveyed(0))
	if err != nil {
		return err
	}
	s.places = slices.Concat(s.quotas(), limitRanges(), s.denials(), s.finalizers(), settings, kubeletStates())
	for _, p := range s.places {
		for _, object := range p.policy {
			if err := s.Client.Create(ctx, object); err != nil {
				return fmt.Errorf("%s: %w", p.name, err)
			}
		}
	}
	return nil
}

func (s *survey) cleanUp(ctx context.Context) error {
	var errs []error
	for i := range targets {
		errs = append(errs, s.deleteNamespace(ctx, surveyed(i)))
	}
	for _, p := range s.places {
		for _, object := range p.policy {
			errs = append(errs, client.IgnoreNotFound(s.Client.Delete(ctx, object)))
		}
	}
	return errors.Join(errs...)
}

// discover lists the resources that can be created in a namespace.
func (s *survey) discover() error {
	lists, err := s.discovery.ServerPreferredNamespacedResources()
	for _, list := range lists {
		version, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return err
		}
		for _, r := range list.APIResources {
			if slices.Contains(r.Verbs, "create") && slices.Contains(r.Verbs, "list") {
				s.resources = append(s.resources, version.WithResource(r.Name))
			}
		}
	}
	return err
}

// concerns reports whether the place has something to stop for the target at that moment.
func (s *survey) concerns(p place, t target, m moment) bool {
	switch isFirst := m.name == moments[0].name; {
	case !s.trees[t.name].Has(p.resource):
		return p.everywhere && isFirst && t.name == targets[0].name
	case p.isFinalizer():
		return !isFirst // Nothing exists yet.
	default:
		return !p.ofDeletion || m.name != moments[2].name
	}
}

// list returns the objects of the resource that belong to the target.
func (c *obstacleCase) list(ctx context.Context, resource schema.GroupVersionResource) ([]unstructured.Unstructured, error) {
	kind, err := c.Client.RESTMapper().KindFor(resource)
	if err != nil {
		return nil, err
	}
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(kind)
	err = c.Client.List(ctx, list, client.InNamespace(c.namespace), client.MatchingLabels{componentLabel: c.target.component})
	if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
		return nil, nil
	}
	return list.Items, err
}

func (s *survey) createNamespace(ctx context.Context, name string, t target) error {
	labels := map[string]string{"pod-security.kubernetes.io/enforce": "restricted", targetLabel: t.component}
	return s.Client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}})
}

func (s *survey) deleteNamespace(ctx context.Context, name string) error {
	return client.IgnoreNotFound(s.Client.Delete(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}))
}

// ofEchoes returns the resources of the objects of the Echoes of all targets.
func (s *survey) ofEchoes() []schema.GroupVersionResource {
	return slices.DeleteFunc(slices.Clone(s.resources), func(resource schema.GroupVersionResource) bool {
		return !slices.ContainsFunc(targets, func(t target) bool { return s.trees[t.name].Has(resource) })
	})
}

// isChild reports whether the operator writes the resource.
func isChild(resource schema.GroupVersionResource) bool {
	return slices.ContainsFunc(children.Kinds, func(kind children.Kind) bool { return kind.Resource == resource })
}

var (
	podResource      = corev1.SchemeGroupVersion.WithResource("pods")
	computeResources = []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage}
)

// quotas are those of the number of each resource, and of what pods use.
func (s *survey) quotas() (all []place) {
	add := func(name corev1.ResourceName, p place) {
		p.name = "quota " + string(name)
		p.object = func() client.Object {
			return &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: objectName(p.name)}, Spec: corev1.ResourceQuotaSpec{
				Hard: corev1.ResourceList{name: resource.MustParse("0")},
			}}
		}
		all = append(all, p)
	}
	for _, resource := range s.resources {
		isCounted := resource.Resource != "events"               // The controller of quotas ignores them.
		isOfSuite := resource.Group == echov1.GroupVersion.Group // The suite itself creates Echoes.
		if isCounted && !isOfSuite {
			add("count/"+corev1.ResourceName(resource.GroupResource().String()), place{resource: resource, everywhere: true, byOperator: isChild(resource)})
		}
	}
	for _, name := range computeResources {
		for _, prefix := range []corev1.ResourceName{"", "requests.", "limits."} {
			add(prefix+name, place{resource: podResource})
		}
	}
	add(corev1.ResourcePods, place{resource: podResource})
	add(corev1.ResourceServices, place{resource: service.Resource, byOperator: true})
	return all
}

// limitRanges are those that the pods of an Echo may violate.
func limitRanges() (all []place) {
	add := func(limit string, item corev1.LimitRangeItem, name corev1.ResourceName) {
		p := place{name: fmt.Sprintf("LimitRange %s %s %s", item.Type, limit, name), resource: podResource}
		p.object = func() client.Object {
			return &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Name: objectName(p.name)}, Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{item}}}
		}
		all = append(all, p)
	}
	for _, of := range []corev1.LimitType{corev1.LimitTypeContainer, corev1.LimitTypePod} {
		for _, name := range computeResources {
			list := func(quantity string) corev1.ResourceList {
				return corev1.ResourceList{name: resource.MustParse(quantity)}
			}
			add("min", corev1.LimitRangeItem{Type: of, Min: list("1000G")}, name)
			add("max", corev1.LimitRangeItem{Type: of, Max: list("1m")}, name)
			add("ratio", corev1.LimitRangeItem{Type: of, MaxLimitRequestRatio: list("1")}, name)
		}
	}
	return all
}

// finalizers are those on each kind of object of an Echo.
func (s *survey) finalizers() (all []place) {
	for _, resource := range s.ofEchoes() {
		all = append(all, place{name: "finalizer on " + resource.Resource, resource: resource, byOperator: true})
	}
	return all
}

// belongs is the CEL expression that an object belongs to the target of its namespace.
const belongs = `(object == null ? oldObject : object).metadata.?labels[?"` + componentLabel + `"].orValue("") == namespaceObject.metadata.labels["` + targetLabel + `"]`

// denials are policies that deny writes of each kind of object of an Echo, and of its status.
func (s *survey) denials() (all []place) {
	for _, resource := range s.ofEchoes() {
		all = append(all,
			denial(resource, "", admissionregistrationv1.Create), denial(resource, "", admissionregistrationv1.Update),
			denial(resource, "", admissionregistrationv1.Delete), denial(resource, "/status", admissionregistrationv1.Update))
	}
	return all
}

func denial(resource schema.GroupVersionResource, subresource string, operation admissionregistrationv1.OperationType) place {
	p := place{name: fmt.Sprintf("policy denies %s %s%s", operation, resource.Resource, subresource), resource: resource}
	p.ofDeletion = operation == admissionregistrationv1.Delete
	p.byOperator = operation == admissionregistrationv1.Create && isChild(resource)
	name := metav1.ObjectMeta{Name: objectName(p.name)}
	resource.Resource += subresource
	p.policy = []client.Object{
		&admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: name, Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			FailurePolicy: ptr.To(admissionregistrationv1.Fail), MatchConstraints: matchLabeled(name.Name, resource, operation),
			Validations: []admissionregistrationv1.Validation{{Expression: "!(" + belongs + ")", Message: policyMessage}},
		}},
		&admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: name, Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: name.Name, ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
		}},
	}
	return p
}

// mutation is a policy that changes the pods.
func mutation(name, patch string) place {
	meta := metav1.ObjectMeta{Name: objectName(name)}
	return place{name: name, resource: podResource, holdsPods: true, policy: []client.Object{
		&admissionregistrationv1.MutatingAdmissionPolicy{ObjectMeta: meta, Spec: admissionregistrationv1.MutatingAdmissionPolicySpec{
			FailurePolicy: ptr.To(admissionregistrationv1.Fail), ReinvocationPolicy: admissionregistrationv1.NeverReinvocationPolicy,
			MatchConstraints: matchLabeled(meta.Name, podResource, admissionregistrationv1.Create),
			Mutations: []admissionregistrationv1.Mutation{{
				PatchType: admissionregistrationv1.PatchTypeJSONPatch,
				JSONPatch: &admissionregistrationv1.JSONPatch{Expression: belongs + " ? " + patch + " : []"},
			}},
		}},
		&admissionregistrationv1.MutatingAdmissionPolicyBinding{
			ObjectMeta: meta, Spec: admissionregistrationv1.MutatingAdmissionPolicyBindingSpec{PolicyName: meta.Name},
		},
	}}
}

// matchLabeled matches the operation on the resource, in namespaces with the label.
func matchLabeled(label string, resource schema.GroupVersionResource, operation admissionregistrationv1.OperationType) *admissionregistrationv1.MatchResources {
	match := matchWrites(resource)
	match.ResourceRules[0].Operations = []admissionregistrationv1.OperationType{operation}
	match.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{obstacleLabel: label}}
	return match
}

// kubeletStates are what the kubelet reports of pods that do not run.
func kubeletStates() (all []place) {
	images := map[string]string{"never ready": controlplane.NeverReady, "flapping": controlplane.Flapping}
	for _, reason := range controlplane.WaitingReasons {
		images["waiting:"+reason] = controlplane.Waiting + reason
	}
	for _, reason := range controlplane.RejectionReasons {
		images["rejected:"+reason] = controlplane.Rejected + reason
	}
	for _, name := range sets.List(sets.KeySet(images)) {
		p := mutation("kubelet "+name, jsonPatch("replace", "/spec/containers/0/image", fmt.Sprintf("%q", images[name])))
		if name == "flapping" {
			p.patience = 2 * causeLimit // Each of two pods becomes ready.
		}
		all = append(all, p)
	}
	return all
}
