package scenarios

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/testing/controlplane"
	"github.com/kkloud-io/echo-operator/test/chaos/harness"
	"github.com/kkloud-io/echo-operator/test/chaos/oracle"
)

// expectBoundedRequests waits, and bounds the operator's requests and logged errors meanwhile.
func expectBoundedRequests(ctx context.Context, e *harness.Environment, d time.Duration, echoes int) error {
	requests, logged := e.Proxy.Requests(), loggedErrors(e.Operator)
	harness.Pause(ctx, d)
	bound := oracle.RetryBound(d, echoes)
	return errors.Join(
		oracle.CheckCount("requests", e.Proxy.Requests()-requests, 0, bound, d),
		oracle.CheckCount("errors in the log", loggedErrors(e.Operator)-logged, 0, bound, d))
}

// loggedErrors returns the number of errors in the operator's log.
func loggedErrors(operator *controlplane.Operator) int {
	log, _ := os.ReadFile(operator.Log) //nolint:gosec // A missing log has no errors.
	return bytes.Count(log, []byte(`"level":"error"`))
}

// noServicePermissions removes the permissions for one kind while Echoes are edited. The operator has to
// reconcile the others.
func (o outage) noServicePermissions(ctx context.Context, e *harness.Environment) error {
	o.echoes = min(o.echoes, 20)
	if err := o.createEchoes(ctx, e); err != nil {
		return err
	}
	var role rbacv1.ClusterRole
	if err := e.Client.Get(ctx, client.ObjectKey{Name: harness.OperatorUser}, &role); err != nil {
		return err
	}
	all, resource := role.Rules, service.Resource.Resource
	role.Rules = slices.DeleteFunc(slices.Clone(all), func(r rbacv1.PolicyRule) bool { return slices.Contains(r.Resources, resource) })
	if err := e.Client.Update(ctx, &role); err != nil {
		return err
	}
	harness.Pause(ctx, time.Second) // The API server's authorizer watches the role.
	err := forEachEcho(ctx, 0, o.echoes, func(ctx context.Context, name string) error {
		return e.EditEcho(ctx, name, func(s *echov1.EchoSpec) { s.Message, s.Port = "edited meanwhile", 81 })
	})
	err = errors.Join(err, expectBoundedRequests(ctx, e, o.short, o.echoes),
		e.AwaitEcho(ctx, 20*time.Second, e.Subject, echoName(0), "reports the missing permission", func(echo *echov1.Echo) error {
			return oracle.CheckRejected(echo, resource)
		}))
	role.Rules = all
	if err := errors.Join(err, e.Client.Update(ctx, &role)); err != nil {
		return err
	}
	name := fmt.Sprintf("%d Echoes are ready after %s without some permissions", o.echoes, o.short)
	if err := measureReady(ctx, e, name, time.Now(), recoveryLimit); err != nil {
		return err
	}
	return e.Verify(ctx)
}

// noCRDAtStart starts the operator before the CRD is installed, with the environment that OLM sets.
func (o outage) noCRDAtStart(ctx context.Context, e *harness.Environment) error {
	if err := removeCRD(ctx, e); err != nil {
		return err
	}
	if err := os.Setenv("OPERATOR_CONDITION_NAME", "echo-operator"); err != nil {
		return err
	}
	err := e.Restart()
	if err := errors.Join(err, os.Unsetenv("OPERATOR_CONDITION_NAME")); err != nil {
		return err
	}
	return o.reinstallCRD(ctx, e, "Echo is ready; the operator was started %s before the CRD was installed")
}

// noCRD removes the CRD of a running operator, and thereby all Echoes.
func (o outage) noCRD(ctx context.Context, e *harness.Environment) error {
	if err := e.CreateEcho(ctx, one, everyChild()); err != nil {
		return err
	}
	if err := e.Settle(ctx); err != nil {
		return err
	}
	if err := removeCRD(ctx, e); err != nil {
		return err
	}
	return o.reinstallCRD(ctx, e, "new Echo is ready after %s without CRD")
}

// reinstallCRD installs the CRD after a while, and creates an Echo.
func (o outage) reinstallCRD(ctx context.Context, e *harness.Environment, name string) error {
	bounded := expectBoundedRequests(ctx, e, o.long, 1)
	if _, err := envtest.InstallCRDs(e.Plane.Config, crdOptions(e)); err != nil {
		return err
	}
	installed := time.Now()
	if bounded != nil {
		return bounded
	}
	if err := e.CreateEcho(ctx, one, echov1.EchoSpec{Message: "new", Replicas: 2}); err != nil {
		return err
	}
	if err := measureReady(ctx, e, fmt.Sprintf(name, o.long), installed, recoveryLimit); err != nil {
		return err
	}
	return e.Verify(ctx)
}

func crdOptions(e *harness.Environment) envtest.CRDInstallOptions {
	scheme := runtime.NewScheme()
	utilruntime.Must(apiextensionsv1.AddToScheme(scheme)) // It registers a constant list of types.
	return envtest.CRDInstallOptions{Scheme: scheme, Paths: []string{filepath.Join(e.Root, "config", "crd", "bases")}}
}

// removeCRD deletes the CRD, and waits until the API server does not serve Echoes.
func removeCRD(ctx context.Context, e *harness.Environment) error {
	if err := envtest.UninstallCRDs(e.Plane.Config, crdOptions(e)); err != nil {
		return err
	}
	return e.Await(ctx, harness.ConvergenceTimeout, "CRD is removed", func(ctx context.Context) error {
		err := e.Client.List(ctx, &echov1.EchoList{})
		if meta.IsNoMatchError(err) {
			return nil
		}
		return expectNotFound(err)
	})
}
