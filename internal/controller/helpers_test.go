package controller

import (
	"slices"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest/komega"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/children"
)

// newNamespace creates a namespace that enforces the restricted Pod Security Standard. Its
// Echoes are deleted after the spec, so that the operators of other specs do not see them.
func newNamespace() string {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		GenerateName: "echo-",
		Labels:       map[string]string{"pod-security.kubernetes.io/enforce": "restricted"},
	}}
	Expect(admin.Create(ctx, namespace)).To(Succeed())
	DeferCleanup(func() {
		Expect(admin.DeleteAllOf(ctx, &echov1.Echo{}, client.InNamespace(namespace.Name))).To(Succeed())
	})
	return namespace.Name
}

// kindOf returns the kind of child with the name.
func kindOf(name string) children.Kind {
	return children.Kinds[slices.IndexFunc(children.Kinds, func(k children.Kind) bool { return k.Name == name })]
}

func newEcho(namespace, name string, edits ...func(*echov1.EchoSpec)) *echov1.Echo {
	echo := &echov1.Echo{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       echov1.EchoSpec{Message: "xin chao operator"},
	}
	for _, edit := range edits {
		edit(&echo.Spec)
	}
	return echo
}

func createEcho(namespace, name string, edits ...func(*echov1.EchoSpec)) *echov1.Echo {
	GinkgoHelper()
	echo := newEcho(namespace, name, edits...)
	Expect(admin.Create(ctx, echo)).To(Succeed())
	return echo
}

func twoPods(spec *echov1.EchoSpec) { spec.Replicas = 2 }

// routed adds a route to Gateways with the names.
func routed(gateways ...string) func(*echov1.EchoSpec) {
	return func(spec *echov1.EchoSpec) {
		spec.Route = &echov1.Route{Hostnames: []string{"a.example"}}
		for _, name := range gateways {
			spec.Route.ParentRefs = append(spec.Route.ParentRefs, echov1.ParentRef{Name: name, Namespace: "infra"})
		}
	}
}

// verified adds a verification with the shortest times.
func verified(spec *echov1.EchoSpec) {
	spec.Verify = &echov1.Verify{PeriodSeconds: 1, TimeoutSeconds: 1, FailureThreshold: 1}
}

// fromEveryNode adds a verification from every node.
func fromEveryNode(spec *echov1.EchoSpec) {
	verified(spec)
	spec.Verify.From = echov1.VerifyFromEveryNode
}

// everyChild has the Echo want a child of each kind, except for a verifier on every node.
func everyChild(spec *echov1.EchoSpec) {
	twoPods(spec)
	routed("public")(spec)
	verified(spec)
}

// everyChildWith is like everyChild, for an Echo that also wants a child of this kind.
func everyChildWith(kind children.Kind) func(*echov1.EchoSpec) {
	return func(spec *echov1.EchoSpec) {
		everyChild(spec)
		if kind.Name == "VerifierDaemonSet" {
			fromEveryNode(spec)
		}
	}
}

// edit changes the newest spec, as `kubectl edit` does.
func edit(echo *echov1.Echo, change func(*echov1.EchoSpec)) {
	GinkgoHelper()
	Eventually(komega.Update(echo, func() { change(&echo.Spec) })).Should(Succeed())
}

// expectCondition waits until the condition has the status and the reason for the newest spec.
func expectCondition(echo *echov1.Echo, conditionType string, status metav1.ConditionStatus, reason string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		g.Expect(admin.Get(ctx, client.ObjectKeyFromObject(echo), echo)).To(Succeed())
		condition := meta.FindStatusCondition(echo.Status.Conditions, conditionType)
		g.Expect(condition).NotTo(BeNil(), "Echo %s has no condition %s", echo.Name, conditionType)
		g.Expect(condition.ObservedGeneration).To(Equal(echo.Generation))
		g.Expect(string(condition.Status)+" "+condition.Reason).To(Equal(string(status)+" "+reason), condition.Message)
	}, "60s").Should(Succeed())
}

func expectReady(echo *echov1.Echo) {
	GinkgoHelper()
	expectCondition(echo, echov1.ConditionReady, metav1.ConditionTrue, echov1.ReasonReady)
}

func message(echo *echov1.Echo, conditionType string) string {
	return meta.FindStatusCondition(echo.Status.Conditions, conditionType).Message
}

func childMeta(echo *echov1.Echo) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: echo.Namespace, Name: children.Name(echo)}
}

// childrenOf returns an object with the name of the child for each kind that the Echo wants.
func childrenOf(echo *echov1.Echo) []client.Object {
	var objects []client.Object
	for _, kind := range children.Kinds {
		if !kind.Wanted(echo) {
			continue
		}
		object := kind.New()
		object.SetNamespace(echo.Namespace)
		object.SetName(kind.ChildName(echo))
		objects = append(objects, object)
	}
	return objects
}

func deploymentOf(echo *echov1.Echo) *appsv1.Deployment {
	return &appsv1.Deployment{ObjectMeta: childMeta(echo)}
}

func serviceOf(echo *echov1.Echo) *corev1.Service {
	return &corev1.Service{ObjectMeta: childMeta(echo)}
}

func budgetOf(echo *echov1.Echo) *policyv1.PodDisruptionBudget {
	return &policyv1.PodDisruptionBudget{ObjectMeta: childMeta(echo)}
}

func routeObject(echo *echov1.Echo) *gatewayv1.HTTPRoute {
	return &gatewayv1.HTTPRoute{ObjectMeta: childMeta(echo)}
}

func containerOf(echo *echov1.Echo) corev1.Container {
	GinkgoHelper()
	deployment := deploymentOf(echo)
	Expect(komega.Get(deployment)()).To(Succeed())
	return deployment.Spec.Template.Spec.Containers[0]
}

// expectReadyEvent waits for the event that the Echo is Ready, which the operator records after the status.
func expectReadyEvent(echo *echov1.Echo) {
	GinkgoHelper()
	Eventually(func() []string { return eventsOf(echo) }).Should(ContainElement("Normal Ready"))
}

// eventsOf returns the type and reason of each event of the Echo.
func eventsOf(echo *echov1.Echo) []string {
	GinkgoHelper()
	var list eventsv1.EventList
	Expect(admin.List(ctx, &list, client.InNamespace(echo.Namespace))).To(Succeed())
	var reasons []string
	for _, event := range list.Items {
		if event.Regarding.UID == echo.UID {
			reasons = append(reasons, event.Type+" "+event.Reason)
		}
	}
	return reasons
}
