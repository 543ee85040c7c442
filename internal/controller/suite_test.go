package controller

import (
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
	"github.com/operator-framework/api/crds"
	operatorsv2 "github.com/operator-framework/api/pkg/operators/v2"
	"github.com/prometheus/client_golang/prometheus"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/envtest/komega"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/kkloud-io/echo-operator/internal/children"
	"github.com/kkloud-io/echo-operator/internal/informers"
	"github.com/kkloud-io/echo-operator/internal/metrics"
	"github.com/kkloud-io/echo-operator/internal/olm"
	"github.com/kkloud-io/echo-operator/internal/status"
	"github.com/kkloud-io/echo-operator/internal/testing/controlplane"
)

const (
	serverImage   = controlplane.ServerImage
	verifierImage = controlplane.VerifierImage

	// operatorUser is the user name of the operator. It has exactly the permissions of
	// config/rbac, and the audit log contains its requests.
	operatorUser = "operator-under-test"

	// testDiscoveryPeriod is the discovery period of the operators.
	testDiscoveryPeriod = 2 * time.Second
)

var (
	ctx    context.Context
	scheme *runtime.Scheme
	// inputs are those of the operators.
	inputs = children.Inputs{ServerImage: serverImage, VerifierImage: verifierImage, ClusterIPs: []string{"10.0.0.7"},
		OverriddenRoutes: []gatewayv1.HTTPRoute{*application("", "shop", "/")}}
	admin       client.Client
	adminConfig *rest.Config
	operator    *rest.Config
	audit       controlplane.AuditLog

	// operatorLog contains the log of all operators.
	operatorLog = gbytes.NewBuffer()

	// gatewayCRDs are those of the Gateway API.
	gatewayCRDs []*apiextensionsv1.CustomResourceDefinition

	// registry contains the metrics of the operator that was started last. operatorCache is its cache, and namespaces are
	// those that it watches.
	registry      *prometheus.Registry
	operatorCache cache.Cache
	namespaces    *informers.Namespaces
)

func TestController(t *testing.T) {
	RegisterFailHandler(Fail)
	if os.Getenv("GOMEGA_DEFAULT_EVENTUALLY_TIMEOUT") == "" { // An emulated machine needs more.
		SetDefaultEventuallyTimeout(20 * time.Second)
	}
	SetDefaultEventuallyPollingInterval(50 * time.Millisecond)
	SetDefaultConsistentlyDuration(2 * time.Second)
	RunSpecs(t, "The controller with a real API server and kube-controller-manager")
}

var _ = BeforeSuite(func() {
	logf.SetLogger(zap.New(zap.WriteTo(io.MultiWriter(GinkgoWriter, operatorLog))))
	Expect(os.Getenv("KUBEBUILDER_ASSETS")).NotTo(BeEmpty(), "run this suite with `make test`, which builds its control plane")

	var cancel context.CancelFunc
	ctx, cancel = context.WithCancel(context.Background())
	DeferCleanup(func() { cancel() })

	scheme = controlplane.Scheme()
	Expect(operatorsv2.AddToScheme(scheme)).To(Succeed())
	Expect(apiextensionsv1.AddToScheme(scheme)).To(Succeed())

	directory := GinkgoT().TempDir()
	audit = controlplane.AuditLog(filepath.Join(directory, "audit.log"))
	root := filepath.Join("..", "..")
	var err error
	gatewayCRDs, err = controlplane.GatewayCRDs(root, "gatewayclasses", "httproutes")
	Expect(err).NotTo(HaveOccurred())
	plane, err := controlplane.Start(ctx, controlplane.Options{
		Root: root, Bin: os.Getenv("KUBEBUILDER_ASSETS"), Logs: directory, AuditLog: audit,
		CRDs: append(slices.Clone(gatewayCRDs), crds.OperatorCondition()),
	})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(plane.Stop(context.Background())).To(Succeed()) })
	adminConfig = plane.Config
	plane.StartGateways(ctx)

	admin, err = client.New(adminConfig, client.Options{Scheme: scheme})
	Expect(err).NotTo(HaveOccurred())
	komega.SetClient(admin)
	komega.SetContext(ctx)

	operator, err = plane.AddUnprivilegedUser(operatorUser)
	Expect(err).NotTo(HaveOccurred())
	operator.UserAgent = "echo-operator/specs" // The API server takes the name of the field manager from it, as for main.
	grantRoles()
})

