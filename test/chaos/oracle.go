package main

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/status"
	"github.com/kkloud-io/echo-operator/test/chaos/proxy"
)

// The bound of writes: an operator under fire writes again what failed, and what it did not
// know to be written; so there are, for each operator, at most so many for each write in
// peace, and for each fault or restart.
const (
	writesForEachInPeace = 2
	writesForEachFault   = 2
	writesMore           = 10
)

// patience is how long the world without faults may take, which nothing is promised of.
const patience = 5 * time.Minute

// verify ends the faults and applies the oracle: the end is that of the world in peace,
// nothing was made anew or put back without need, no status lied, the writes are bounded,
// and then there is silence, also after a restart.
func (w *world) verify(ctx context.Context) error {
	for _, p := range w.proxies() {
		p.SetPlan(nil)
		p.Thaw()
	}
	if err := w.settle(ctx); err != nil {
		return err
	}
	if err := w.staysSilent(ctx); err != nil {
		return err
	}
	findings := slices.Concat(w.history.checkUIDs(w.expectedUIDs), w.history.checkOrder(), w.history.checkReady())
	if writes, bound := w.writes(), w.writeBound(); len(writes) > bound {
		findings = append(findings, fmt.Errorf("%d writes, allowed are %d: %v", len(writes), bound, counted(writes)))
	}
	if err := w.restart(); err != nil {
		return err
	}
	if err := w.awaitStart(ctx); err != nil {
		return err
	}
	findings = append(findings, w.staysSilent(ctx), w.compare(ctx))
	return errors.Join(findings...)
}

// settle waits until all is as in a run without faults. The operator has its time for the
// children, and for the statuses once the pods are there; how soon that is, is
// kube-controller-manager's: it may take a minute for a Deployment that was deleted and came back.
func (w *world) settle(ctx context.Context) error {
	// The clock starts when the world in peace is well: on a busy machine that may take a while.
	if err := w.await(ctx, patience, "there is peace", w.inPeace); err != nil {
		return err
	}
	if err := w.await(ctx, w.convergence, "the children are those of a run without faults", w.compareBut(takeStatus)); err != nil {
		return err
	}
	if err := w.await(ctx, patience, "the pods are those of a run without faults", w.compareBut(takeStatusOfEcho)); err != nil {
		return err
	}
	return w.await(ctx, w.convergence, "the end is that of a run without faults", w.compare)
}

// takeNothing has all compared.
func takeNothing(client.Object) {}

// takeStatus leaves of a status only whether it speaks of the newest spec.
func takeStatus(object client.Object) {
	switch o := object.(type) {
	case *echov1.Echo:
		o.Status = echov1.EchoStatus{ObservedGeneration: o.Status.ObservedGeneration}
	case *appsv1.Deployment:
		o.Status = appsv1.DeploymentStatus{}
	}
}

func takeStatusOfEcho(object client.Object) {
	if echo, is := object.(*echov1.Echo); is {
		takeStatus(echo)
	}
}

// counted tells how often each kind of write was made, and what was answered.
func counted(writes []proxy.Write) map[string]int {
	counts := map[string]int{}
	for _, write := range writes {
		counts[fmt.Sprintf("%s %s %d", write.Verb, write.Resource, write.Code)]++
	}
	return counts
}

func (w *world) writeBound() int {
	faults := w.restarts
	for _, p := range w.proxies() {
		for _, count := range p.Faults() {
			faults += count
		}
	}
	inPeace := w.writesIn(w.peace, w.peaceful) - w.peaceBaseline
	return len(w.proxies())*writesForEachInPeace*inPeace + writesForEachFault*faults + writesMore
}

// staysSilent checks that the operator writes nothing for a while. What was under way when
// everything was well may still end.
func (w *world) staysSilent(ctx context.Context) error {
	deadline := time.Now().Add(10 * time.Second)
	for {
		before := w.writes()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(silence):
		}
		after := w.writes()
		switch {
		case len(after) == len(before):
			return w.operator.Failed()
		case time.Now().After(deadline):
			return fmt.Errorf("no silence: %v", after[len(before):])
		}
	}
}

// inPeace checks that nothing goes on in the world without faults.
func (w *world) inPeace(ctx context.Context) error {
	var echoes echov1.EchoList
	if err := w.plane.Client.List(ctx, &echoes, client.InNamespace(w.peaceful)); err != nil {
		return err
	}
	for _, echo := range echoes.Items {
		if echo.Status.ObservedGeneration != echo.Generation || status.RolloutInFlight(echo.Status) {
			return fmt.Errorf("there is no peace yet: Echo %s is being rolled out", echo.Name)
		}
	}
	return nil
}

