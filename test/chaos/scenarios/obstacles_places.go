package scenarios

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kkloud-io/echo-operator/internal/children"
	"github.com/kkloud-io/echo-operator/internal/testing/controlplane"
	"github.com/kkloud-io/echo-operator/test/chaos/harness"
)

// place is where an obstacle is.
type place struct {
	name string
	// id is the name of the obstacle's object.
	id string
	// resource is what it stops.
	resource schema.GroupVersionResource
	// object returns an object that is the obstacle in its namespace. policy has objects that are one in each namespace
	// with the label. finalizer keeps objects from being deleted.
	object    func(id string) client.Object
	policy    []client.Object
	finalizer bool
	// ofDeletion is true if it denies deletions.
	ofDeletion bool
	// holdsPods is true if the obstacle remains in the pods after its policy is removed.
	holdsPods bool
	// byOperator is true if it stops the operator itself, not a controller.
	byOperator bool
	// everywhere is true if it may concern any resource, so that one case is enough for others than those of the Echo.
	everywhere bool
	// core includes it in the fixed core.
	core bool
}

// names are the names by which messages of the cluster call the obstacle.
func (p place) names() []string { return []string{p.id, `"` + controlplane.Missing + `"`} }

// treeKind is a kind of object that belongs to a target, with the resource that discovery lists.
type treeKind struct {
	schema.GroupVersionKind
	resource string
}

type tree map[schema.GroupResource]treeKind

// survey is what the API server serves, and what of it belongs to the Echoes of each target.
type survey struct {
	*harness.Environment
	resources []treeKind
	trees     map[string]tree
	places    []place
}

func surveyed(i int) string { return fmt.Sprintf("surveyed-%d", i) }

// run creates an Echo of each target, and generates the places from what the API server has.
func (s *survey) run(ctx context.Context) error {
	if err := s.discover(); err != nil {
		return err
	}
	s.trees = map[string]tree{}
	for i, t := range targets {
		c := &obstacleCase{survey: s, target: t, namespace: surveyed(i)}
		if err := errors.Join(s.createNamespace(ctx, c.namespace, t)); err != nil {
			return err
		}
		if err := c.createReady(ctx, t.verify); err != nil {
			return err
		}
		s.trees[t.name] = tree{}
		for _, kind := range s.resources {
			list, err := s.list(ctx, kind, c.namespace, t.component)
			if err != nil && !noMatch(err) {
				return err
			}
			if err == nil && len(list.Items) > 0 {
				s.trees[t.name][schema.GroupResource{Group: kind.Group, Resource: kind.resource}] = kind
			}
		}
	}
	settings, err := s.podSettings(ctx, surveyed(0))
	if err != nil {
		return err
	}
	s.places = slices.Concat(s.quotas(), limitRanges(), s.denials(), s.finalizers(), settings, kubeletStates())
	for i := range s.places {
		p := &s.places[i]
		p.id = fmt.Sprintf("obstacle-%d", i)
		p.core = slices.Contains(coreOfPlaces, p.name)
		for _, object := range p.policy {
			object.SetName(p.id)
			if binding, is := object.(*admissionregistrationv1.ValidatingAdmissionPolicyBinding); is {
				binding.Spec.PolicyName = p.id
			}
			if binding, is := object.(*admissionregistrationv1.MutatingAdmissionPolicyBinding); is {
				binding.Spec.PolicyName = p.id
			}
			for _, resources := range matchOf(object) {
				resources.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{obstacleLabel: p.id}}
			}
			if err := s.Client.Create(ctx, object); err != nil {
				return fmt.Errorf("%s: %w", p.name, err)
			}
		}
	}
	return nil
}

// coreOfPlaces has one place of each kind.
var coreOfPlaces = []string{
	"quota count/replicasets.apps", "quota requests.cpu", "LimitRange Container min memory", "policy denies CREATE replicasets", "policy denies CREATE pods",
	"finalizer on pods", "Pod spec.schedulingGates", "Pod spec.volumes.secret", "kubelet waiting:PreStartHookError", "kubelet rejected:OutOfcpu",
}