// startOperator runs the operator for the given namespaces, or for all without arguments, until
// stop is called or the spec ends.
func startOperator(namespaces ...string) (stop func()) {
	return startOperatorUnderOLM(client.ObjectKey{}, namespaces...)
}

// startOperatorUnderOLM runs the operator with an OperatorCondition, as OLM does.
func startOperatorUnderOLM(condition client.ObjectKey, namespaces ...string) (stop func()) {
	return startChangedOperator(func(*EchoReconciler) {}, condition, namespaces...)
}

// startChangedOperator runs the operator with other settings.
func startChangedOperator(change func(*EchoReconciler), condition client.ObjectKey, watched ...string) (stop func()) {
	registry = prometheus.NewRegistry()
	reader, err := client.New(operator, client.Options{Scheme: scheme, Mapper: informers.RESTMapper()})
	Expect(err).NotTo(HaveOccurred())
	namespaces = informers.NewNamespaces(ctx, reader, watched)
	optional := informers.NewOptional(testDiscoveryPeriod)
	mgr, err := ctrl.NewManager(operator, ctrl.Options{
		Scheme:         scheme,
		Cache:          informers.CacheOptions(namespaces.Readable(), optional),
		MapperProvider: func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return informers.RESTMapper(), nil },
		Metrics:        metricsserver.Options{BindAddress: "0"},
		Controller:     config.Controller{SkipNameValidation: new(true)},
	})
	Expect(err).NotTo(HaveOccurred())
	operatorCache = mgr.GetCache()
	optional.Reader, optional.Cache, optional.Namespaces = reader, mgr.GetCache(), namespaces.Readable()
	reconciler := &EchoReconciler{
		Client:                     mgr.GetClient(),
		APIReader:                  mgr.GetAPIReader(),
		Recorder:                   mgr.GetEventRecorder("echo-operator"),
		ServerImage:                serverImage,
		VerifierImage:              verifierImage,
		AllowEveryNodeVerification: true,
		// With one worker, an Echo that blocks it delays the others.
		MaxConcurrentReconciles: 1,
		Optional:                optional,
		Metrics:                 metrics.New(registry, "test"),
	}
	change(reconciler)
	Expect(reconciler.SetupWithManager(ctx, mgr)).To(Succeed())
	registry.MustRegister(metrics.Echoes(mgr.GetCache()), metrics.NamespaceServed(namespaces.Watched, namespaces.Readable()))
	if condition.Name != "" {
		Expect(mgr.Add(&olm.Upgradeable{Condition: condition, RolloutInFlight: status.RolloutInFlight, Echoes: mgr.GetClient(), Live: reader})).To(Succeed())
	}

	return start(mgr)
}

// start runs a manager until stop is called or the spec ends.
func start(mgr ctrl.Manager) (stop func()) {
	managerCtx, cancel := context.WithCancel(ctx)
	stopped := make(chan error, 1)
	go func() { stopped <- mgr.Start(managerCtx) }()
	running := true
	stop = func() {
		if running {
			running = false
			cancel()
			Expect(<-stopped).To(Succeed())
		}
	}
	DeferCleanup(stop)
	syncCtx, cancelSync := context.WithTimeout(managerCtx, time.Minute)
	defer cancelSync()
	Expect(mgr.GetCache().WaitForCacheSync(syncCtx)).To(BeTrue(), "the caches are not synced after a minute")
	return stop
}
