package controller

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	gomegatypes "github.com/onsi/gomega/types"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/envtest/komega"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/informers"
)

// application returns an HTTPRoute of an application.
func application(namespace, name string, paths ...string) *gatewayv1.HTTPRoute {
	route := &gatewayv1.HTTPRoute{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	route.Spec.ParentRefs = []gatewayv1.ParentReference{{
		Group: new(gatewayv1.Group(gatewayv1.GroupName)), Kind: new(gatewayv1.Kind("Gateway")), Namespace: new(gatewayv1.Namespace("infra")), Name: "public",
	}}
	route.Spec.Hostnames = []gatewayv1.Hostname{"shop.example", "www.shop.example"}
	var rule gatewayv1.HTTPRouteRule
	for _, path := range paths {
		rule.Matches = append(rule.Matches, gatewayv1.HTTPRouteMatch{Path: &gatewayv1.HTTPPathMatch{Value: &path}})
	}
	route.Spec.Rules = []gatewayv1.HTTPRouteRule{rule}
	return route
}

func overriding(names ...string) func(*echov1.EchoSpec) {
	return func(spec *echov1.EchoSpec) {
		spec.Route = &echov1.Route{}
		for _, name := range names {
			spec.Route.Overrides = append(spec.Route.Overrides, echov1.RouteRef{Name: name})
		}
	}
}

var _ = Describe("A route that overrides others", func() {
	const notFound = "Unknown RouteNotFound"
	var namespace string
	BeforeEach(func() { namespace = newNamespace() })

	matches := func(echo *echov1.Echo) func() ([]string, error) {
		return func() (all []string, err error) {
			route := routeObject(echo)
			err = komega.Get(route)()
			for _, rule := range route.Spec.Rules {
				for _, m := range rule.Matches {
					all = append(all, string(*m.Method)+" "+*m.Path.Value)
				}
			}
			return all, err
		}
	}
	each := func(path string) (all []string) {
		for _, method := range []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"} {
			all = append(all, method+" "+path)
		}
		return all
	}

	It("follows their creation, change and deletion, and leaves them alone", func() {
		startOperator()
		since := auditMark()
		echo := createEcho(namespace, "page", overriding("shop", "api"))
		expectRouted(echo, notFound, "False RouteNotFound", notDegraded)
		Expect(message(echo, echov1.ConditionRouted)).To(Equal("HTTPRoute shop does not exist"))

		shop, api := application(namespace, "shop"), application(namespace, "api", "/v1", "/v2")
		Expect(admin.Create(ctx, shop)).To(Succeed())
		Expect(admin.Create(ctx, api)).To(Succeed())
		expectRouted(echo, isAccepted, isReady, notDegraded)
		Expect(message(echo, echov1.ConditionRouted)).To(Equal("Every Gateway accepted the route, which overrides HTTPRoute shop, api"))
		Expect(echo.Status.ExternalURL).To(Equal("https://shop.example/"))
		Expect(matches(echo)()).To(Equal(append(append(each("/"), each("/v1")...), each("/v2")...)))
		Expect(routeObject(echo)).To(WithTransform(func(r *gatewayv1.HTTPRoute) (gatewayv1.HTTPRouteSpec, error) { return r.Spec, komega.Get(r)() },
			And(HaveField("Hostnames", Equal(shop.Spec.Hostnames)), HaveField("ParentRefs", HaveExactElements(HaveField("Name", BeEquivalentTo("public")))))))

		outlives := func(kind string) gomegatypes.GomegaMatcher {
			return HaveField("OwnerReferences", HaveExactElements(HaveField("Kind", "Echo"), HaveField("Kind", kind)))
		}
		Eventually(komega.Object(deploymentOf(echo))).Should(outlives("HTTPRoute"))
		Eventually(komega.Object(serviceOf(echo))).Should(outlives("Pod"))

		By("replacing the pod that the Service outlives")
		service := serviceOf(echo)
		Expect(komega.Get(service)()).To(Succeed())
		name := service.OwnerReferences[1].Name
		Expect(admin.Delete(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}})).To(Succeed())
		Eventually(komega.Object(service)).Should(And(outlives("Pod"), HaveField("OwnerReferences", Not(ContainElement(HaveField("Name", name))))))
		expectRouted(echo, isAccepted, isReady, notDegraded)

		By("changing, deleting and recreating one")
		Eventually(komega.Update(api, func() { api.Spec.Rules[0].Matches[1].Path.Value = new("/v3") })).Should(Succeed())
		Eventually(matches(echo)).Should(ContainElement("GET /v3"))
		Expect(admin.Delete(ctx, api)).To(Succeed())
		expectRouted(echo, notFound, "False RouteNotFound", notDegraded)
		Expect(matches(echo)()).To(ContainElement("GET /v3"), "the Echo keeps the requests while an HTTPRoute is replaced")
		Expect(admin.Create(ctx, application(namespace, "api", "/v4"))).To(Succeed())
		Eventually(matches(echo)).Should(Equal(append(each("/"), each("/v4")...)))
		expectRouted(echo, isAccepted, isReady, notDegraded)

		Expect(metricValue("echo_operator_drift_corrections_total", nil)).To(BeZero())

		By("removing the second owner again and again")
		deployment := deploymentOf(echo)
		Eventually(func(g Gomega) string {
			g.Expect(komega.Update(deployment, func() { deployment.OwnerReferences = deployment.OwnerReferences[:1] })()).To(Succeed())
			g.Expect(komega.Get(echo)()).To(Succeed())
			return summary(echo, echov1.ConditionDegraded)
		}, "60s", "200ms").Should(Equal(degradedAs + echov1.ReasonRepeatedDrift))

		By("giving one back")
		edit(echo, overriding("shop"))
		Eventually(matches(echo)).Should(Equal(each("/")))
		edit(echo, overriding("absent"))
		Eventually(komega.Get(routeObject(echo))).Should(MatchError(ContainSubstring("not found")))
		Eventually(komega.Object(deploymentOf(echo))).Should(HaveField("OwnerReferences", HaveExactElements(HaveField("Kind", "Echo"))))

		for _, request := range requestsSince(since) {
			Expect(request).NotTo(MatchRegexp(`^(create|update|patch|delete) httproutes/\S* `+namespace+`/(shop|api)`), "a request of the operator")
		}
		Expect(komega.Object(shop)()).To(And(HaveField("Generation", BeEquivalentTo(1)), HaveField("Annotations", BeEmpty()), HaveField("Labels", BeEmpty())))
	})

	It("shares one watch with the others of its namespace", func() {
		startOperator()
		since := auditMark()
		for _, name := range []string{"a", "b", "c"} {
			Expect(admin.Create(ctx, application(namespace, name, "/"+name))).To(Succeed())
			expectRouted(createEcho(namespace, "page-"+name, overriding(name, "absent")), notFound, "False RouteNotFound", notDegraded)
		}
		Expect(admin.Create(ctx, application(namespace, "absent", "/absent"))).To(Succeed())
		for _, name := range []string{"a", "b", "c"} {
			expectRouted(&echov1.Echo{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "page-" + name}}, isAccepted, isReady, notDegraded)
		}
		watches := 0
		for _, event := range auditEventsSince(since) {
			if ref := event.ObjectRef; ref != nil && event.Verb == "watch" && ref.Resource == "httproutes" && ref.Namespace == namespace {
				watches++
			}
		}
		Expect(watches).To(Equal(1))
	})

	It("is deleted before the pods and the Service", func() {
		Expect(admin.Create(ctx, application(namespace, "shop", "/"))).To(Succeed())
		startOperator()
		echo := createEcho(namespace, "page", overriding("shop"))
		expectRouted(echo, isAccepted, isReady, notDegraded)
		service := serviceOf(echo)
		Eventually(komega.Object(service)).Should(HaveField("OwnerReferences", HaveLen(2)))
		chain := []client.Object{routeObject(echo), deploymentOf(echo),
			&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: service.OwnerReferences[1].Name}}, service}
		hold := func(object client.Object, finalizers ...string) {
			Eventually(komega.Update(object, func() { object.SetFinalizers(finalizers) })).Should(Succeed())
		}
		for _, object := range chain {
			hold(object, "example.com/hold")
		}
		Expect(admin.Delete(ctx, echo)).To(Succeed())
		for i, object := range chain {
			Eventually(komega.Object(object)).Should(HaveField("DeletionTimestamp", Not(BeNil())))
			for _, later := range chain[i+1:] {
				Consistently(komega.Object(later), "500ms").Should(HaveField("DeletionTimestamp", BeNil()), "deleted before %T", object)
			}
			if object == service {
				By("creating the Echo again")
				echo = createEcho(namespace, "page", overriding("shop"))
				Eventually(komega.Object(deploymentOf(echo))).Should(HaveField("Status.AvailableReplicas", BeEquivalentTo(1)))
				Consistently(komega.Get(routeObject(echo)), "1s").ShouldNot(Succeed(), "a Gateway would not find the Service")
			}
			hold(object)
		}
		expectRouted(echo, isAccepted, isReady, notDegraded)
	})

	It("does not change its verifier and its URL when the operator starts, and while an HTTPRoute is missing", func() {
		shop := application(namespace, "shop", "/")
		Expect(admin.Create(ctx, shop)).To(Succeed())
		stop := startOperator()
		echo := createEcho(namespace, "page", overriding("shop"), verified)
		verifier := verifierOf(echo)
		Eventually(komega.Object(verifier)).Should(HaveField("Spec.Template.Spec.Containers", HaveLen(3)))
		expectRouted(echo, isAccepted, isReady, notDegraded)

		By("restarting the operator")
		stop()
		since := auditMark()
		startOperator()
		expectNoPatch := func() {
			GinkgoHelper()
			Consistently(func() []string { return requestsSince(since) }, "4s").ShouldNot(ContainElement(HavePrefix("patch deployments/")))
		}
		expectNoPatch()
		Expect(admin.Delete(ctx, shop)).To(Succeed())
		expectRouted(echo, notFound, "False RouteNotFound", notDegraded)
		expectNoPatch()
		Expect(echo.Status.ExternalURL).To(Equal("https://shop.example/"))
	})

	It("leaves its other children as they are until the cache contains HTTPRoutes", func() {
		echo := createEcho(namespace, "page", overriding("shop"), verified)
		r := &EchoReconciler{Client: admin, APIReader: admin, Optional: informers.NewOptional(time.Minute)}
		result, err := r.Reconcile(ctx, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(echo)})
		Expect(result.RequeueAfter, err).To(Equal(staleRetry))
		Expect(komega.Get(serviceOf(echo))()).To(MatchError(ContainSubstring("not found")))
	})

	It("is created after the nodes have applied the Service, and takes the place of the Echo's own HTTPRoute at once", func() {
		Expect(admin.Create(ctx, application(namespace, "shop", "/"))).To(Succeed())
		startOperator()
		echo := createEcho(namespace, "page")
		expectReady(echo)
		since := auditMark()
		index := func(request string) func() int {
			return func() int { return slices.Index(requestsSince(since), request+" "+namespace+"/echo-page") }
		}
		edit(echo, overriding("shop"))
		Eventually(index("patch services/")).Should(BeNumerically(">=", 0))
		Consistently(index("create httproutes/"), "1s").Should(BeNumerically("<", 0))
		expectRouted(echo, isAccepted, isReady, notDegraded)
		edit(echo, routed("public"))
		expectRouted(echo, isAccepted, isReady, notDegraded)
		since = auditMark()
		edit(echo, func(spec *echov1.EchoSpec) { overriding("shop")(spec); spec.Port = 8080 })
		expectRouted(echo, isAccepted, isReady, notDegraded)
		Expect(index("delete httproutes/")()).To(BeNumerically("<", 0))
	})

	It("does not keep the Echo from other edits while the operator cannot read those", func() {
		Expect(admin.Create(ctx, application(namespace, "shop", "/"))).To(Succeed())
		var isForbidden atomic.Bool
		live, err := client.NewWithWatch(operator, client.Options{Scheme: scheme})
		Expect(err).NotTo(HaveOccurred())
		get := func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, _ ...client.GetOption) error {
			if _, is := object.(*gatewayv1.HTTPRoute); is && isForbidden.Load() {
				return apierrors.NewForbidden(gatewayv1.Resource("httproutes"), key.Name, nil)
			}
			return c.Get(ctx, key, object)
		}
		startChangedOperator(func(r *EchoReconciler) { r.APIReader = interceptor.NewClient(live, interceptor.Funcs{Get: get}) }, client.ObjectKey{})
		echo := createEcho(namespace, "page", overriding("shop"))
		expectRouted(echo, isAccepted, isReady, notDegraded)
		isForbidden.Store(true)
		edit(echo, func(spec *echov1.EchoSpec) { spec.Message = "edited" })
		expectRouted(echo, "False Rejected", "False Rejected", degradedAs+"Rejected")
		Expect(message(echo, echov1.ConditionRouted)).To(HavePrefix("HTTPRoute: read shop: "))
		Expect(containerOf(echo).Args).To(ContainElement("-text=edited"))
		Expect(matches(echo)()).To(Equal(each("/")), "the Echo gave the requests back")
		isForbidden.Store(false)
		expectRouted(echo, isAccepted, isReady, notDegraded)
	})

	It("is not created in front of an HTTPRoute that cannot be overridden, until that changes", func() {
		shop := application(namespace, "shop", "/")
		shop.Spec.Rules[0].Matches[0].Method = new(gatewayv1.HTTPMethodPost)
		Expect(admin.Create(ctx, shop)).To(Succeed())
		startOperator()
		echo := createEcho(namespace, "page", overriding("shop"))
		expectRouted(echo, "False RouteNotOverridable", "False RouteNotOverridable", degradedAs+"RouteNotOverridable")
		Expect(komega.Get(routeObject(echo))()).To(MatchError(ContainSubstring("not found")))
		Eventually(komega.Update(shop, func() { shop.Spec.Rules[0].Matches[0].Method = nil })).Should(Succeed())
		expectRouted(echo, isAccepted, isReady, notDegraded)
	})
})
