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

// operatorNamespace is the namespace of the Role for leader election in config/rbac.
const operatorNamespace = "echo-operator-system"

// grantedPermissions are the permissions in config/rbac, in the format of permission().
var grantedPermissions []string

// grantRoles grants the operator exactly the permissions in config/rbac.
func grantRoles() {
	Expect(admin.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: operatorNamespace}})).To(Succeed())
	election := &rbacv1.Role{}
	readRole("leader_election_role.yaml", election)
	rules := append(operatorRules(), clusterRules("metrics_auth_role.yaml")...)
	grantIn(operatorUser, "", rules)
	grantIn(operatorUser, operatorNamespace, election.Rules)
	grantedPermissions = permissionsOf(append(rules, election.Rules...))
	waitForPermission(authorizationv1.ResourceAttributes{Verb: "watch", Group: echov1.GroupVersion.Group, Resource: "echoes"})
	waitForPermission(authorizationv1.ResourceAttributes{Verb: "create", Group: "coordination.k8s.io", Resource: "leases", Namespace: operatorNamespace})
}

func readRole(file string, role any) {
	text, err := os.ReadFile(filepath.Join("..", "..", "config", "rbac", file))
	Expect(err).NotTo(HaveOccurred())
	Expect(yaml.UnmarshalStrict(text, role)).To(Succeed())
}

// waitForPermission waits until the API server grants the operator the permission.
func waitForPermission(attributes authorizationv1.ResourceAttributes) {
	GinkgoHelper()
	waitForAccess(authorizationv1.SubjectAccessReviewSpec{User: operatorUser, ResourceAttributes: &attributes})
}

func waitForAccess(spec authorizationv1.SubjectAccessReviewSpec) {
	GinkgoHelper()
	Eventually(func() (bool, error) {
		review := &authorizationv1.SubjectAccessReview{Spec: spec}
		err := admin.Create(ctx, review)
		return review.Status.Allowed, err
	}).Should(BeTrue())
}

func permissionsOf(rules []rbacv1.PolicyRule) []string {
	var permissions []string
	for _, rule := range rules {
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					permissions = append(permissions, permission(verb, group, resource))
				}
			}
		}
	}
	return permissions
}

// permission formats one permission.
func permission(verb, group, resource string) string {
	return strings.TrimSuffix(verb+" "+resource+" "+group, " ")
}

var finalizersPermission = permission("update", echov1.GroupVersion.Group, "echoes/finalizers")

// internalPermissions returns those that the API server checks internally, so that the audit log does not contain them.
// Specs show that the operator needs them: for owner references, and to delete children, for adoption.
func internalPermissions() []string {
	permissions := []string{finalizersPermission}
	for _, kind := range children.Kinds {
		permissions = append(permissions, permission("delete", kind.Resource.Group, kind.Resource.Resource))
	}
	return permissions
}

// usedPermissions is the name of the report entries with the permissions that the operators used.
const usedPermissions = "used permissions"

// ReportAfterSuite has the reports of all processes, but the audit logs are deleted before it runs.
var _ = AfterSuite(func() {
	if audit == "" {
		return // The suite did not start.
	}
	var rejected, used []string
	for _, event := range auditEventsSince(0) {
		if event.Annotations["authorization.k8s.io/decision"] != "allow" { // A request that admission rejects has the decision allow.
			rejected = append(rejected, event.Verb+" "+event.RequestURI)
			continue
		}
		// OLM grants the permissions for the OperatorCondition.
		if ref := event.ObjectRef; ref != nil && event.UserAgent != directUserAgent && ref.Resource != "operatorconditions" {
			used = append(used, permission(event.Verb, ref.APIGroup, strings.TrimSuffix(ref.Resource+"/"+ref.Subresource, "/")))
		}
	}
	Expect(rejected).To(BeEmpty(), "requests of the operator that config/rbac does not permit")
	AddReportEntry(usedPermissions, strings.Join(distinct(used), "\n"), ReportEntryVisibilityNever)
})

var _ = ReportAfterSuite("The operator uses exactly the permissions that config/rbac grants", func(report Report) {
	used := internalPermissions()
	for _, spec := range report.SpecReports {
		if spec.State != types.SpecStatePassed {
			return // A spec that did not pass may use more permissions.
		}
		for _, entry := range spec.ReportEntries {
			if entry.Name == usedPermissions {
				used = append(used, strings.Split(entry.StringRepresentation(), "\n")...)
			}
		}
	}
	Expect(distinct(used)).To(Equal(distinct(grantedPermissions)), "permissions that were used, compared with those that config/rbac grants")
})

// distinct returns the permissions in order, each once.
func distinct(permissions []string) []string {
	return slices.Compact(slices.Sorted(slices.Values(permissions)))
}

