package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/testing/controlplane"
)

// A pass makes at most so many requests in vain, a second at most so many for watches.
const (
	requestsOfPass   = 4
	requestsOfSecond = 5
)

// quietFor waits and bounds the operator's requests, and what it logs, meanwhile. For each Echo
// the time between two passes doubles, from a tenth of a second.
func (w *world) quietFor(ctx context.Context, d time.Duration, echoes int) error {
	before, lines := w.proxy.Requests(), errorsIn(w.operator)
	pause(ctx, d)
	passes := 2
	for due := 100 * time.Millisecond; due <= d; due *= 2 {
		passes++
	}
	bound := echoes*passes*requestsOfPass + int(d.Seconds())*requestsOfSecond
	if n := w.proxy.Requests() - before; n > bound {
		return fmt.Errorf("%d requests in %s, allowed are %d", n, d, bound)
	}
	if n := errorsIn(w.operator) - lines; n > bound {
		return fmt.Errorf("%d errors in the log in %s, allowed are %d", n, d, bound)
	}
	return nil
}

// errorsIn counts what the operator's log tells of as such.
func errorsIn(operator *controlplane.Operator) int {
	log, _ := os.ReadFile(operator.Log) //nolint:gosec // Its own log; where there is none, there is no error in it.
	return bytes.Count(log, []byte(`"level":"error"`))
}

// noRights takes all rights away while Echoes are edited.
func (o outage) noRights(ctx context.Context, w *world) error {
	return o.withRights(ctx, w, nil, func(ctx context.Context) error {
		var echo echov1.Echo
		if err := w.plane.Client.Get(ctx, client.ObjectKey{Namespace: w.fire, Name: "echo-0"}, &echo); err != nil {
			return err
		}
		if echo.Status.ObservedGeneration == echo.Generation {
			return errors.New("the status speaks of a spec that nobody could have applied")
		}
		return nil
	})
}

// noRightsToServices takes away the rights to a single kind; the others go on.
func (o outage) noRightsToServices(ctx context.Context, w *world) error {
	others := func(rules []rbacv1.PolicyRule) []rbacv1.PolicyRule {
		return slices.DeleteFunc(slices.Clone(rules), func(r rbacv1.PolicyRule) bool { return slices.Contains(r.Resources, "services") })
	}
	return o.withRights(ctx, w, others, func(ctx context.Context) error {
		return w.await(ctx, 20*time.Second, "the status tells what is refused", func(ctx context.Context) error {
			var echo echov1.Echo
			if err := w.plane.Client.Get(ctx, client.ObjectKey{Namespace: w.fire, Name: "echo-0"}, &echo); err != nil {
				return err
			}
			degraded := meta.FindStatusCondition(echo.Status.Conditions, echov1.ConditionDegraded)
			if degraded == nil || degraded.Reason != echov1.ReasonRejected || !strings.Contains(degraded.Message, "services") {
				return fmt.Errorf("the condition Degraded is %v", degraded)
			}
			return nil
		})
	})
}

// withRights changes the operators' rights for a while; nil takes them all.
func (o outage) withRights(ctx context.Context, w *world, change func([]rbacv1.PolicyRule) []rbacv1.PolicyRule, check func(context.Context) error) error {
	o.echoes = min(o.echoes, 20)
	if err := o.createEchoes(ctx, w); err != nil {
		return err
	}
	var role rbacv1.ClusterRole
	if err := w.plane.Client.Get(ctx, client.ObjectKey{Name: operatorUser}, &role); err != nil {
		return err
	}
	full := role.Rules
	role.Rules = nil
	if change != nil {
		role.Rules = change(full)
	}
	if err := w.plane.Client.Update(ctx, &role); err != nil {
		return err
	}
	err := o.lackRights(ctx, w, check)
	role.Rules = full
	if err := errors.Join(err, w.plane.Client.Update(ctx, &role)); err != nil {
		return err
	}
	what := fmt.Sprintf("converged after %s without rights", o.short)
	if change != nil {
		what = fmt.Sprintf("converged after %s without some rights", o.short)
	}
	if err := w.recovers(ctx, what, time.Now(), recovery); err != nil {
		return err
	}
	return w.verify(ctx)
}

// lackRights is what happens meanwhile: Echoes are edited, and the operator stays calm.
func (o outage) lackRights(ctx context.Context, w *world, check func(context.Context) error) error {
	pause(ctx, time.Second) // The API server's authorizer watches, too.
	if err := o.each(ctx, 0, o.echoes, func(ctx context.Context, name string) error {
		return w.editEcho(ctx, name, func(s *echov1.EchoSpec) { s.Message, s.Port = "edited meanwhile", 81 })
	}); err != nil {
		return err
	}
	return errors.Join(w.quietFor(ctx, o.short, o.echoes), check(ctx))
}

