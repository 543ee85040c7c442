package controller

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	"github.com/onsi/ginkgo/v2/types"
	. "github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apitypes "k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest/komega"
	"sigs.k8s.io/yaml"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/children"
	"github.com/kkloud-io/echo-operator/internal/testing/controlplane"
)

// operatorNamespace is where config/rbac grants what electing a leader takes.
const operatorNamespace = "echo-operator-system"

// granted is every right that config/rbac gives the operator, as right writes it.
var granted []string

// grantRoles gives the operator what config/rbac grants it, and nothing more.
func grantRoles() {
	Expect(admin.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: operatorNamespace}})).To(Succeed())
	subjects := []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: operatorUser}}
	for _, file := range []string{"role.yaml", "metrics_auth_role.yaml"} {
		role := &rbacv1.ClusterRole{}
		readRole(file, role)
		granted = append(granted, rightsOf(role.Rules)...)
		Expect(admin.Create(ctx, role)).To(Succeed())
		Expect(admin.Create(ctx, &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: role.Name}, Subjects: subjects,
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		})).To(Succeed())
	}
	role := &rbacv1.Role{}
	readRole("leader_election_role.yaml", role)
	granted = append(granted, rightsOf(role.Rules)...)
	Expect(admin.Create(ctx, role)).To(Succeed())
	Expect(admin.Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: role.Namespace, Name: role.Name}, Subjects: subjects,
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name},
	})).To(Succeed())
	awaitRight(authorizationv1.ResourceAttributes{Verb: "watch", Group: echov1.GroupVersion.Group, Resource: "echoes"})
	awaitRight(authorizationv1.ResourceAttributes{Verb: "create", Group: "coordination.k8s.io", Resource: "leases", Namespace: operatorNamespace})
}

func readRole(file string, role any) {
	text, err := os.ReadFile(filepath.Join("..", "..", "config", "rbac", file))
	Expect(err).NotTo(HaveOccurred())
	Expect(yaml.UnmarshalStrict(text, role)).To(Succeed())
}

// awaitRight waits until the API server knows of the operator's newest right.
func awaitRight(right authorizationv1.ResourceAttributes) {
	GinkgoHelper()
	awaitAllowed(authorizationv1.SubjectAccessReviewSpec{User: operatorUser, ResourceAttributes: &right})
}

func awaitAllowed(spec authorizationv1.SubjectAccessReviewSpec) {
	GinkgoHelper()
	Eventually(func() (bool, error) {
		review := &authorizationv1.SubjectAccessReview{Spec: spec}
		err := admin.Create(ctx, review)
		return review.Status.Allowed, err
	}).Should(BeTrue())
}

func rightsOf(rules []rbacv1.PolicyRule) []string {
	var rights []string
	for _, rule := range rules {
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					rights = append(rights, right(verb, group, resource))
				}
			}
		}
	}
	return rights
}

func right(verb, group, resource string) string {
	return strings.TrimSuffix(verb+" "+resource+" "+group, " ")
}

var (
	// used is every right that the operators have used.
	used []string

	// finalizersRight is used inside the API server, where no log tells of it; a spec shows that it is needed.
	finalizersRight = right("update", echov1.GroupVersion.Group, "echoes/finalizers")
)

// The log is gone after the suite, and what ran is known only then.
var _ = AfterSuite(func() {
	if audit == "" {
		return // The suite did not start.
	}
	var refused []string
	for _, event := range requested(0) {
		if event.Annotations["authorization.k8s.io/decision"] != "allow" { // Admission refuses what is allowed here.
			refused = append(refused, event.Verb+" "+event.RequestURI)
			continue
		}
		// OLM grants what its own OperatorCondition takes.
		if ref := event.ObjectRef; ref != nil && event.UserAgent != passAgent && ref.Resource != "operatorconditions" {
			used = append(used, right(event.Verb, ref.APIGroup, strings.TrimSuffix(ref.Resource+"/"+ref.Subresource, "/")))
		}
	}
	Expect(refused).To(BeEmpty(), "the operator asked for what config/rbac does not grant")
})

