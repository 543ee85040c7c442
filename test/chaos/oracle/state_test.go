package oracle

import (
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/test/chaos/kinds"
)

// namespaceWith returns an Echo and its children, as they are in a namespace. Everything that
// differs between two runs depends on the run.
func namespaceWith(namespace string, run int64) (echo *echov1.Echo, objects []client.Object) {
	identify := func(object client.Object) client.Object {
		object.SetNamespace(namespace)
		object.SetUID(types.UID(namespace + kinds.Of(object)))
		object.SetResourceVersion(strings.Repeat("1", int(run)))
		object.SetCreationTimestamp(metav1.NewTime(time.Unix(run, 0)))
		return object
	}
	echo = ready(newEcho(run))
	echo.Spec.Message = "m"
	echo.Status.Selector = "pods of " + namespace
	echo.Status.Conditions[0].LastTransitionTime = metav1.NewTime(time.Unix(run, 0))
	echo.Status.Conditions[0].Message = "echo-one-0a1b2c" + strings.Repeat("d", int(run)) + "-x2x2x is ready"
	objects = append(objects, identify(echo))
	for _, kind := range kinds.Servers() {
		child := kinds.New(kind)
		child.SetName(kinds.ServerName(echo.Name))
		kind.Mutate(child, echo, kinds.Inputs())
		child.SetAnnotations(map[string]string{"kkloud.io/echo-generation": "1", "deployment.kubernetes.io/revision": strings.Repeat("1", int(run))})
		switch c := child.(type) {
		case *corev1.Service:
			c.Spec.ClusterIP = fmt.Sprint("10.0.0.", run)
			c.Spec.ClusterIPs = []string{c.Spec.ClusterIP}
		case *appsv1.Deployment:
			c.Generation = run
			rolledOut(c).Status.Conditions = []appsv1.DeploymentCondition{{Type: appsv1.DeploymentAvailable, LastUpdateTime: metav1.Now()}}
		case *policyv1.PodDisruptionBudget:
			c.Generation = run
			c.Status = policyv1.PodDisruptionBudgetStatus{ObservedGeneration: run, DisruptionsAllowed: int32(run)}
		}
		objects = append(objects, identify(child))
	}
	return echo, objects
}

func stateOf(t *testing.T, objects []client.Object, namespace string, mask Mask) string {
	t.Helper()
	state, err := State(objects, namespace, mask)
	if err != nil {
		t.Fatal(err)
	}
	return state
}

func TestStateIgnoresIdentitiesTimesAndVersions(t *testing.T) {
	_, subject := namespaceWith("subject-1", 1)
	_, control := namespaceWith("control-1", 2)
	err := CheckEqual("namespaces", "control", stateOf(t, control, "control-1", CompareAll), "subject", stateOf(t, subject, "subject-1", CompareAll))
	if err != nil {
		t.Errorf("two runs of the same: %v", err)
	}
}

func TestStateDoesNotChangeTheObjects(t *testing.T) {
	_, objects := namespaceWith("subject-1", 1)
	_, want := namespaceWith("subject-1", 1)
	stateOf(t, objects, "subject-1", IgnoreStatus)
	for i := range objects {
		if got, want := objects[i].GetOwnerReferences(), want[i].GetOwnerReferences(); len(want) > 0 && got[0].UID != want[0].UID {
			t.Errorf("%s: State changed the owner to %q, want %q", kinds.Of(objects[i]), got[0].UID, want[0].UID)
		}
		if len(objects[i].GetAnnotations()) != len(want[i].GetAnnotations()) {
			t.Errorf("%s: State changed the annotations", kinds.Of(objects[i]))
		}
	}
}

// first returns the first object of a type.
func first[T client.Object](objects []client.Object) (found T) {
	for _, object := range objects {
		if o, ok := object.(T); ok {
			return o
		}
	}
	return found
}

