package explore

import (
	"fmt"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/children"
	"github.com/kkloud-io/echo-operator/test/internal/oracle"
)

// checkWrite checks what the operator has just written, in place of an earlier object or of none.
func (w *world) checkWrite(what string, k key, before *item) {
	echo, found := w.echo()
	if k == echoKey {
		if found {
			w.checkReady(echo)
			if err := oracle.CheckKstatus(echo); err != nil {
				w.finding("%v", err)
			}
		}
		return
	}
	if name, _ := children.EchoName(k.name); name != echoName {
		w.finding("the operator %s, which is not its own", what)
	}
	written := w.objects[k]
	if written == nil && found && slices.ContainsFunc(children.Kinds, func(kind children.Kind) bool {
		return kind.ObjectKind == k.kind && kind.ChildName(echo) == k.name && kind.Wanted(echo)
	}) {
		w.finding("the operator %s, which the newest spec wants", what)
	}
	if written == nil || !found || !metav1.IsControlledBy(written, echo) {
		return
	}
	generation := children.EchoGeneration(written)
	isOverride := len(children.Overrides(echo)) > 0 && k.kind == "HTTPRoute" && before == nil
	if isOverride && w.held == "" && !slices.ContainsFunc(sorted(w.objects, "Pod"), func(pod key) bool { return isReady(w.objects[pod].Object.(*corev1.Pod)) }) { //nolint:forcetypeassert // The key has the kind.
		w.finding("the operator %s, and no pod is ready", what)
	}
	if before != nil && children.EchoGeneration(before) > generation {
		w.finding("the operator %s for generation %d after generation %d", what, generation, children.EchoGeneration(before))
	}
	spec, isKnown := w.specs[generation]
	if !isKnown {
		w.finding("the operator %s for the unknown generation %d", what, generation)
		return
	}
	of := echo.DeepCopy()
	of.Generation, of.Spec = generation, spec
	if differences := w.differencesOf(k, of); len(differences) > 0 {
		w.finding("the operator %s, which is not as generation %d declares it: %v", what, generation, differences)
	}
}

// checkReady checks that an Echo that is Ready serves its newest spec to every client. While the watch of pods lags, the
// operator knows neither pods that have started since, nor which of them have the template of an external writer.
func (w *world) checkReady(echo *echov1.Echo) {
	isReadyNow := meta.IsStatusConditionTrue(echo.Status.Conditions, echov1.ConditionReady) && oracle.CheckObserved(echo) == nil
	if !isReadyNow {
		return
	}
	deployment, found := get[*appsv1.Deployment](w, key{"Deployment", children.Name(echo)})
	if !found {
		if w.held == "" {
			w.finding("Ready, and there is no Deployment")
		}
		return
	}
	hash, serving := hashOf(deployment.Spec.Template), int32(0)
	isCurrent := len(w.differencesOf(keyOf(deployment), echo)) == 0
	if generation := children.EchoGeneration(deployment); !isCurrent && generation != echo.Generation {
		w.finding("Ready of generation %d, and the Deployment is that of generation %d", echo.Generation, generation)
	}
	for _, pod := range w.podsOf(deployment) {
		isNewest := templateOf(pod) == hash && isCurrent
		isDrift := pod.Labels[children.ResponseLabel] == deployment.Spec.Template.Labels[children.ResponseLabel]
		isKnown := w.cached[keyOf(pod)] != nil && (!isDrift || w.held != "Pod")
		isGone := !isReady(pod) || pod.DeletionTimestamp != nil && !w.time().Before(pod.DeletionTimestamp.Time)
		switch {
		case isNewest && isReady(pod) && pod.DeletionTimestamp == nil:
			serving++
		case !isNewest && !isGone && isKnown && isCurrent:
			w.finding("Ready, and clients reach pod %s of an earlier spec", pod.Name)
		}
	}
	if isCurrent && serving < echo.Spec.Replicas && w.held == "" {
		w.finding("Ready, and %d of %d pods serve", serving, echo.Spec.Replicas)
	}
}

// differences returns how the children of an Echo differ from what it declares.
func (w *world) differences(echo *echov1.Echo) []oracle.Difference {
	all, _ := oracle.Differences(echo, func(kind children.Kind, name string) (children.Object, error) { // The model has no errors.
		object, _ := get[children.Object](w, key{kind.ObjectKind, name})
		return object, nil
	})
	return all
}

// differencesOf returns those of one child.
func (w *world) differencesOf(k key, echo *echov1.Echo) []oracle.Difference {
	return slices.DeleteFunc(w.differences(echo), func(d oracle.Difference) bool { return k != key{d.Kind.ObjectKind, d.Kind.ChildName(echo)} })
}

// checkEnd checks a state in which nothing happens any more.
func (w *world) checkEnd(t *testing.T) (findings []string) {
	add := func(format string, args ...any) {
		findings = append(findings, "at the end: "+fmt.Sprintf(format, args...))
	}
	echo, found := w.echo()
	if !found {
		if left := sorted(w.objects, ""); len(left) > 0 {
			add("the Echo is deleted, and %v exists", left)
		}
		return findings
	}
	for _, difference := range w.differences(echo) {
		add("%v", difference)
	}
	if err := oracle.CheckReady(echo); err != nil {
		add("%v", err)
	}
	if deployment, _ := get[*appsv1.Deployment](w, key{"Deployment", children.Name(echo)}); deployment != nil && echo.Status.Replicas != deployment.Status.Replicas {
		add("status.replicas is %d, want %d", echo.Status.Replicas, deployment.Status.Replicas)
	}
	for _, name := range []string{"another reconciliation", "a restart"} {
		after := w.clone()
		if name == "a restart" {
			after.restart()
		}
		if done := after.reconcile(t, none, 0); len(done.done) > 0 {
			add("%s %v", name, done.done)
		}
	}
	return findings
}
