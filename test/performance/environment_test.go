package performance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/testing/controlplane"
)

const (
	// The users in the audit log.
	operatorUser, baselineUser = "operator", "baseline-client"
	// timeout bounds every wait.
	timeout = 10 * time.Minute
	// settleTime is how long after the last change the operator may still reconcile.
	settleTime = 1500 * time.Millisecond
	// concurrency is the number of concurrent requests of the baseline client and of the setup.
	concurrency = 32
	// replicas of every Echo: with two, an Echo has a PodDisruptionBudget.
	replicas = 2
)

// environment is an API server with the operator and the baseline client as its users.
type environment struct {
	*testing.T
	admin, baselineClient client.Client
	operatorConfig        *rest.Config
	directory             string
	audit                 controlplane.AuditLog
	// metrics reads those of the operator that serves them at metricsAddress.
	metrics        *rest.RESTClient
	metricsAddress string
	// figures are those that are compared with the recorded baseline.
	figures []figure
}

// newEnvironment starts etcd and kube-apiserver, and kube-controller-manager and a kubelet that
// reports pods as ready unless bare is set. All end with the test.
func newEnvironment(t *testing.T, bare bool) *environment {
	e := &environment{T: t, directory: t.TempDir()}
	e.audit = controlplane.AuditLog(filepath.Join(e.directory, "audit.log"))
	bin, err := filepath.Abs("../../bin")
	e.must(err)
	plane, err := controlplane.Start(t.Context(), controlplane.Options{Root: "../..", Bin: bin, Logs: e.directory, AuditLog: e.audit, Bare: bare})
	e.must(err)
	t.Cleanup(func() { e.must(plane.Stop(t.Context())) })
	e.admin = plane.Client
	roles := "../../config/rbac/"
	e.operatorConfig, err = plane.AddUser(t.Context(), operatorUser, roles+"role.yaml", roles+"metrics_auth_role.yaml")
	e.must(err)
	config, err := plane.AddUnprivilegedUser(baselineUser)
	e.must(err)
	e.baselineClient, err = client.New(config, client.Options{Scheme: e.admin.Scheme()})
	e.must(err)
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "metrics"}}
	e.must(e.admin.Create(t.Context(), account))
	e.must(e.admin.Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "performance"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects: []rbacv1.Subject{
			{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: baselineUser},
			{Kind: rbacv1.ServiceAccountKind, Namespace: account.Namespace, Name: account.Name},
		},
	}))
	token := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: new(int64(86_400))}}
	e.must(e.admin.SubResource("token").Create(t.Context(), account, token))
	e.metricsAddress = e.freeAddress()
	e.metrics, err = rest.UnversionedRESTClientFor(&rest.Config{
		Host: "https://" + e.metricsAddress, BearerToken: token.Status.Token,
		TLSClientConfig: rest.TLSClientConfig{Insecure: true}, // The certificate is self-signed.
		ContentConfig:   rest.ContentConfig{NegotiatedSerializer: scheme.Codecs.WithoutConversion()},
	})
	e.must(err)
	return e
}

func (e *environment) must(err error) {
	e.Helper()
	if err != nil {
		e.Fatal(err)
	}
}

// poll waits for what the condition reports, and fails if the operator exits.
func (e *environment) poll(what string, operator *controlplane.Operator, interval time.Duration, condition func() (bool, error)) {
	e.Helper()
	if err := wait.PollUntilContextTimeout(e.Context(), interval, timeout, true, func(context.Context) (bool, error) {
		done, err := condition()
		return done, errors.Join(err, operator.Failed())
	}); err != nil {
		e.Fatalf("wait until %s: %v", what, err)
	}
}

func (e *environment) freeAddress() string {
	port, err := controlplane.FreePort()
	e.must(err)
	return "127.0.0.1:" + port
}

// startOperator starts the operator for some namespaces, and waits until it starts to reconcile.
// It serves metrics only if args say so.
func (e *environment) startOperator(namespaces []string, args ...string) *controlplane.Operator {
	operator, err := controlplane.StartOperator(controlplane.OperatorOptions{
		Program: "../../bin/manager", Directory: e.directory, Config: e.operatorConfig,
		Watched: namespaces, Namespace: metav1.NamespaceDefault, Args: append([]string{"--metrics-bind-address=0"}, args...),
	})
	e.must(err)
	e.Cleanup(operator.Kill)
	e.poll("the operator starts its workers", operator, 5*time.Millisecond, func() (bool, error) {
		log, err := os.ReadFile(operator.Log)
		return bytes.Contains(log, []byte("Starting workers")), err
	})
	return operator
}

