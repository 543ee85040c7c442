package scenarios

import (
	"context"
	"errors"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/children"
	"github.com/kkloud-io/echo-operator/test/chaos/harness"
	"github.com/kkloud-io/echo-operator/test/chaos/kinds"
	"github.com/kkloud-io/echo-operator/test/chaos/oracle"
)

const (
	// The operator may run into a rejection so often in the first seconds. Then it retries at a
	// decreasing rate.
	rejectionPeriod = 5 * time.Second
	rejectionsBound = 10
	// neighborLimit is how long a change of another Echo may take meanwhile.
	neighborLimit = 30 * time.Second

	policyMessage = "rejected by the chaos policy"
	quotaName     = "small"
)

// rejection is something that rejects what an operator writes for the Echo "one".
type rejection struct {
	name string
	// install puts it into effect in the subject namespace.
	install func(context.Context, *harness.Environment) (undo, error)
	// ofEdit is true if it rejects an edit of the Echo, and false if it rejects its creation.
	ofEdit bool
	// reason and message have to be in the status, available is the reason of the condition
	// Available. All are empty if the write of the status is rejected.
	reason, message, available string
	// child is a kind of child that the Echo "one" needs, if not every Echo has it.
	child children.Kind
	// converges is true if the Echo becomes ready all the same.
	converges bool
	// core includes it in the fixed core.
	core bool
}

// rejections has the API server reject each kind of write for a while.
func rejections(o harness.Options) (all []harness.Scenario, err error) {
	list := []rejection{
		{name: "quota of pods", install: quota("pods", "2"), core: true,
			reason: echov1.ReasonPodsRejected, message: "exceeded quota: small, requested: pods=1", available: echov1.ReasonServing},
		{name: "LimitRange", install: limitRange,
			reason: echov1.ReasonPodsRejected, message: "minimum memory usage per Container is 128Mi", available: echov1.ReasonNotServing},
		{name: "policy for edits of Deployments", install: policy(deployment), ofEdit: true, core: true,
			reason: echov1.ReasonRejected, message: policyMessage, available: echov1.ReasonServing},
		{name: "policy for the status", install: policyOfStatus, ofEdit: true},
	}
	for _, kind := range children.WatchedKinds() {
		// Two Echoes have all required children, one of them is created before the quota.
		allowed, available := "1", echov1.ReasonNotServing
		if kind.Conditional {
			allowed, available = "0", echov1.ReasonServing
		}
		list = append(list,
			rejection{name: "quota of " + plural(kind), install: quota("count/"+corev1.ResourceName(kind.Resource.GroupResource().String()), allowed),
				reason: echov1.ReasonRejected, available: available, child: kind,
				message: fmt.Sprintf("%s: %s %q is forbidden: exceeded quota: %s",
					kind.Name, kind.Resource.GroupResource(), kinds.ChildName(kind, one), quotaName)},
			rejection{name: "policy for " + plural(kind), install: policy(kind),
				reason: echov1.ReasonRejected, available: available, child: kind, message: policyMessage})
	}
	for _, r := range list {
		if !o.Short || r.core {
			all = append(all, harness.Scenario{Name: r.name, Run: r.run})
		}
	}
	return all, nil
}

func (r rejection) run(ctx context.Context, e *harness.Environment) error {
	if err := e.CreateEcho(ctx, two, echov1.EchoSpec{Message: "m"}); err != nil {
		return err
	}
	if r.ofEdit {
		if err := createReady(ctx, e); err != nil {
			return err
		}
	}
	if err := e.AwaitReady(ctx, two); err != nil {
		return err
	}
	remove, err := r.install(ctx, e)
	if err != nil {
		return err
	}
	defer func() { _ = remove(context.WithoutCancel(ctx)) }() // If the scenario fails before it removes the cause.
	if r.ofEdit {
		err = e.EditEcho(ctx, one, func(s *echov1.EchoSpec) { s.Message = "n" })
	} else {
		err = e.CreateEcho(ctx, one, withChild(r.child))
	}
	if err != nil {
		return err
	}
	if r.converges {
		err = e.AwaitReady(ctx, one)
	} else if err = r.awaitReport(ctx, e); err == nil {
		err = expectBoundedRetries(ctx, e)
	}
	if err != nil {
		return err
	}
	e.AllowWrites(oracle.Failures(e.Proxy.Writes())) // expectBoundedRetries has bounded them.
	if err := remove(ctx); err != nil {
		return err
	}
	return e.Verify(ctx)
}

