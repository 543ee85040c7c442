package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
)

const (
	// In the first seconds a refusal may be met so often; the pace slows down from there.
	refusalWatch  = 5 * time.Second
	refusalsBound = 10
	// neighbourBound is how long another Echo may take meanwhile.
	neighbourBound = 10 * time.Second

	two = "two"

	no     = "not here, by order of the chaos"
	notOne = "object.metadata.name != 'echo-one'"
)

// rejection is something that refuses what an operator writes for the Echo "one".
type rejection struct {
	name string
	// cause puts it in place, under fire alone.
	cause func(context.Context, *world) (undo, error)
	// ofChange is true where a change of the Echo is refused, and false where its creation is.
	ofChange bool
	// reason and words are what the status has to tell, available is the reason of Available
	// meanwhile; all are empty where the status itself is refused.
	reason, words, available string
}

// rejections have everything refused that an operator writes, for a while.
func rejections(_ context.Context, o options) (all []scenario, err error) {
	for i, r := range []rejection{
		{"a quota of pods", quota("pods", "2"), false, echov1.ReasonPodsRejected, "exceeded quota: small, requested: pods=1", echov1.ReasonServing},
		{"a quota of Deployments", quota("count/deployments.apps", "1"), false, echov1.ReasonRejected,
			`Deployment: deployments.apps "echo-one" is forbidden: exceeded quota: small`, echov1.ReasonNotServing},
		{"a quota of Services", quota("services", "1"), false, echov1.ReasonRejected,
			`Service: services "echo-one" is forbidden: exceeded quota: small`, echov1.ReasonNotServing},
		{"a quota of PodDisruptionBudgets", quota("count/poddisruptionbudgets.policy", "0"), false, echov1.ReasonRejected,
			`PodDisruptionBudget: poddisruptionbudgets.policy "echo-one" is forbidden: exceeded quota: small`, echov1.ReasonServing},
		{"a LimitRange", limitRange, false, echov1.ReasonPodsRejected, "minimum memory usage per Container is 128Mi", echov1.ReasonNotServing},
		{"Pod Security", privilegedSidecar, true, echov1.ReasonPodsRejected, `violates PodSecurity "restricted:latest"`, echov1.ReasonServing},
		{"a policy on Services", policy("", "services", service), false, echov1.ReasonRejected, no, echov1.ReasonNotServing},
		{"a policy on Deployments", policy("apps", "deployments", deployment), false, echov1.ReasonRejected, no, echov1.ReasonNotServing},
		{"a policy on a change", policy("apps", "deployments", deployment), true, echov1.ReasonRejected, no, echov1.ReasonServing},
		{"a policy on PodDisruptionBudgets", policy("policy", "poddisruptionbudgets", budget), false, echov1.ReasonRejected, no, echov1.ReasonServing},
		{"a policy on the status", policyOnStatus, true, "", "", ""},
	} {
		if o.short && i%2 == 1 {
			continue
		}
		all = append(all, scenario{r.name, func(ctx context.Context, w *world) error { return r.play(ctx, w) }})
	}
	return all, nil
}

func (r rejection) play(ctx context.Context, w *world) error {
	if err := w.createEcho(ctx, two, echov1.EchoSpec{Message: "m"}); err != nil {
		return err
	}
	if r.ofChange {
		if err := w.begin(ctx); err != nil {
			return err
		}
	}
	if err := w.isReady(ctx, two); err != nil {
		return err
	}
	end, err := r.cause(ctx, w)
	if err != nil {
		return err
	}
	defer func() { _ = end(context.WithoutCancel(ctx)) }() // Mostly it is gone by then.
	if r.ofChange {
		err = w.editEcho(ctx, one, func(s *echov1.EchoSpec) { s.Message = "n" })
	} else {
		err = w.createEcho(ctx, one, echov1.EchoSpec{Message: "m", Replicas: 2})
	}
	if err != nil {
		return err
	}
	if err := r.isTold(ctx, w); err != nil {
		return err
	}
	refused := w.refusals()
	start := time.Now()
	if err := w.editEcho(ctx, two, func(s *echov1.EchoSpec) { s.Port = 81 }); err != nil {
		return err
	}
	if err := w.isReady(ctx, two); err != nil {
		return err
	}
	if took := time.Since(start); took > neighbourBound {
		return fmt.Errorf("another Echo took %s meanwhile, allowed are %s", took, neighbourBound)
	}
	pause(ctx, refusalWatch-time.Since(start))
	if more := w.refusals() - refused; more > refusalsBound {
		return fmt.Errorf("%d refusals in %s, allowed are %d: %v", more, refusalWatch, refusalsBound, w.proxy.Writes())
	}
	start = time.Now()
	if err := end(ctx); err != nil {
		return err
	}
	if err := w.settle(ctx); err != nil {
		return err
	}
	w.figures = append(w.figures, figure{What: "Recovery from " + r.name, Seconds: time.Since(start).Seconds(), Allowed: convergence.Seconds()})
	return w.verify(ctx)
}