// compare compares the two namespaces, when there is peace.
func (w *world) compare(ctx context.Context) error {
	return w.compareBut(takeNothing)(ctx)
}

// compareBut returns a check that the two namespaces are the same, but for what is taken away.
func (w *world) compareBut(take func(client.Object)) func(context.Context) error {
	return func(ctx context.Context) error {
		if err := w.inPeace(ctx); err != nil {
			return err
		}
		peace, err := stateOf(ctx, w.plane.Client, w.peaceful, take)
		if err != nil {
			return err
		}
		fire, err := stateOf(ctx, w.plane.Client, w.fire, take)
		if err != nil {
			return err
		}
		if peace != fire {
			return fmt.Errorf("peace and fire differ (-peace +fire):\n%s", cmp.Diff(strings.Split(peace, "\n"), strings.Split(fire, "\n")))
		}
		return nil
	}
}

// stateOf returns all that matters in a namespace, in a form that can be compared with
// another namespace's.
func stateOf(ctx context.Context, c client.Client, namespace string, take func(client.Object)) (string, error) {
	var all []client.Object
	names := map[types.UID]string{}
	for _, list := range kinds() {
		if err := c.List(ctx, list, client.InNamespace(namespace)); err != nil {
			return "", err
		}
		for _, object := range items(list) {
			all = append(all, object)
			names[object.GetUID()] = kindOf(object) + " " + object.GetName()
		}
	}
	var state strings.Builder
	for _, object := range all {
		normalise(object, names)
		take(object)
		text, err := yaml.Marshal(object)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&state, "--- %s %s\n%s", kindOf(object), object.GetName(), text)
	}
	return podName.ReplaceAllString(strings.ReplaceAll(state.String(), namespace, "NAMESPACE"), "$1-POD"), nil
}

// podName is a pod's or ReplicaSet's name in a message.
var podName = regexp.MustCompile(`(echo-[a-z0-9]+)-[0-9a-f]{6,10}(-[a-z0-9]{5})?\b`)

// normalise takes from an object what differs between any two runs: identities, times, and
// how often something was written.
func normalise(object client.Object, names map[types.UID]string) {
	owners := object.GetOwnerReferences()
	for i := range owners {
		// A name in place of the UID, or none: the owner is gone.
		owners[i].UID = types.UID(names[owners[i].UID])
	}
	annotations := object.GetAnnotations()
	for _, name := range []string{"deployment.kubernetes.io/revision", "kkloud.io/echo-generation"} {
		delete(annotations, name)
	}
	plain := metav1.ObjectMeta{
		Name: object.GetName(), Labels: object.GetLabels(), Annotations: annotations, OwnerReferences: owners,
	}
	if len(annotations) == 0 {
		plain.Annotations = nil
	}
	if object.GetDeletionTimestamp() != nil {
		plain.Finalizers = []string{"being deleted"}
	}
	switch o := object.(type) {
	case *echov1.Echo:
		o.Status.ObservedGeneration -= o.Generation
		for i := range o.Status.Conditions {
			o.Status.Conditions[i].ObservedGeneration -= o.Generation
			o.Status.Conditions[i].LastTransitionTime = metav1.Time{}
		}
		o.ObjectMeta = plain
	case *appsv1.Deployment:
		s := o.Status
		o.Status = appsv1.DeploymentStatus{
			ObservedGeneration: s.ObservedGeneration - o.Generation, Replicas: s.Replicas, UpdatedReplicas: s.UpdatedReplicas,
			AvailableReplicas: s.AvailableReplicas,
		}
		o.ObjectMeta = plain
	case *corev1.Service:
		o.Spec.ClusterIP, o.Spec.ClusterIPs = "", nil
		o.ObjectMeta = plain
	case *policyv1.PodDisruptionBudget:
		o.Status = policyv1.PodDisruptionBudgetStatus{}
		o.ObjectMeta = plain
	}
}

func kindOf(object client.Object) string {
	switch object.(type) {
	case *echov1.Echo:
		return "Echo"
	case *appsv1.Deployment:
		return "Deployment"
	case *corev1.Service:
		return "Service"
	default:
		return "PodDisruptionBudget"
	}
}