var _ = ReportAfterSuite("The operator's rights are those that it used", func(report Report) {
	for _, spec := range report.SpecReports {
		if spec.State != types.SpecStatePassed {
			return // What did not run, or not to its end, may have used more.
		}
	}
	set := func(rights []string) []string { return slices.Compact(slices.Sorted(slices.Values(rights))) }
	Expect(set(append(used, finalizersRight))).To(Equal(set(granted)), "rights used, compared with those that config/rbac grants")
})

var _ = Describe("What the operator may do", func() {
	It("is enough to elect a leader, and to ask who reads the metrics", func() {
		namespace := newNamespace()
		port, err := controlplane.FreePort()
		Expect(err).NotTo(HaveOccurred())
		address := "127.0.0.1:" + port
		program, err := controlplane.StartOperator(controlplane.OperatorOptions{
			Program: filepath.Join(os.Getenv("KUBEBUILDER_ASSETS"), "manager"), Directory: GinkgoT().TempDir(), Config: operator,
			Watched: []string{namespace}, Namespace: operatorNamespace,
			Args: []string{"--leader-elect", "--metrics-bind-address=" + address},
		})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func() { Expect(program.Terminate()).To(Succeed()) })
		Eventually(func() (int, error) {
			var events corev1.EventList
			err := admin.List(ctx, &events, client.InNamespace(operatorNamespace))
			return len(events.Items), err
		}).Should(BeNumerically(">", 0))

		bindMetricsReader(namespace, "reader")
		url := "https://" + address + "/metrics"
		Eventually(func() (int, error) { return statusOf(url, "") }).Should(Equal(http.StatusUnauthorized))
		Eventually(func() (int, error) { return statusOf(url, tokenOf(namespace, "reader")) }).Should(Equal(http.StatusOK))
		Expect(statusOf(url, tokenOf(namespace, "stranger"))).To(Equal(http.StatusForbidden))
	})

	// As those before Kubernetes 1.34 do by default.
	It("is enough where the API server does not stream its lists", func() {
		streaming := operator
		DeferCleanup(func() { operator = streaming })
		operator = rest.CopyConfig(streaming)
		operator.Wrap(func(next http.RoundTripper) http.RoundTripper { return withoutStreaming{next} })
		startOperator()
		becomesReady(createEcho(newNamespace(), "hello"))
	})

	It("includes the finalizers of Echoes, or no child could be protected by its owner", func() {
		role := &rbacv1.ClusterRole{}
		readRole("role.yaml", role)
		role.Name = "without-finalizers"
		for i := range role.Rules {
			role.Rules[i].Resources = slices.DeleteFunc(role.Rules[i].Resources, func(r string) bool { return r == "echoes/finalizers" })
		}
		Expect(rightsOf(role.Rules)).NotTo(ContainElement(finalizersRight))
		Expect(admin.Create(ctx, role)).To(Succeed())
		Expect(admin.Create(ctx, &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: role.Name},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: role.Name}},
		})).To(Succeed())

		echo := createEcho(newNamespace(), "hello")
		create := func(user string) error {
			config := rest.CopyConfig(adminConfig)
			config.Impersonate.UserName = user
			c, err := client.New(config, client.Options{Scheme: scheme})
			Expect(err).NotTo(HaveOccurred())
			service := serviceOf(echo)
			children.Service(service, echo)
			return c.Create(ctx, service, client.DryRunAll)
		}
		Eventually(func() error { return create(role.Name) }).Should(
			MatchError(ContainSubstring("cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on")))
		Expect(create(operatorUser)).To(Succeed())
	})
})

// withoutStreaming answers a request to stream a list as an API server does that cannot.
type withoutStreaming struct{ next http.RoundTripper }

