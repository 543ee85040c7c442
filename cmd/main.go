// The operator reads its settings and reconciles Echoes until it receives SIGTERM.
package main

import (
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"runtime/debug"
	"syscall"
	"time"

	operatorsv2 "github.com/operator-framework/api/pkg/operators/v2"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/metrics/filters"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/controller"
	"github.com/kkloud-io/echo-operator/internal/informers"
	"github.com/kkloud-io/echo-operator/internal/metrics"
	"github.com/kkloud-io/echo-operator/internal/olm"
	"github.com/kkloud-io/echo-operator/internal/status"
	"github.com/kkloud-io/echo-operator/internal/transport"
)

// The linker sets version.
var version = "unknown"

func main() {
	os.Args[0] = "echo-operator" // Leader election names itself by it in its user agent.
	err := run(ctrl.SetupSignalHandler(), os.Args[1:], os.Getenv)
	if errors.Is(err, informers.ErrReadable) { // The kubelet would restart the container at increasing intervals.
		err = syscall.Exec("/proc/self/exe", os.Args, os.Environ()) //nolint:gosec // This program, with its own arguments.
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "echo-operator:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, getenv func(string) string) error {
	s, err := parseSettings(args, getenv)
	if errors.Is(err, flag.ErrHelp) {
		return nil
	}
	if err != nil {
		return err
	}
	restConfig, err := ctrl.GetConfig()
	if err != nil {
		return fmt.Errorf("load the client configuration: %w", err)
	}
	ctrl.SetLogger(zap.New(zap.UseFlagOptions(&s.log)))
	debug.SetMemoryLimit(debug.SetMemoryLimit(-1) / 10 * 9) // GOMEMLIMIT is that of the container, which also counts the kernel's memory.
	mgr, awaitReadable, err := newManager(ctx, restConfig, s)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	go func() { stop(awaitReadable(ctx)) }()
	err = mgr.Start(ctx)
	if cause := context.Cause(ctx); errors.Is(cause, informers.ErrReadable) {
		ctrl.Log.Info("Starting again", "cause", cause.Error())
		return cause
	}
	return err
}

// newManager sets up the manager and its controllers, and returns what to await beside it. The operator also starts while the API
// server is unavailable.
func newManager(ctx context.Context, restConfig *rest.Config, s settings) (manager.Manager, func(context.Context) error, error) {
	restConfig.UserAgent = "echo-operator/" + version // The API server takes the name of the field manager from it.
	restConfig.Wrap(transport.Wrap)
	options := managerOptions(s)
	live, err := client.New(restConfig, client.Options{Scheme: options.Scheme, Mapper: informers.RESTMapper()})
	if err != nil {
		return nil, nil, fmt.Errorf("set up the client: %w", err)
	}
	namespaces, optional := informers.NewNamespaces(ctx, live, s.namespaces), informers.NewOptional(informers.DiscoveryPeriod)
	options.Cache = informers.CacheOptions(namespaces.Readable(), optional)
	mgr, err := ctrl.NewManager(restConfig, options)
	if err != nil {
		return nil, nil, fmt.Errorf("set up the manager: %w", err)
	}
	optional.Reader, optional.Cache, optional.Namespaces = live, mgr.GetCache(), namespaces.Readable()
	reconciler := &controller.EchoReconciler{
		Client:                     mgr.GetClient(),
		APIReader:                  mgr.GetAPIReader(),
		Recorder:                   mgr.GetEventRecorder("echo-operator"),
		ServerImage:                s.serverImage,
		VerifierImage:              s.verifierImage,
		AllowEveryNodeVerification: s.allowEveryNode,
		MaxConcurrentReconciles:    s.maxConcurrentReconciles,
		Optional:                   optional,
		Metrics:                    metrics.New(ctrlmetrics.Registry, version),
	}
	if err := reconciler.SetupWithManager(ctx, mgr); err != nil {
		return nil, nil, fmt.Errorf("set up the Echo controller: %w", err)
	}
	ctrlmetrics.Registry.MustRegister(
		metrics.Echoes(mgr.GetCache()), //nolint:contextcheck // A scrape has no context.
		metrics.NamespaceServed(namespaces.Watched, namespaces.Readable()), metrics.LongestWait(reconciler.LongestWait))
	if s.operatorCondition != nil {
		upgradeable := &olm.Upgradeable{Condition: *s.operatorCondition, RolloutInFlight: status.RolloutInFlight, Echoes: mgr.GetClient(), Live: live}
		if err := mgr.Add(upgradeable); err != nil {
			return nil, nil, fmt.Errorf("set up the condition Upgradeable: %w", err)
		}
	}
	awaitReadable := func(ctx context.Context) error {
		return namespaces.Await(ctx, func() bool { return isSynced(ctx, mgr.GetCache()) && optional.IsSynced() })
	}
	return mgr, awaitReadable, errors.Join(mgr.AddHealthzCheck("ping", healthz.Ping), mgr.AddReadyzCheck("caches", cachesSynced(mgr.GetCache())))
}

// A standby checks the lease every 1 to 2.2 retry periods. So it takes over within 4 s of a
// leader that released its lease, and within 19 s of a leader that did not. A leader that
// cannot reach the API server stops after 9.5 s, 2.5 s before another can lead. The leader
// writes the lease four times in six seconds; a longer period would delay the takeover.
const (
	leaseDuration = 12 * time.Second
	renewDeadline = 8 * time.Second
	retryPeriod   = 1500 * time.Millisecond
)

// cacheSyncTimeout is how long the operator waits for missing permissions or a missing CRD, if it can serve no namespace.
// Meanwhile it is not ready, and it logs the reason. Exiting would delay recovery, because the
// kubelet restarts a crashing container at increasing intervals.
const cacheSyncTimeout = 24 * time.Hour

func managerOptions(s settings) manager.Options {
	scheme := runtime.NewScheme()
	types := runtime.NewSchemeBuilder(clientgoscheme.AddToScheme, echov1.AddToScheme, operatorsv2.AddToScheme, gatewayv1.Install)
	utilruntime.Must(types.AddToScheme(scheme)) // The lists are constant, so a collision of types is a programming error.
	return manager.Options{
		Scheme:                        scheme,
		MapperProvider:                func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return informers.RESTMapper(), nil },
		HealthProbeBindAddress:        s.healthAddress,
		PprofBindAddress:              s.pprofAddress,
		LeaderElection:                s.leaderElect,
		LeaderElectionID:              "echo-operator.kkloud.io",
		LeaderElectionNamespace:       s.ownNamespace,
		LeaderElectionReleaseOnCancel: true,
		LeaseDuration:                 new(leaseDuration),
		RenewDeadline:                 new(renewDeadline),
		RetryPeriod:                   new(retryPeriod),
		// A standby fills its caches, so it takes over without delay.
		Controller: config.Controller{EnableWarmup: new(true), CacheSyncTimeout: cacheSyncTimeout},
		Metrics: metricsserver.Options{
			BindAddress:    s.metricsAddress,
			SecureServing:  true,
			FilterProvider: filters.WithAuthenticationAndAuthorization,
			TLSOpts:        []func(*tls.Config){func(c *tls.Config) { c.NextProtos = []string{"http/1.1"} }},
		},
	}
}

// cachesSynced returns a readiness check that passes when the caches are synced.
func cachesSynced(c cache.Cache) healthz.Checker {
	return func(request *http.Request) error {
		if !isSynced(request.Context(), c) {
			return errors.New("the caches are not synced: the log says what the API server responds")
		}
		return nil
	}
}

func isSynced(ctx context.Context, c cache.Cache) bool {
	ctx, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
	defer cancel()
	return c.WaitForCacheSync(ctx)
}