// reconciliations reads their number since the start from the operator's metrics.
func (e *environment) reconciliations(operator *controlplane.Operator) (count float64) {
	const name = "controller_runtime_reconcile_total"
	var text []byte
	e.poll("the operator serves "+name, operator, 50*time.Millisecond, func() (bool, error) {
		text, _ = e.metrics.Get().AbsPath("/metrics").DoRaw(e.Context()) // A new operator has no certificate yet.
		return bytes.Contains(text, []byte(name)), nil
	})
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	e.must(err)
	for _, metric := range families[name].GetMetric() {
		count += metric.GetCounter().GetValue()
	}
	return count
}

func (e *environment) createNamespace() string {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "performance-"}}
	e.must(e.admin.Create(e.Context(), namespace))
	return namespace.Name
}

// forEach calls do for each number below n.
func forEach(n int, do func(i int) error) error {
	var group errgroup.Group
	group.SetLimit(concurrency)
	for i := range n {
		group.Go(func() error { return do(i) })
	}
	return group.Wait()
}

func newEcho(namespace, name string) *echov1.Echo {
	return &echov1.Echo{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       echov1.EchoSpec{Message: "hello", Replicas: replicas},
	}
}

func (e *environment) createEchoes(namespace string, n int) []*echov1.Echo {
	echoes := make([]*echov1.Echo, n)
	e.must(forEach(n, func(i int) error {
		echoes[i] = newEcho(namespace, fmt.Sprint("e", i))
		return e.admin.Create(e.Context(), echoes[i])
	}))
	return echoes
}

// editEchoes changes the spec of every Echo.
func (e *environment) editEchoes(echoes []*echov1.Echo, change func(*echov1.EchoSpec)) error {
	return forEach(len(echoes), func(i int) error {
		before := client.MergeFrom(echoes[i].DeepCopy())
		change(&echoes[i].Spec)
		return e.admin.Patch(e.Context(), echoes[i], before)
	})
}

func editMessage(spec *echov1.EchoSpec) { spec.Message = "edited" }

// isConverged reports whether the status is of the newest generation.
func isConverged(echo *echov1.Echo) bool { return echo.Status.ObservedGeneration == echo.Generation }

// isReady reports whether every pod serves the newest spec.
func isReady(echo *echov1.Echo) bool {
	return isConverged(echo) && meta.IsStatusConditionTrue(echo.Status.Conditions, echov1.ConditionReady)
}

// await waits until the condition holds for every Echo of the namespace. It lists Echoes only after
// the audit log has not grown for half a second: lists of thousands of Echoes would load the API
// server that is measured.
func (e *environment) await(namespace string, operator *controlplane.Operator, condition func(*echov1.Echo) bool) {
	e.Helper()
	var size int64
	var grown time.Time
	e.poll("every Echo in namespace "+namespace+" has the expected status", operator, 50*time.Millisecond, func() (bool, error) {
		log, err := os.Stat(string(e.audit))
		if err != nil {
			return false, err
		}
		if log.Size() != size {
			size, grown = log.Size(), time.Now()
		}
		if time.Since(grown) < 500*time.Millisecond {
			return false, nil
		}
		var echoes echov1.EchoList
		err = e.admin.List(e.Context(), &echoes, client.InNamespace(namespace))
		return !slices.ContainsFunc(echoes.Items, func(echo echov1.Echo) bool { return !condition(&echo) }), err
	})
}

// deleteEchoes deletes the Echoes and children of a namespace; a bare API server has no garbage
// collector. The API server aborts requests that take longer than a minute, hence the retries.
func (e *environment) deleteEchoes(namespace string) {
	for _, object := range []client.Object{&echov1.Echo{}, &appsv1.Deployment{}, &corev1.Service{}, &policyv1.PodDisruptionBudget{}} {
		e.must(retry.OnError(retry.DefaultBackoff, func(error) bool { return true }, func() error {
			return e.admin.DeleteAllOf(e.Context(), object, client.InNamespace(namespace))
		}))
	}
}
