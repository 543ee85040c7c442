package controller

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest/komega"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// install creates the CRD unless it exists, and waits until the API server serves it.
func install(crd *apiextensionsv1.CustomResourceDefinition) {
	GinkgoHelper()
	created := crd.DeepCopy()
	Expect(client.IgnoreAlreadyExists(admin.Create(ctx, created))).To(Succeed())
	Eventually(komega.Object(created)).Should(HaveField("Status.Conditions", ContainElement(And(
		HaveField("Type", apiextensionsv1.Established), HaveField("Status", apiextensionsv1.ConditionTrue)))))
}

// uninstall deletes the CRD with all its objects.
func uninstall(crd *apiextensionsv1.CustomResourceDefinition) {
	GinkgoHelper()
	Expect(client.IgnoreNotFound(admin.Delete(ctx, crd.DeepCopy()))).To(Succeed())
	Eventually(komega.Get(crd.DeepCopy())).Should(MatchError(ContainSubstring("not found")))
}

// expectGarbageCollection waits until the garbage collector deletes HTTPRoutes. It reads only every 30
// seconds which kinds exist.
func expectGarbageCollection() {
	GinkgoHelper()
	namespace := newNamespace()
	owner := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "owner"}}
	Expect(admin.Create(ctx, owner)).To(Succeed())
	route := &gatewayv1.HTTPRoute{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "owned", OwnerReferences: []metav1.OwnerReference{
		{APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID},
	}}}
	Eventually(admin.Create).WithArguments(ctx, route).Should(Succeed())
	Expect(admin.Delete(ctx, owner)).To(Succeed())
	Eventually(komega.Get(route), "90s").Should(MatchError(ContainSubstring("not found")))
}

// grantWithoutRoutes has the operators of the spec run as a user without permissions for HTTPRoutes, until the returned
// function grants them.
func grantWithoutRoutes() (grant func()) {
	GinkgoHelper()
	user := "without-routes-" + rand.String(5)
	grantIn(user, "", operatorRules("httproutes"))
	usual := operator
	DeferCleanup(func() { operator = usual })
	operator = rest.CopyConfig(adminConfig)
	operator.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:authenticated"}}
	waitForAccess(authorizationv1.SubjectAccessReviewSpec{User: user,
		ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "watch", Group: "kkloud.io", Resource: "echoes"}})
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: user}}
	return func() { Eventually(komega.Update(role, func() { role.Rules = operatorRules() })).Should(Succeed()) }
}
