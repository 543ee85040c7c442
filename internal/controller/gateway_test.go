package controller

import (
	"slices"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest/komega"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// install creates the CRD unless it exists, and waits until the API server serves it.
func install(crd *apiextensionsv1.CustomResourceDefinition) {
	GinkgoHelper()
	created := crd.DeepCopy()
	if err := admin.Create(ctx, created); !apierrors.IsAlreadyExists(err) {
		Expect(err).NotTo(HaveOccurred())
	}
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

// restrictedRole is a role of the operator without permissions for HTTPRoutes.
type restrictedRole struct{ role, complete *rbacv1.ClusterRole }

// grantWithoutRoutes has the operators of the spec run as a user without permissions for HTTPRoutes.
func grantWithoutRoutes() restrictedRole {
	GinkgoHelper()
	complete := &rbacv1.ClusterRole{}
	readRole("role.yaml", complete)
	role := complete.DeepCopy()
	role.Name, role.GenerateName = "", "without-routes-"
	role.Rules = slices.DeleteFunc(role.Rules, func(r rbacv1.PolicyRule) bool { return slices.Contains(r.APIGroups, gatewayv1.GroupName) })
	Expect(admin.Create(ctx, role)).To(Succeed())
	Expect(admin.Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role.Name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: role.Name}},
	})).To(Succeed())
	usual := operator
	DeferCleanup(func() { operator = usual })
	operator = rest.CopyConfig(adminConfig)
	operator.Impersonate = rest.ImpersonationConfig{UserName: role.Name, Groups: []string{"system:authenticated"}}
	waitForAccess(authorizationv1.SubjectAccessReviewSpec{User: role.Name,
		ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "watch", Group: "kkloud.io", Resource: "echoes"}})
	return restrictedRole{role, complete}
}

// grant grants the permissions.
func (r restrictedRole) grant() {
	GinkgoHelper()
	Eventually(komega.Update(r.role, func() { r.role.Rules = r.complete.Rules })).Should(Succeed())
}