func (s *survey) cleanUp(ctx context.Context) error {
	var errs []error
	for i := range targets {
		errs = append(errs, deleteNamespace(ctx, s.Environment, surveyed(i)))
	}
	for _, p := range s.places {
		for _, object := range p.policy {
			errs = append(errs, client.IgnoreNotFound(s.Client.Delete(ctx, object)))
		}
	}
	return errors.Join(errs...)
}

// concerns reports whether the place has something to stop for the target at that moment.
func (s *survey) concerns(p place, t target, m moment) bool {
	_, found := s.trees[t.name][p.resource.GroupResource()]
	isFirst := t.name == targets[0].name && m.name == moments[0].name
	switch {
	case !found:
		return p.everywhere && isFirst
	case p.finalizer:
		return m.name != moments[0].name // Nothing exists yet.
	case p.ofDeletion:
		return m.name != moments[2].name // It denies that deletion.
	default:
		return true
	}
}

// discover lists the namespaced resources that can be created.
func (s *survey) discover() error {
	d, err := discovery.NewDiscoveryClientForConfig(s.Plane.Config)
	if err != nil {
		return err
	}
	lists, err := d.ServerPreferredNamespacedResources()
	if err != nil {
		return err
	}
	for _, list := range lists {
		version, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return err
		}
		for _, r := range list.APIResources {
			if slices.Contains(r.Verbs, "create") && slices.Contains(r.Verbs, "list") {
				s.resources = append(s.resources, treeKind{version.WithKind(r.Kind), r.Name})
			}
		}
	}
	return nil
}

func (s *survey) list(ctx context.Context, kind treeKind, namespace, component string) (*unstructured.UnstructuredList, error) {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(kind.GroupVersionKind)
	return list, s.Client.List(ctx, list, client.InNamespace(namespace), client.MatchingLabels{componentLabel: component})
}

func (s *survey) createNamespace(ctx context.Context, name string, t target) error {
	labels := map[string]string{"pod-security.kubernetes.io/enforce": "restricted", targetLabel: t.component}
	return s.Client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}})
}

// all returns the kinds of the trees of all targets.
func (s *survey) all() (all []treeKind) {
	for _, kind := range s.resources {
		if slices.ContainsFunc(targets, func(t target) bool { _, found := s.trees[t.name][kind.groupResource()]; return found }) {
			all = append(all, kind)
		}
	}
	return all
}

func (k treeKind) groupResource() schema.GroupResource {
	return schema.GroupResource{Group: k.Group, Resource: k.resource}
}

func (k treeKind) groupVersionResource() schema.GroupVersionResource {
	return k.GroupVersion().WithResource(k.resource)
}

// isChild reports whether the operator writes the kind.
func (k treeKind) isChild() bool {
	return slices.ContainsFunc(children.Kinds, func(kind children.Kind) bool { return kind.Resource == k.groupVersionResource() })
}

var podResource = corev1.SchemeGroupVersion.WithResource("pods")

// quotas are those of the number of each resource, and of what pods use.
func (s *survey) quotas() (all []place) {
	add := func(name string, p place) {
		p.name = "quota " + name
		p.object = func(id string) client.Object {
			return &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: id}, Spec: corev1.ResourceQuotaSpec{
				Hard: corev1.ResourceList{corev1.ResourceName(name): resource.MustParse("0")},
			}}
		}
		all = append(all, p)
	}
	for _, kind := range s.resources {
		if kind.Kind != "Echo" { // The suite itself creates it.
			add("count/"+kind.groupResource().String(), place{resource: kind.groupVersionResource(), everywhere: true, byOperator: kind.isChild()})
		}
	}
	for _, prefix := range []string{"", "requests.", "limits."} {
		for _, name := range computeResources {
			add(prefix+string(name), place{resource: podResource})
		}
	}
	add("pods", place{resource: podResource})
	add("services", place{resource: service.Resource, byOperator: true})
	return all
}

