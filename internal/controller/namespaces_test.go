package controller

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest/komega"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/informers"
)

// namespacedUser has the operators of the spec run as a new user, who has only the permissions of grant.
func namespacedUser() (user string) {
	GinkgoHelper()
	user = "namespaced-" + string(uidOf(operatorNamespace)[:8]) + "-" + newNamespace()
	usual := operator
	DeferCleanup(func() { operator = usual })
	operator = rest.CopyConfig(adminConfig)
	operator.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:authenticated"}}
	return user
}

// operatorRules returns the rules of config/rbac, without those for some resources.
func operatorRules(without ...string) []rbacv1.PolicyRule {
	rules := clusterRules("role.yaml")
	for i := range rules {
		rules[i].Resources = slices.DeleteFunc(rules[i].Resources, func(resource string) bool { return slices.Contains(without, resource) })
	}
	return slices.DeleteFunc(rules, func(rule rbacv1.PolicyRule) bool { return len(rule.Resources) == 0 })
}

// clusterRules are those of a ClusterRole in config/rbac.
func clusterRules(file string) []rbacv1.PolicyRule {
	role := &rbacv1.ClusterRole{}
	readRole(file, role)
	return role.Rules
}

// grantIn grants the user the rules in a namespace, as OLM does, or in the cluster.
func grantIn(user, namespace string, rules []rbacv1.PolicyRule) {
	GinkgoHelper()
	meta := metav1.ObjectMeta{Namespace: namespace, Name: user}
	ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: user}
	subjects := []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}}
	objects := []client.Object{
		&rbacv1.Role{ObjectMeta: meta, Rules: rules},
		&rbacv1.RoleBinding{ObjectMeta: meta, RoleRef: ref, Subjects: subjects},
	}
	if namespace == "" {
		ref.Kind = "ClusterRole"
		objects = []client.Object{
			&rbacv1.ClusterRole{ObjectMeta: meta, Rules: rules},
			&rbacv1.ClusterRoleBinding{ObjectMeta: meta, RoleRef: ref, Subjects: subjects},
		}
	}
	for _, object := range objects {
		Expect(admin.Create(ctx, object)).To(Succeed())
	}
}

// changeRules replaces what grantIn granted.
func changeRules(user, namespace string, rules []rbacv1.PolicyRule) {
	GinkgoHelper()
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: user}}
	Eventually(komega.Update(role, func() { role.Rules = rules })).Should(Succeed())
}

// waitForWatch waits until the API server allows the user to watch the resource in a namespace, or denies it.
func waitForWatch(user, namespace, resource string, allowed bool) {
	GinkgoHelper()
	group := map[string]string{"echoes": echov1.GroupVersion.Group, "httproutes": gatewayv1.GroupName}[resource]
	attributes := authorizationv1.ResourceAttributes{Verb: "watch", Group: group, Resource: resource, Namespace: namespace}
	Eventually(func() (bool, error) {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: user, ResourceAttributes: &attributes}}
		err := admin.Create(ctx, review)
		return review.Status.Allowed, err
	}).Should(Equal(allowed))
}

// proxy is between the operator and the API server. It handles the requests for one namespace.
type proxy struct {
	next      http.RoundTripper
	namespace string
	// hangs is true while requests get no response.
	hangs atomic.Bool

	mu sync.Mutex
	// open ends the requests that were forwarded, or that hang.
	open []context.CancelFunc
}

// RoundTrip implements http.RoundTripper.
func (p *proxy) RoundTrip(request *http.Request) (*http.Response, error) {
	if !strings.Contains(request.URL.Path, "/namespaces/"+p.namespace+"/") {
		return p.next.RoundTrip(request)
	}
	requestCtx, cancel := context.WithCancel(request.Context())
	p.mu.Lock()
	p.open = append(p.open, cancel)
	p.mu.Unlock()
	if p.hangs.Load() {
		<-requestCtx.Done()
		return nil, errors.New("the proxy closed the connection")
	}
	return p.next.RoundTrip(request.WithContext(requestCtx))
}

// closeConnections ends all requests for the namespace. The API server does not end the watches of a user who lost the
// permission; it only rejects the next one, after some minutes.
func (p *proxy) closeConnections() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, end := range p.open {
		end()
	}
	p.open = nil
}

