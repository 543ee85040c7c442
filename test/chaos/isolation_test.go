package chaos

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/children"
	"github.com/kkloud-io/echo-operator/test/internal/oracle"
	"github.com/kkloud-io/echo-operator/test/internal/process"
)

const (
	// neighborLimit is how long a new Echo may take while another namespace disturbs the operator.
	neighborLimit = 5 * time.Second
	neighbors     = 4 // Such Echoes.
)

func newConfigMap(namespace string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "probe-"}}
}

// expectNeighbor creates an Echo in another namespace, which has to be ready soon.
func (e *environment) expectNeighbor(namespace, name string, limit time.Duration) {
	e.Helper()
	start := time.Now()
	e.must(e.create(namespace, name, echov1.EchoSpec{Message: "neighbor"}))
	e.within(start, limit, "a new Echo in another namespace is ready", e.each(namespace, oracle.CheckReady))
}

// A webhook that hangs delays only the Echoes of its namespace, also if there are more of them than the operator has workers.
func TestHangingWebhook(t *testing.T) {
	everyCreation := ruleFor(admissionregistrationv1.Create, "*", "*", "services", "deployments", "httproutes", "poddisruptionbudgets")
	status := ruleFor(admissionregistrationv1.Update, echov1.GroupVersion.Group, echov1.GroupVersion.Version, "echoes/status")
	for _, of := range []struct {
		name    string
		rule    admissionregistrationv1.RuleWithOperations
		echoes  int
		reports bool
	}{
		{"for children", everyCreation, 40, true},
		{"for statuses", status, 260, false},
	} {
		t.Run(of.name, func(t *testing.T) {
			if !of.reports {
				long(t)
			}
			e := newEnvironment(t)
			neighbor := e.addNamespace()
			e.neighbors = []string{neighbor}
			o := e.start()
			remove := webhook{of.rule, 10, hang}.install(e)
			e.forEach(0, of.echoes, func(name string) error { return e.create(e.namespace, name, everyChild()) })
			for i := range neighbors {
				time.Sleep(time.Second)
				e.expectNeighbor(neighbor, fmt.Sprint("neighbor-", i), neighborLimit)
			}
			if of.reports {
				e.await(podsLimit, "the Echoes behind the webhook report it", e.each(e.namespace, func(echo *echov1.Echo) error {
					return oracle.CheckDegraded(echo, echov1.ReasonRejected, webhookName)
				}))
			}
			remove()
			e.within(time.Now(), podsLimit, "the Echoes are ready without the webhook", e.allReady())
			e.verify(o)
		})
	}
}

// memoryLimit is three quarters of that in config/manager.
const memoryLimit = 192 << 20

// Large objects that look like children, and large Echoes and children, do not fill the operator's memory, also at a start.
func TestMemoryBesideLargeObjects(t *testing.T) {
	long(t)
	e := newEnvironment(t)
	neighbor := e.addNamespace()
	e.neighbors = []string{neighbor}
	o := e.start()
	e.createReady(some)
	o.Kill()
	e.run(o, operatorConfig) // Without the proxy, which would change what it reads.
	var group errgroup.Group
	group.SetLimit(4)
	var owner echov1.Echo
	e.must(e.client.Get(e.Context(), client.ObjectKey{Namespace: e.namespace, Name: "echo-0"}, &owner))
	for i := range 250 {
		group.Go(func() error { return e.client.Create(e.Context(), largeDeployment(&owner, i)) })
	}
	e.must(group.Wait())
	// Close to the limit for annotations.
	annotations := map[string]string{"example.com/large": strings.Repeat("x", 250<<10)}
	for i := range 8 {
		route := &gatewayv1.HTTPRoute{ObjectMeta: metav1.ObjectMeta{Namespace: e.namespace, Name: fmt.Sprint("large-", i), Annotations: annotations}}
		route.Spec.ParentRefs = []gatewayv1.ParentReference{{Name: "public"}}
		e.must(e.client.Create(e.Context(), route))
	}
	overriding := echov1.EchoSpec{Message: "hello", Route: &echov1.Route{}}
	for i := range 8 {
		overriding.Route.Overrides = append(overriding.Route.Overrides, echov1.RouteRef{Name: fmt.Sprint("large-", i)})
	}
	e.forEach(some, 100, func(name string) error { return e.create(e.namespace, name, overriding) })
	large := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"annotations":{"example.com/large":%q}}}`, annotations["example.com/large"]))
	e.forEach(0, some, func(name string) error {
		echo := &echov1.Echo{ObjectMeta: metav1.ObjectMeta{Namespace: e.namespace, Name: name}}
		service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: e.namespace, Name: children.Name(echo)}}
		return errors.Join(e.client.Patch(e.Context(), service, large), e.client.Patch(e.Context(), echo, large))
	})
	for _, when := range []string{"after the edits", "after a restart"} {
		e.expectNeighbor(neighbor, strings.ReplaceAll(when, " ", "-"), convergenceLimit)
		time.Sleep(5 * time.Second) // The events of the large objects arrive.
		peak, err := process.PeakMemory(o.PID())
		e.must(err)
		e.Logf("peak memory %s: %.0f MiB (at most %d)", when, peak/(1<<20), memoryLimit>>20)
		if peak > memoryLimit {
			e.Errorf("peak memory %s: %.0f MiB, want at most %d", when, peak/(1<<20), memoryLimit>>20)
		}
		o.Kill()
		e.run(o, operatorConfig)
	}
	o.Kill()
	e.must(e.client.DeleteAllOf(e.Context(), &appsv1.Deployment{}, client.InNamespace(e.namespace), client.MatchingLabels{"example.com/large": "yes"}))
	e.verify(e.start())
}

// largeDeployment is near the API server's limit for an object, with the name and the label of a child and a forged reference. It is
// paused, so that it has no ReplicaSet of the same size.
func largeDeployment(owner *echov1.Echo, i int) *appsv1.Deployment {
	labels := map[string]string{"app": "large"}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: owner.Namespace, Name: fmt.Sprint("echo-large-", i),
			Labels:          map[string]string{children.ManagedByLabel: children.ManagedBy, "example.com/large": "yes"},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(owner, echov1.GroupVersion.WithKind("Echo"))},
		},
		Spec: appsv1.DeploymentSpec{
			Paused: true, Replicas: new(int32(0)), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{
				Containers: []corev1.Container{{Name: "large", Image: "docker.io/library/large:1", Args: []string{strings.Repeat("x", 900<<10)}}},
			}},
		},
	}
}