// noCRDAtStart starts the operator before the CRD is there, also as OLM runs it.
func (o outage) noCRDAtStart(ctx context.Context, w *world) error {
	if err := w.removeCRD(ctx); err != nil {
		return err
	}
	if err := os.Setenv("OPERATOR_CONDITION_NAME", "echo-operator"); err != nil {
		return err
	}
	err := w.restart()
	if err := errors.Join(err, os.Unsetenv("OPERATOR_CONDITION_NAME")); err != nil {
		return err
	}
	return o.withoutCRD(ctx, w, "an operator started %s before its CRD has acted")
}

// noCRD takes the CRD away from a running operator, and with it all Echoes.
func (o outage) noCRD(ctx context.Context, w *world) error {
	if err := w.createEcho(ctx, one, echov1.EchoSpec{Message: "m", Replicas: 2}); err != nil {
		return err
	}
	if err := w.settle(ctx); err != nil {
		return err
	}
	if err := w.removeCRD(ctx); err != nil {
		return err
	}
	return o.withoutCRD(ctx, w, "a new Echo is ready after %s without CRD")
}

// withoutCRD brings the CRD back, and an Echo.
func (o outage) withoutCRD(ctx context.Context, w *world, what string) error {
	quiet := w.quietFor(ctx, o.long, 1)
	if _, err := envtest.InstallCRDs(w.plane.Config, envtest.CRDInstallOptions{
		Scheme: crdScheme(), Paths: []string{filepath.Join(w.root, "config", "crd", "bases")}}); err != nil {
		return err
	}
	back := time.Now()
	if quiet != nil {
		return quiet
	}
	if err := w.createEcho(ctx, one, echov1.EchoSpec{Message: "new", Replicas: 2}); err != nil {
		return err
	}
	if err := w.recovers(ctx, fmt.Sprintf(what, o.long), back, recovery); err != nil {
		return err
	}
	return w.verify(ctx)
}

func crdScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	utilruntime.Must(apiextensionsv1.AddToScheme(scheme)) // A constant list of types.
	return scheme
}

// removeCRD deletes the CRD, and waits until the API server knows no Echoes.
func (w *world) removeCRD(ctx context.Context) error {
	if err := envtest.UninstallCRDs(w.plane.Config, envtest.CRDInstallOptions{
		Scheme: crdScheme(), Paths: []string{filepath.Join(w.root, "config", "crd", "bases")}}); err != nil {
		return err
	}
	return w.await(ctx, convergence, "there are no Echoes any more", func(ctx context.Context) error {
		err := w.plane.Client.List(ctx, &echov1.EchoList{})
		switch {
		case apierrors.IsNotFound(err), meta.IsNoMatchError(err):
			return nil
		case err != nil:
			return err
		}
		return errors.New("there are")
	})
}

// endingNamespace ends a namespace with Echoes while the operator watches all namespaces;
// something in it takes its time.
func (o outage) endingNamespace(ctx context.Context, w *world) error {
	w.operator.Kill()
	var err error
	if w.operator, err = startOperator(w.program, w.directory, w.proxy, nil); err != nil {
		return err
	}
	const ending = "ending"
	held := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ending, Name: "held", Finalizers: []string{"kkloud.io/test"}}}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ending}}
	for _, object := range []client.Object{namespace, held} {
		if err := w.plane.Client.Create(ctx, object); err != nil {
			return err
		}
	}
	const echoes = 20
	for i := range echoes {
		echo := &echov1.Echo{ObjectMeta: metav1.ObjectMeta{Namespace: ending, Name: fmt.Sprint("e", i)}, Spec: echov1.EchoSpec{Message: "m"}}
		if i == 0 {
			echo.Finalizers = held.Finalizers
		}
		if err := w.plane.Client.Create(ctx, echo); err != nil {
			return err
		}
	}
	if err := w.await(ctx, convergence, "the Echoes are ready", w.ready(ending)); err != nil {
		return err
	}
	if err := w.plane.Client.Delete(ctx, namespace); err != nil {
		return err
	}
	start := time.Now()
	if err := w.createEcho(ctx, one, echov1.EchoSpec{Message: "m"}); err != nil {
		return err
	}
	if err := w.recovers(ctx, "an Echo is ready while another namespace ends", start, 10*time.Second); err != nil {
		return err
	}
	if err := w.quietFor(ctx, o.short, echoes); err != nil {
		return err
	}
	for _, object := range []client.Object{held, &echov1.Echo{ObjectMeta: metav1.ObjectMeta{Namespace: ending, Name: "e0"}}} {
		if err := w.plane.Client.Patch(ctx, object, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`))); err != nil {
			return err
		}
	}
	return w.await(ctx, convergence, "the namespace is gone", func(ctx context.Context) error {
		err := w.plane.Client.Get(ctx, client.ObjectKeyFromObject(namespace), namespace)
		if apierrors.IsNotFound(err) {
			return nil
		}
		return errors.Join(err, errors.New("it is there"))
	})
}
