package chaos

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/test/internal/oracle"
)

// The sizes of outages.
const (
	outage  = 45 * time.Second // Longer than the longest retry interval.
	ofPlane = 100              // Echoes whose API server is unavailable.
	some    = 20
)

// forEach does something with each Echo of a number, several at a time.
func (e *environment) forEach(from, to int, do func(name string) error) {
	e.Helper()
	var group errgroup.Group
	group.SetLimit(16)
	for i := from; i < to; i++ {
		group.Go(func() error { return do(fmt.Sprint("echo-", i)) })
	}
	e.must(group.Wait())
}

func (e *environment) createReady(count int) {
	e.Helper()
	e.forEach(0, count, func(name string) error {
		return e.create(e.namespace, name, echov1.EchoSpec{Message: "first", Replicas: 1})
	})
	e.await(podsLimit, "every Echo is ready", e.allReady())
}

func (e *environment) editAll(from, to int, message string) {
	e.Helper()
	e.forEach(from, to, func(name string) error {
		return e.edit(name, func(s *echov1.EchoSpec) { s.Message = message })
	})
}

// While the API server is unavailable, the operator keeps running. Afterwards it converges soon, also for Echoes that were edited just
// before and just after.
func TestAPIServerUnavailable(t *testing.T) {
	long(t)
	e := newEnvironment(t)
	o := e.start()
	const third = ofPlane / 3
	e.createReady(ofPlane)
	e.editAll(0, third, "edited before")
	e.must(plane.StopAPIServer(e.Context()))
	time.Sleep(outage)
	e.must(o.Failed(), plane.StartAPIServer(e.Context()))
	started := time.Now()
	e.editAll(third, 2*third, "edited after")
	time.Sleep(time.Second)
	e.editAll(2*third, ofPlane, "edited later")
	e.within(started, convergenceLimit, "the statuses are about the newest specs", e.each(e.namespace, oracle.CheckObserved))
	e.within(started, 2*convergenceLimit, "every Echo is ready", e.allReady())
	e.verify(o)
}

// An operator that starts before its API server waits for it.
func TestStartBeforeAPIServer(t *testing.T) {
	long(t)
	e := newEnvironment(t)
	o := e.start()
	e.createReady(1)
	o.Kill()
	e.editAll(0, 1, "edited before")
	e.must(plane.StopAPIServer(e.Context()))
	o = e.launch()
	time.Sleep(outage)
	e.must(o.Failed(), plane.StartAPIServer(e.Context()))
	e.within(time.Now(), convergenceLimit, "the Echo is ready", e.allReady())
	e.verify(o)
}

// A leader whose API server is unavailable loses its lease and exits, and the kubelet restarts it.
func TestAPIServerUnavailableToLeader(t *testing.T) {
	long(t)
	e := newEnvironment(t)
	leader, standby := elect(e)
	e.must(e.create(e.namespace, "one", everyChild()))
	e.await(podsLimit, "the Echo is ready", e.allReady())
	e.operators = nil // Both may exit.
	e.must(plane.StopAPIServer(e.Context()))
	time.Sleep(outage)
	e.must(plane.StartAPIServer(e.Context()))
	started := time.Now()
	if !leader.Exited() {
		e.Error("the leader runs, want it to exit, because it has lost its lease")
	}
	standby.Kill()
	again := e.launch(leaderElect)
	e.must(e.edit("one", func(s *echov1.EchoSpec) { s.Message = "n" }))
	e.within(started, convergenceLimit, "the Echo is ready", e.allReady())
	e.verify(again)
}

// requestsLimit is how many requests an operator may make in a duration whose requests fail: 4 for each reconciliation of each Echo, of
// which the intervals double from 100 ms, and those of watches that reconnect.
func requestsLimit(d time.Duration, echoes int) int64 {
	reconciliations := 2
	for due := 100 * time.Millisecond; due <= d; due *= 2 {
		reconciliations++
	}
	return int64(echoes*reconciliations*4 + int(d.Seconds())*5)
}

// expectFewRequests waits, and bounds the operator's requests and logged errors meanwhile.
func expectFewRequests(e *environment, o *operator, echoes int) {
	e.Helper()
	logged := func() int64 {
		log, _ := os.ReadFile(o.Log) // A missing log has no errors.
		return int64(bytes.Count(log, []byte(`"level":"error"`)))
	}
	requests, errs := o.requests.Load(), logged()
	time.Sleep(outage)
	requests, errs = o.requests.Load()-requests, logged()-errs
	if limit := requestsLimit(outage, echoes); requests > limit || errs > limit {
		e.Errorf("%d requests and %d errors in the log in %s, want at most %d", requests, errs, outage, limit)
	}
}

// Without the permissions for one kind, the operator says so, and reconciles when it has them again.
func TestNoPermission(t *testing.T) {
	long(t)
	e := newEnvironment(t)
	o := e.start()
	e.createReady(some)
	var role rbacv1.ClusterRole
	e.must(e.client.Get(e.Context(), client.ObjectKey{Name: operatorUser}, &role))
	all := role.Rules
	role.Rules = slices.DeleteFunc(slices.Clone(all), func(r rbacv1.PolicyRule) bool { return slices.Contains(r.Resources, "services") })
	e.must(e.client.Update(e.Context(), &role))
	time.Sleep(time.Second) // The API server's authorizer watches the role.
	e.forEach(0, some, func(name string) error {
		return e.edit(name, func(s *echov1.EchoSpec) { s.Message, s.Port = "edited meanwhile", 81 })
	})
	expectFewRequests(e, o, some)
	e.await(20*time.Second, "every Echo reports the missing permission", e.each(e.namespace, func(echo *echov1.Echo) error {
		return oracle.CheckDegraded(echo, echov1.ReasonRejected, "services")
	}))
	role.Rules = all
	e.must(e.client.Update(e.Context(), &role))
	e.within(time.Now(), convergenceLimit, "every Echo is ready", e.allReady())
	e.verify(o)
}

// The CRD is removed while the operator runs, or is not installed yet when OLM starts it.
func TestNoCRD(t *testing.T) {
	long(t)
	for _, isStart := range []bool{false, true} {
		t.Run(fmt.Sprintf("at the start %t", isStart), func(t *testing.T) {
			e := newEnvironment(t)
			scheme := runtime.NewScheme()
			e.must(apiextensionsv1.AddToScheme(scheme))
			options := envtest.CRDInstallOptions{Scheme: scheme, Paths: []string{filepath.Join(root, "config", "crd", "bases")}}
			o := e.start()
			e.createReady(1)
			if isStart {
				o.Kill()
			}
			e.must(envtest.UninstallCRDs(plane.Config, options))
			e.await(convergenceLimit, "the CRD is removed", func() error {
				err := e.client.List(e.Context(), &echov1.EchoList{})
				if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
					return nil
				}
				return errors.Join(err, errors.New("it is served"))
			})
			if isStart {
				t.Setenv("OPERATOR_CONDITION_NAME", "echo-operator")
				o = e.launch()
			}
			expectFewRequests(e, o, 1)
			_, err := envtest.InstallCRDs(plane.Config, options)
			e.must(err)
			e.must(e.create(e.namespace, "new", echov1.EchoSpec{Message: "new", Replicas: 2}))
			e.within(time.Now(), convergenceLimit, "a new Echo is ready", e.allReady())
			e.verify(o)
		})
	}
}