func (r rejection) isTold(ctx context.Context, w *world) error {
	if r.reason != "" {
		if err := w.tells(ctx, convergence, w.fire, r.reason, r.words); err != nil {
			return err
		}
		return w.has(ctx, one, echov1.ConditionAvailable, r.available)
	}
	return w.await(ctx, convergence, "the status is refused, the Deployment is not", func(ctx context.Context) error {
		if w.refusals() == 0 {
			return errors.New("nothing was refused")
		}
		var echo echov1.Echo
		var d appsv1.Deployment
		if err := errors.Join(w.plane.Client.Get(ctx, client.ObjectKey{Namespace: w.fire, Name: one}, &echo),
			w.plane.Client.Get(ctx, client.ObjectKey{Namespace: w.fire, Name: "echo-" + one}, &d)); err != nil {
			return err
		}
		if !isRolledOut(&d, &echo) {
			return fmt.Errorf("the Deployment is not rolled out: %+v", d.Status)
		}
		return nil
	})
}

// refusals is how many writes the API server has refused so far.
func (w *world) refusals() (count int) {
	for _, write := range w.proxy.Writes() {
		if write.Code == http.StatusForbidden || write.Code == http.StatusUnprocessableEntity {
			count++
		}
	}
	return count
}

// quota lets only so many of the resource into the namespace.
func quota(name corev1.ResourceName, hard string) func(context.Context, *world) (undo, error) {
	return func(ctx context.Context, w *world) (undo, error) {
		quota := &corev1.ResourceQuota{
			ObjectMeta: metav1.ObjectMeta{Namespace: w.fire, Name: "small"},
			Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{name: resource.MustParse(hard)}},
		}
		remove, err := w.install(ctx, quota)
		if err != nil {
			return nil, err
		}
		return remove, w.await(ctx, convergence, "the quota is in force", func(ctx context.Context) error {
			if err := w.plane.Client.Get(ctx, client.ObjectKeyFromObject(quota), quota); err != nil {
				return err
			}
			if len(quota.Status.Used) == 0 {
				return errors.New("nothing is counted yet")
			}
			return nil
		})
	}
}

// limitRange refuses containers as small as an Echo's.
func limitRange(ctx context.Context, w *world) (undo, error) {
	return w.install(ctx, &corev1.LimitRange{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.fire, Name: "large"},
		Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{
			Type: corev1.LimitTypeContainer, Min: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("128Mi")},
		}}},
	})
}

// privilegedSidecar is what Pod Security refuses: all that is the operator's own passes.
func privilegedSidecar(ctx context.Context, w *world) (undo, error) {
	edit := func(change func(*corev1.PodSpec)) undo {
		return func(ctx context.Context) error {
			return w.await(ctx, convergence, "the Deployment is changed", func(ctx context.Context) error {
				var d appsv1.Deployment
				if err := w.plane.Client.Get(ctx, client.ObjectKey{Namespace: w.fire, Name: "echo-" + one}, &d); err != nil {
					return err
				}
				return w.change(ctx, &d, func() { change(&d.Spec.Template.Spec) })
			})
		}
	}
	inject := edit(func(pod *corev1.PodSpec) {
		pod.Containers = append(pod.Containers, corev1.Container{Name: "sidecar", Image: ownImage})
	})
	return edit(func(pod *corev1.PodSpec) {
		pod.Containers = slices.DeleteFunc(pod.Containers, func(c corev1.Container) bool { return c.Name == "sidecar" })
	}), inject(ctx)
}

func budget() client.Object { return &policyv1.PodDisruptionBudget{} }

// policy refuses the child "echo-one".
func policy(group, resource string, empty func() client.Object) func(context.Context, *world) (undo, error) {
	return func(ctx context.Context, w *world) (undo, error) {
		return w.forbid(ctx, group, resource, notOne, no, func(ctx context.Context) error {
			return w.plane.Client.Create(ctx, foreign(empty(), w.fire), client.DryRunAll)
		})
	}
}

// policyOnStatus refuses the status of the Echo "one".
func policyOnStatus(ctx context.Context, w *world) (undo, error) {
	return w.forbid(ctx, echov1.GroupVersion.Group, "echoes/status", "object.metadata.name != 'one'", no, func(ctx context.Context) error {
		echo := &echov1.Echo{ObjectMeta: metav1.ObjectMeta{Namespace: w.fire, Name: one}}
		return w.plane.Client.Status().Patch(ctx, echo, client.RawPatch(types.MergePatchType, []byte(`{"status":{"ready":"?"}}`)), client.DryRunAll)
	})
}

// tells waits until the status of the newest spec of the Echo "one" says what is wrong.
func (w *world) tells(ctx context.Context, timeout time.Duration, namespace, reason, words string) error {
	return w.await(ctx, timeout, "the status tells of "+reason, func(ctx context.Context) error {
		var echo echov1.Echo
		if err := w.plane.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: one}, &echo); err != nil {
			return err
		}
		degraded := meta.FindStatusCondition(echo.Status.Conditions, echov1.ConditionDegraded)
		ready := meta.FindStatusCondition(echo.Status.Conditions, echov1.ConditionReady)
		if degraded == nil || degraded.ObservedGeneration != echo.Generation || degraded.Reason != reason ||
			!strings.Contains(degraded.Message, words) || ready.Status != metav1.ConditionFalse || ready.Message != degraded.Message {
			return fmt.Errorf("%q is not in the status %+v", words, echo.Status)
		}
		return nil
	})
}
