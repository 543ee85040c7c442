// The operator: it reads its settings, and reconciles Echoes until it is told to stop.
package main

import (
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"time"

	operatorsv2 "github.com/operator-framework/api/pkg/operators/v2"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/filters"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/controller"
)

func main() {
	if err := run(ctrl.SetupSignalHandler(), os.Args[1:], os.Getenv); err != nil {
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
		return fmt.Errorf("find the API server: %w", err)
	}
	ctrl.SetLogger(zap.New(zap.UseFlagOptions(&s.log)))
	mgr, err := newManager(ctx, restConfig, s)
	if err != nil {
		return err
	}
	return mgr.Start(ctx)
}

// newManager sets everything up.
func newManager(ctx context.Context, restConfig *rest.Config, s settings) (manager.Manager, error) {
	mgr, err := ctrl.NewManager(restConfig, managerOptions(s))
	if err != nil {
		return nil, fmt.Errorf("set up the manager: %w", err)
	}
	if err := (&controller.EchoReconciler{
		Client:                  mgr.GetClient(),
		APIReader:               mgr.GetAPIReader(),
		Recorder:                mgr.GetEventRecorder("echo-operator"),
		ServerImage:             s.serverImage,
		MaxConcurrentReconciles: s.maxConcurrentReconciles,
	}).SetupWithManager(ctx, mgr); err != nil {
		return nil, fmt.Errorf("set up the controller: %w", err)
	}
	if s.operatorCondition != nil {
		if err := (&controller.UpgradeableReconciler{Condition: *s.operatorCondition}).SetupWithManager(ctx, mgr); err != nil {
			return nil, fmt.Errorf("set up the report to OLM: %w", err)
		}
	}
	if err := mgr.AddHealthzCheck("ping", healthz.Ping); err != nil {
		return nil, fmt.Errorf("set up the health check: %w", err)
	}
	if err := mgr.AddReadyzCheck("caches", cachesSynced(mgr.GetCache())); err != nil {
		return nil, fmt.Errorf("set up the readiness check: %w", err)
	}
	return mgr, nil
}

func managerOptions(s settings) manager.Options {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, echov1.AddToScheme, operatorsv2.AddToScheme} {
		if err := add(scheme); err != nil {
			panic(err) // Constant lists of types that collide: a programming error.
		}
	}
	warmUp := true
	return manager.Options{
		Scheme:                        scheme,
		Cache:                         controller.CacheOptions(s.namespaces),
		Client:                        controller.ClientOptions(s.namespaces),
		HealthProbeBindAddress:        s.healthAddress,
		PprofBindAddress:              s.pprofAddress,
		LeaderElection:                s.leaderElect,
		LeaderElectionID:              "echo-operator.kkloud.io",
		LeaderElectionReleaseOnCancel: true,
		// A replica that waits to lead has its caches filled, and takes over at once.
		Controller: config.Controller{EnableWarmup: &warmUp},
		Metrics: metricsserver.Options{
			BindAddress:    s.metricsAddress,
			SecureServing:  true,
			FilterProvider: filters.WithAuthenticationAndAuthorization,
			TLSOpts:        []func(*tls.Config){func(c *tls.Config) { c.NextProtos = []string{"http/1.1"} }},
		},
	}
}

// cachesSynced makes the operator ready when it has seen the cluster.
func cachesSynced(c cache.Cache) healthz.Checker {
	return func(request *http.Request) error {
		ctx, cancel := context.WithTimeout(request.Context(), 100*time.Millisecond)
		defer cancel()
		if !c.WaitForCacheSync(ctx) {
			return errors.New("caches are not synced")
		}
		return nil
	}
}