var _ = Describe("The operator's permissions", func() {
	It("are sufficient to elect a leader and to authorize clients of the metrics", func() {
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
		Eventually(func() (int, error) { return statusOf(url) }).Should(Equal(http.StatusUnauthorized))
		Eventually(func() (int, error) { return statusOf(url, "Bearer "+tokenOf(namespace, "reader")) }).Should(Equal(http.StatusOK))
		Expect(statusOf(url, "Bearer "+tokenOf(namespace, "other"))).To(Equal(http.StatusForbidden))
	})

	// Streaming lists are disabled by default before Kubernetes 1.34.
	It("are sufficient for an API server that does not stream lists", func() {
		streaming := operator
		DeferCleanup(func() { operator = streaming })
		operator = rest.CopyConfig(streaming)
		operator.Wrap(func(next http.RoundTripper) http.RoundTripper { return withoutStreaming{next} })
		startOperator()
		expectReady(createEcho(newNamespace(), "hello", everyChild))
	})

	It("include the finalizers of Echoes, which blockOwnerDeletion of a child requires", func() {
		const user = "without-finalizers"
		rules := operatorRules("echoes/finalizers")
		Expect(permissionsOf(rules)).NotTo(ContainElement(finalizersPermission))
		grantIn(user, "", rules)
		echo := createEcho(newNamespace(), "hello")
		create := func(user string) error {
			config := rest.CopyConfig(adminConfig)
			config.Impersonate.UserName = user
			c, err := client.New(config, client.Options{Scheme: scheme})
			Expect(err).NotTo(HaveOccurred())
			service := serviceOf(echo)
			children.Service(service, echo, children.Inputs{})
			return c.Create(ctx, service, client.DryRunAll)
		}
		Eventually(func() error { return create(user) }).Should(
			MatchError(ContainSubstring("cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on")))
		Expect(create(operatorUser)).To(Succeed())
	})
})

// withoutStreaming rejects requests to stream a list, like an API server without that feature.
type withoutStreaming struct{ next http.RoundTripper }

func (w withoutStreaming) RoundTrip(request *http.Request) (*http.Response, error) {
	if !request.URL.Query().Has("sendInitialEvents") {
		return w.next.RoundTrip(request)
	}
	rejection := apierrors.NewInvalid(schema.GroupKind{Group: "meta.k8s.io", Kind: "ListOptions"}, "", field.ErrorList{
		field.Forbidden(field.NewPath("sendInitialEvents"), "the WatchList feature gate is off"),
	})
	body, err := json.Marshal(rejection.ErrStatus)
	return &http.Response{
		StatusCode: http.StatusUnprocessableEntity, Request: request,
		Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(body)),
	}, err
}

// bindMetricsReader grants an account permission to read the metrics, with the role in config/rbac.
func bindMetricsReader(namespace, account string) {
	user := "system:serviceaccount:" + namespace + ":" + account
	grantIn(user, "", clusterRules("metrics_reader_role.yaml"))
	// The operator caches a denial for 30 seconds, so the permission must be effective first.
	waitForAccess(authorizationv1.SubjectAccessReviewSpec{
		User: user, NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: "/metrics", Verb: "get"},
	})
}

func tokenOf(namespace, account string) string {
	GinkgoHelper()
	serviceAccount := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: account}}
	Expect(client.IgnoreAlreadyExists(admin.Create(ctx, serviceAccount))).To(Succeed())
	request := &authenticationv1.TokenRequest{}
	Expect(admin.SubResource("token").Create(ctx, serviceAccount, request)).To(Succeed())
	return request.Status.Token
}

func statusOf(url string, authorization ...string) (int, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, err
	}
	request.Header["Authorization"] = authorization
	httpClient := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, // The certificate is self-signed.
	}}
	response, err := httpClient.Do(request)
	if err != nil {
		return 0, err
	}
	return response.StatusCode, response.Body.Close()
}

var _ = Describe("With protected owner references", func() {
	var namespace string
	var echo *echov1.Echo
	BeforeEach(func() {
		namespace = newNamespace()
		startOperator()
		echo = createEcho(namespace, "hello", everyChild)
		expectReady(echo)
	})

	// Changing an owner reference requires permission to delete the object, which the operator
	// does not have for every kind.
	var entries []TableEntry
	for _, kind := range children.Kinds {
		entries = append(entries, Entry("of the "+kind.Name, kind))
	}
	DescribeTable("a reference that another writer changed is kept, and edits are applied",
		func(kind children.Kind) {
			edit(echo, everyChildWith(kind))
			child := client.Object(kind.New())
			child.SetNamespace(echo.Namespace)
			child.SetName(kind.ChildName(echo))
			Eventually(komega.Get(child)).Should(Succeed())
			Eventually(komega.Update(child, func() {
				owners := child.GetOwnerReferences()
				owners[0].BlockOwnerDeletion = new(false)
				child.SetOwnerReferences(owners)
			})).Should(Succeed())
			edit(echo, func(s *echov1.EchoSpec) { s.Message, s.Port, s.Replicas = "newer", 81, 3 })
			expectReady(echo)
			Expect(komega.Object(child)()).To(HaveField("OwnerReferences", ConsistOf(HaveField("BlockOwnerDeletion", Equal(new(false))))))
		},
		entries,
	)

	It("a second owner is kept, and edits are applied", func() {
		deployment := deploymentOf(echo)
		second := metav1.OwnerReference{APIVersion: "v1", Kind: "Namespace", Name: namespace, UID: uidOf(namespace)}
		Eventually(komega.Update(deployment, func() {
			deployment.OwnerReferences = append(deployment.OwnerReferences, second)
		})).Should(Succeed())
		edit(echo, func(s *echov1.EchoSpec) { s.Message = "newer" })
		expectReady(echo)
		Expect(komega.Object(deployment)()).To(HaveField("OwnerReferences", ConsistOf(HaveField("Name", "hello"), Equal(second))))
	})
})

func uidOf(namespace string) apitypes.UID {
	object := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	Expect(komega.Get(object)()).To(Succeed())
	return object.UID
}