func TestStateDiffers(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*echov1.Echo, []client.Object) []client.Object
		// Masks that ignore the difference.
		ignoredByStatus, ignoredByEchoStatus bool
	}{
		"child is missing": {change: func(_ *echov1.Echo, all []client.Object) []client.Object { return all[:len(all)-1] }},
		"label": {change: func(_ *echov1.Echo, all []client.Object) []client.Object {
			all[1].GetLabels()["team"] = "blue"
			return all
		}},
		"annotation": {change: func(_ *echov1.Echo, all []client.Object) []client.Object {
			all[1].GetAnnotations()["team"] = "blue"
			return all
		}},
		"owner does not exist": {change: func(_ *echov1.Echo, all []client.Object) []client.Object {
			all[1].GetOwnerReferences()[0].UID = "gone"
			return all
		}},
		"no owner": {change: func(_ *echov1.Echo, all []client.Object) []client.Object {
			all[1].SetOwnerReferences(nil)
			return all
		}},
		"child is being deleted": {change: func(_ *echov1.Echo, all []client.Object) []client.Object {
			now := metav1.Now()
			all[1].SetDeletionTimestamp(&now)
			return all
		}},
		"spec of the Service": {change: func(_ *echov1.Echo, all []client.Object) []client.Object {
			first[*corev1.Service](all).Spec.Ports[0].Port++
			return all
		}},
		"spec of the PodDisruptionBudget": {change: func(_ *echov1.Echo, all []client.Object) []client.Object {
			first[*policyv1.PodDisruptionBudget](all).Spec.MaxUnavailable = nil
			return all
		}},
		"spec of the Echo": {change: func(echo *echov1.Echo, all []client.Object) []client.Object {
			echo.Spec.Message = "other"
			return all
		}},
		"replicas of the Deployment are not updated": {ignoredByStatus: true, change: func(_ *echov1.Echo, all []client.Object) []client.Object {
			first[*appsv1.Deployment](all).Status.UpdatedReplicas--
			return all
		}},
		"generation of the Deployment is not observed": {ignoredByStatus: true, change: func(_ *echov1.Echo, all []client.Object) []client.Object {
			first[*appsv1.Deployment](all).Status.ObservedGeneration--
			return all
		}},
		"condition of the Echo": {ignoredByStatus: true, ignoredByEchoStatus: true, change: func(echo *echov1.Echo, all []client.Object) []client.Object {
			echo.Status.Conditions[0].Status = metav1.ConditionFalse
			return all
		}},
		"condition of the Echo is of an earlier generation": {ignoredByStatus: true, ignoredByEchoStatus: true, change: func(echo *echov1.Echo, all []client.Object) []client.Object {
			echo.Status.Conditions[0].ObservedGeneration--
			return all
		}},
		"generation of the Echo is not observed": {change: func(echo *echov1.Echo, all []client.Object) []client.Object {
			echo.Status.ObservedGeneration--
			return all
		}},
		"Echo has no status": {change: func(echo *echov1.Echo, all []client.Object) []client.Object {
			echo.Status = echov1.EchoStatus{}
			return all
		}},
	} {
		for maskName, mask := range map[string]struct {
			mask    Mask
			ignored bool
		}{
			"CompareAll": {CompareAll, false}, "IgnoreStatus": {IgnoreStatus, test.ignoredByStatus}, "IgnoreEchoStatus": {IgnoreEchoStatus, test.ignoredByEchoStatus},
		} {
			t.Run(name+", "+maskName, func(t *testing.T) {
				_, control := namespaceWith("control-1", 2)
				echo, subject := namespaceWith("subject-1", 2)
				subject = test.change(echo, subject)
				err := CheckEqual("namespaces", "control", stateOf(t, control, "control-1", mask.mask), "subject", stateOf(t, subject, "subject-1", mask.mask))
				if (err == nil) != mask.ignored {
					t.Errorf("difference is ignored = %v, want %v: %v", err == nil, mask.ignored, err)
				}
			})
		}
	}
}

func TestCheckUntouched(t *testing.T) {
	written := func(manager string) []metav1.ManagedFieldsEntry {
		return []metav1.ManagedFieldsEntry{{Manager: "chaos"}, {Manager: manager}}
	}
	for name, test := range map[string]struct {
		kind      string
		change    func(client.Object)
		untouched bool
	}{
		"same resource version":                                   {"Service", func(o client.Object) { o.SetResourceVersion("1") }, true},
		"Service has another resource version, but no controller": {"Service", func(client.Object) {}, false},
		"kube-controller-manager wrote the status": {"Deployment", func(o client.Object) {
			o.SetManagedFields(written("kube-controller-manager"))
			o.(*appsv1.Deployment).Status = appsv1.DeploymentStatus{ObservedGeneration: 1, Replicas: 1}
			o.SetAnnotations(map[string]string{"deployment.kubernetes.io/revision": "1"})
		}, true},
		"kube-controller-manager wrote the status of a budget": {"PodDisruptionBudget", func(o client.Object) {
			o.(*policyv1.PodDisruptionBudget).Status.ObservedGeneration = 1
		}, true},
		"operator wrote the same": {"Deployment", func(o client.Object) {
			o.SetManagedFields(written("manager"))
			o.(*appsv1.Deployment).Status.ObservedGeneration = 1
		}, false},
		"spec changed": {"Deployment", func(o client.Object) {
			o.(*appsv1.Deployment).Status.ObservedGeneration = 1
			o.(*appsv1.Deployment).Spec.Paused = true
		}, false},
		"label changed": {"PodDisruptionBudget", func(o client.Object) {
			o.(*policyv1.PodDisruptionBudget).Status.ObservedGeneration = 1
			o.SetLabels(map[string]string{"team": "blue"})
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			before := kinds.New(kinds.ByName(test.kind))
			before.SetName("echo-one")
			before.SetResourceVersion("1")
			now := before.DeepCopyObject().(client.Object)
			now.SetResourceVersion("2")
			test.change(now)
			if err := CheckUntouched(before, now); (err == nil) != test.untouched {
				t.Errorf("untouched = %v, want %v: %v", err == nil, test.untouched, err)
			}
		})
	}
}