var computeResources = []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage}

// limitRanges are those that the containers of an Echo may violate.
func limitRanges() (all []place) {
	for _, of := range []corev1.LimitType{corev1.LimitTypeContainer, corev1.LimitTypePod} {
		for _, name := range computeResources {
			list := func(quantity string) corev1.ResourceList {
				return corev1.ResourceList{name: resource.MustParse(quantity)}
			}
			for limit, item := range map[string]corev1.LimitRangeItem{
				"min": {Type: of, Min: list("1000G")}, "max": {Type: of, Max: list("1m")}, "ratio": {Type: of, MaxLimitRequestRatio: list("1")},
			} {
				p := place{name: fmt.Sprintf("LimitRange %s %s %s", of, limit, name), resource: podResource}
				p.object = func(id string) client.Object {
					return &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Name: id}, Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{item}}}
				}
				all = append(all, p)
			}
		}
	}
	slices.SortFunc(all, func(a, b place) int { return strings.Compare(a.name, b.name) })
	return all
}

// belongs is the CEL expression that an object belongs to the target of its namespace.
const belongs = `(object == null ? oldObject : object).metadata.?labels[?"` + componentLabel + `"].orValue("") == namespaceObject.metadata.labels["` + targetLabel + `"]`

// denials are policies that deny writes of each kind of object of an Echo, and of its status.
func (s *survey) denials() (all []place) {
	for _, kind := range s.all() {
		for _, operation := range []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update, admissionregistrationv1.Delete} {
			all = append(all, denial(kind, "", operation))
		}
		all = append(all, denial(kind, "/status", admissionregistrationv1.Update))
	}
	return all
}

func denial(kind treeKind, subresource string, operation admissionregistrationv1.OperationType) place {
	match := matchResource(kind.groupVersionResource(), operation)
	match.ResourceRules[0].Resources[0] += subresource
	return place{
		name: fmt.Sprintf("policy denies %s %s%s", operation, kind.resource, subresource), resource: kind.groupVersionResource(),
		ofDeletion: operation == admissionregistrationv1.Delete, byOperator: operation == admissionregistrationv1.Create && kind.isChild(),
		policy: []client.Object{
			&admissionregistrationv1.ValidatingAdmissionPolicy{Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
				FailurePolicy: ptr.To(admissionregistrationv1.Fail), MatchConstraints: match,
				Validations: []admissionregistrationv1.Validation{{Expression: "!(" + belongs + ")", Message: policyMessage}},
			}},
			&admissionregistrationv1.ValidatingAdmissionPolicyBinding{Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
				ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
			}},
		},
	}
}

func matchResource(resource schema.GroupVersionResource, operation admissionregistrationv1.OperationType) *admissionregistrationv1.MatchResources {
	match := matchWrites(resource)
	match.ResourceRules[0].Operations = []admissionregistrationv1.OperationType{operation}
	return match
}

// matchOf returns what a policy matches.
func matchOf(policy client.Object) []*admissionregistrationv1.MatchResources {
	switch p := policy.(type) {
	case *admissionregistrationv1.ValidatingAdmissionPolicy:
		return []*admissionregistrationv1.MatchResources{p.Spec.MatchConstraints}
	case *admissionregistrationv1.MutatingAdmissionPolicy:
		return []*admissionregistrationv1.MatchResources{p.Spec.MatchConstraints}
	}
	return nil
}

// finalizers are those on each kind of object of an Echo.
func (s *survey) finalizers() (all []place) {
	for _, kind := range s.all() {
		all = append(all, place{name: "finalizer on " + kind.resource, resource: kind.groupVersionResource(), finalizer: true, byOperator: true})
	}
	return all
}