// expectBoundedRetries expects that another Echo converges meanwhile, and bounds the rejections.
func expectBoundedRetries(ctx context.Context, e *harness.Environment) error {
	before, logged, start := oracle.Failures(e.Proxy.Writes()), loggedErrors(e.Operator), time.Now()
	if err := e.EditEcho(ctx, two, func(s *echov1.EchoSpec) { s.Port = 81 }); err != nil {
		return err
	}
	if err := e.AwaitReady(ctx, two); err != nil {
		return err
	}
	if err := oracle.CheckDuration("edit of another Echo", time.Since(start), neighborLimit); err != nil {
		return err
	}
	harness.Pause(ctx, rejectionPeriod-time.Since(start))
	return errors.Join(oracle.CheckCount("failed writes", oracle.Failures(e.Proxy.Writes())-before, 0, rejectionsBound, rejectionPeriod),
		oracle.CheckCount("errors in the log", loggedErrors(e.Operator)-logged, 0, rejectionsBound, rejectionPeriod))
}

// awaitReport waits until the status reports the rejection.
func (r rejection) awaitReport(ctx context.Context, e *harness.Environment) error {
	if r.reason != "" {
		if err := e.AwaitDegraded(ctx, harness.ConvergenceTimeout, e.Subject, one, r.reason, r.message); err != nil {
			return err
		}
		return e.AwaitCondition(ctx, one, echov1.ConditionAvailable, r.available)
	}
	return e.Await(ctx, harness.ConvergenceTimeout, "status is rejected, but the Deployment is rolled out", func(ctx context.Context) error {
		if oracle.Failures(e.Proxy.Writes()) == 0 {
			return errAccepted
		}
		echo, err := e.GetEcho(ctx, e.Subject, one)
		if err != nil {
			return err
		}
		var d appsv1.Deployment
		if err := e.Client.Get(ctx, client.ObjectKey{Namespace: e.Subject, Name: children.Name(echo)}, &d); err != nil {
			return err
		}
		if !oracle.RolledOut(&d, echo) {
			return oracle.Findingf(&d, "want a completed rollout, got %+v", d.Status)
		}
		return nil
	})
}

var errNotCounted = errors.New("the quota has no usage yet")

// quota limits the number of a resource in the namespace.
func quota(name corev1.ResourceName, hard string) func(context.Context, *harness.Environment) (undo, error) {
	return func(ctx context.Context, e *harness.Environment) (undo, error) {
		quota := &corev1.ResourceQuota{
			ObjectMeta: metav1.ObjectMeta{Namespace: e.Subject, Name: quotaName},
			Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{name: resource.MustParse(hard)}},
		}
		remove, err := install(ctx, e, quota)
		if err != nil {
			return nil, err
		}
		return remove, e.Await(ctx, harness.ConvergenceTimeout, "quota is in effect", func(ctx context.Context) error {
			if err := e.Client.Get(ctx, client.ObjectKeyFromObject(quota), quota); err != nil {
				return err
			}
			if len(quota.Status.Used) == 0 {
				return errNotCounted
			}
			return nil
		})
	}
}

// limitRange rejects containers that are as small as those of an Echo.
func limitRange(ctx context.Context, e *harness.Environment) (undo, error) {
	return install(ctx, e, &corev1.LimitRange{
		ObjectMeta: metav1.ObjectMeta{Namespace: e.Subject, Name: "large"},
		Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{
			Type: corev1.LimitTypeContainer, Min: memoryLimit("128Mi"),
		}}},
	})
}

// policy rejects the child of the Echo "one".
func policy(kind children.Kind) func(context.Context, *harness.Environment) (undo, error) {
	return func(ctx context.Context, e *harness.Environment) (undo, error) {
		allowed := fmt.Sprintf("object.metadata.name != '%s'", kinds.ChildName(kind, one))
		return installValidatingPolicy(ctx, e, kind.Resource, allowed, policyMessage, probeCreation(e, kind))
	}
}

// policyOfStatus rejects the status of the Echo "one".
func policyOfStatus(ctx context.Context, e *harness.Environment) (undo, error) {
	status := echov1.GroupVersion.WithResource(kinds.EchoStatus)
	return installValidatingPolicy(ctx, e, status, "object.metadata.name != 'one'", policyMessage, probeStatus(e, one))
}