var _ = Describe("An operator of two namespaces of which one cannot be read", func() {
	var (
		user, served, other string
		between             *proxy
	)

	BeforeEach(func() {
		user, served, other = namespacedUser(), newNamespace(), newNamespace()
		grantIn(user, served, operatorRules())
		grantIn(user, other, operatorRules())
		waitForWatch(user, served, "echoes", true)
		waitForWatch(user, other, "echoes", true)
		between = &proxy{namespace: other}
		operator.Wrap(func(next http.RoundTripper) http.RoundTripper {
			between.next = next
			return between
		})
	})

	// obstacle makes the other namespace unreadable, and repairs it.
	type obstacle struct {
		name, message string
		fail, repair  func()
	}
	binding := func() *rbacv1.RoleBinding {
		return &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: other, Name: user}, Subjects: []rbacv1.Subject{
			{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user},
		}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: user}}
	}
	without := func(resource string) obstacle {
		return obstacle{"the permission for " + resource + " is missing", `cannot list resource \"` + resource + `\"`,
			func() {
				changeRules(user, other, operatorRules(resource))
				waitForWatch(user, other, resource, false)
			},
			func() { changeRules(user, other, operatorRules()) }}
	}
	obstacles := []obstacle{
		{"its RoleBinding is missing", "is forbidden",
			func() {
				Expect(admin.Delete(ctx, binding())).To(Succeed())
				waitForWatch(user, other, "echoes", false)
			},
			func() { Expect(admin.Create(ctx, binding())).To(Succeed()) }},
		{"it was deleted", "is forbidden",
			func() {
				namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: other}}
				Expect(admin.Delete(ctx, namespace)).To(Succeed())
				Eventually(komega.Get(namespace), "60s").Should(MatchError(ContainSubstring("not found")))
				waitForWatch(user, other, "echoes", false)
			},
			func() {
				Expect(admin.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: other}})).To(Succeed())
				grantIn(user, other, operatorRules())
			}},
		without("echoes"), without("pods"),
		{"requests hang", "deadline exceeded",
			func() { between.hangs.Store(true) }, func() { between.hangs.Store(false); between.closeConnections() }},
	}

	isServed := func(namespace string) float64 {
		return metricValue("echo_operator_namespace_served", map[string]string{"watched_namespace": namespace})
	}
	expectServed := func() {
		GinkgoHelper()
		before := time.Now()
		expectReady(createEcho(served, "during", everyChild))
		Expect(time.Since(before)).To(BeNumerically("<", 30*time.Second), "the Echo of the served namespace was delayed")
	}

	for _, o := range obstacles {
		It("serves the other one if "+o.name+" at the start, and both after a restart, which it requests, when that is repaired", func() {
			o.fail()
			logged := len(operatorLog.Contents())
			stop := startOperator(served, other)
			Expect(isServed(other)).To(BeZero())
			Expect(isServed(served)).To(Equal(1.0))
			Expect(string(operatorLog.Contents()[logged:])).To(SatisfyAll(
				ContainSubstring(`"msg":"The namespace cannot be read; it is left out until it can","namespace":"`+other), ContainSubstring(o.message)))
			expectServed()
			o.repair()
			Expect(namespaces.Await(ctx, func() bool { return true })).To(MatchError(informers.ErrReadable))
			stop()
			startOperator(served, other)
			expectReady(createEcho(other, "repaired", everyChild))
			Expect(isServed(other)).To(Equal(1.0))
		})

		It("serves the other one if "+o.name+" later, and both when that is repaired", func() {
			startOperator(served, other)
			expectReady(createEcho(other, "before"))
			o.fail()
			between.closeConnections()
			expectServed()
			o.repair()
			expectReady(createEcho(other, "repaired", everyChild))
		})
	}

	DescribeTable("waits for permissions that are granted after its start",
		func(watched func() []string) {
			late := namespacedUser()
			var isGranted atomic.Bool
			go func() {
				defer GinkgoRecover()
				time.Sleep(2 * time.Second)
				isGranted.Store(true)
				for _, namespace := range watched() {
					grantIn(late, namespace, operatorRules())
				}
				if len(watched()) == 0 {
					grantIn(late, "", operatorRules())
				}
			}()
			startOperator(watched()...) // It returns when the caches are synced.
			Expect(isGranted.Load()).To(BeTrue(), "the operator is ready without permissions")
			expectReady(createEcho(served, "hello"))
			if len(watched()) != 1 {
				expectReady(createEcho(other, "hello"))
			}
		},
		Entry("in one namespace", func() []string { return []string{served} }),
		Entry("in two namespaces", func() []string { return []string{served, other} }),
		Entry("in all namespaces", func() []string { return nil }),
	)
})