func (w withoutStreaming) RoundTrip(request *http.Request) (*http.Response, error) {
	if !request.URL.Query().Has("sendInitialEvents") {
		return w.next.RoundTrip(request)
	}
	refusal := apierrors.NewInvalid(schema.GroupKind{Group: "meta.k8s.io", Kind: "ListOptions"}, "", field.ErrorList{
		field.Forbidden(field.NewPath("sendInitialEvents"), "the WatchList feature gate is off"),
	})
	body, err := json.Marshal(refusal.ErrStatus)
	return &http.Response{
		StatusCode: http.StatusUnprocessableEntity, Request: request,
		Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(body)),
	}, err
}

// bindMetricsReader lets an account read the metrics, as config/rbac suggests.
func bindMetricsReader(namespace, account string) {
	role := &rbacv1.ClusterRole{}
	readRole("metrics_reader_role.yaml", role)
	Expect(admin.Create(ctx, role)).To(Succeed())
	Expect(admin.Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role.Name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: account}},
	})).To(Succeed())
	// The operator remembers a no for half a minute.
	awaitAllowed(authorizationv1.SubjectAccessReviewSpec{
		User:                  "system:serviceaccount:" + namespace + ":" + account,
		NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: "/metrics", Verb: "get"},
	})
}

func tokenOf(namespace, account string) string {
	GinkgoHelper()
	serviceAccount := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: account}}
	if err := admin.Create(ctx, serviceAccount); !apierrors.IsAlreadyExists(err) {
		Expect(err).NotTo(HaveOccurred())
	}
	request := &authenticationv1.TokenRequest{}
	Expect(admin.SubResource("token").Create(ctx, serviceAccount, request)).To(Succeed())
	return request.Status.Token
}

func statusOf(url, token string) (int, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, err
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	httpClient := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, // The certificate is the operator's own.
	}}
	response, err := httpClient.Do(request)
	if err != nil {
		return 0, err
	}
	return response.StatusCode, response.Body.Close()
}

var _ = Describe("Where the API server protects owner references", func() {
	var (
		namespace string
		echo      *echov1.Echo
	)

	BeforeEach(func() {
		namespace = newNamespace()
		startOperator()
		echo = createEcho(namespace, "hello", twoPods)
		becomesReady(echo)
	})

	// To change an owner reference takes the right to delete the object, which the operator
	// has not: it is left as it is, and the Echo goes on.
	DescribeTable("a reference that another writer changed stays, and edits go on",
		func(childOf func() client.Object) {
			child := childOf()
			Eventually(komega.Update(child, func() {
				owners := child.GetOwnerReferences()
				owners[0].BlockOwnerDeletion = new(false)
				child.SetOwnerReferences(owners)
			})).Should(Succeed())
			edit(echo, func(s *echov1.EchoSpec) { s.Message, s.Port, s.Replicas = "newer", 81, 3 })
			becomesReady(echo)
			Expect(komega.Object(child)()).To(HaveField("OwnerReferences", ConsistOf(HaveField("BlockOwnerDeletion", Equal(new(false))))))
		},
		Entry("of the Service", func() client.Object { return serviceOf(echo) }),
		Entry("of the Deployment", func() client.Object { return deploymentOf(echo) }),
		Entry("of the budget", func() client.Object { return budgetOf(echo) }),
	)

	It("a second owner stays, and edits go on", func() {
		deployment := deploymentOf(echo)
		second := metav1.OwnerReference{APIVersion: "v1", Kind: "Namespace", Name: namespace, UID: uidOf(namespace)}
		Eventually(komega.Update(deployment, func() {
			deployment.OwnerReferences = append(deployment.OwnerReferences, second)
		})).Should(Succeed())
		edit(echo, func(s *echov1.EchoSpec) { s.Message = "newer" })
		becomesReady(echo)
		Expect(komega.Object(deployment)()).To(HaveField("OwnerReferences", ConsistOf(HaveField("Name", "hello"), Equal(second))))
	})
})

func uidOf(namespace string) apitypes.UID {
	object := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	Expect(komega.Get(object)()).To(Succeed())
	return object.UID
}
