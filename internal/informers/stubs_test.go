package informers

import (
	"reflect"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/children"
)

// cachedDeployment returns the Deployment of the Echo "hello" as the cache receives it, changed.
func cachedDeployment(change func(*appsv1.Deployment)) *appsv1.Deployment {
	echo := &echov1.Echo{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "hello", UID: "1"}, Spec: echov1.EchoSpec{Message: "hello"}}
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: children.Name(echo), UID: "2", ResourceVersion: "3"}}
	children.Deployment(deployment, echo, inputs)
	deployment.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "echo-operator"}}
	change(deployment)
	return deployment
}

func slimDeployment(deployment *appsv1.Deployment) *appsv1.Deployment {
	for _, kind := range children.Kinds {
		if kind.Name == "Deployment" {
			return transformChild(kind, deployment).(*appsv1.Deployment)
		}
	}
	return nil
}

// large exceeds the size of a cached child.
var large = map[string]string{"large": strings.Repeat("x", maxCachedSize)}

func TestCacheKeepsChildrenAndReducesOtherObjectsToStubs(t *testing.T) {
	orphaned := func(d *appsv1.Deployment) { d.OwnerReferences = nil }
	for name, c := range map[string]struct {
		change         func(*appsv1.Deployment)
		stub, hasOwner bool
	}{
		"child":         {func(*appsv1.Deployment) {}, false, true},
		"orphan":        {orphaned, false, false},
		"large child":   {func(d *appsv1.Deployment) { d.Annotations = large }, true, true},
		"large orphan":  {func(d *appsv1.Deployment) { orphaned(d); d.Annotations = large }, true, false},
		"other name":    {func(d *appsv1.Deployment) { orphaned(d); d.Name = "hello" }, true, false},
		"other Echo":    {func(d *appsv1.Deployment) { d.Name = "echo-other" }, true, false},
		"other kind":    {func(d *appsv1.Deployment) { d.OwnerReferences[0].Kind = "Pod" }, true, false},
		"no Echo label": {func(d *appsv1.Deployment) { orphaned(d); delete(d.Labels, children.EchoLabel) }, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			slim := slimDeployment(cachedDeployment(c.change))
			if IsStub(slim) != c.stub || len(slim.Spec.Template.Spec.Containers) == 0 != c.stub {
				t.Errorf("cached object = %v, want a stub: %t", slim, c.stub)
			}
			if owner := metav1.GetControllerOf(slim); (owner != nil) != c.hasOwner || owner != nil && owner.UID != "1" {
				t.Errorf("controller of the cached object = %v, want one: %t", owner, c.hasOwner)
			}
			if client.ObjectKeyFromObject(slim) != client.ObjectKeyFromObject(cachedDeployment(c.change)) || slim.ResourceVersion != "3" {
				t.Errorf("cached object = %s/%s in version %s, want the key and version of the object", slim.Namespace, slim.Name, slim.ResourceVersion)
			}
			if len(slim.ManagedFields) > 0 {
				t.Errorf("cached object has managed fields %v, want none", slim.ManagedFields)
			}
			// Informers transform an object again, for example after the watch was interrupted.
			if again := slimDeployment(slim.DeepCopy()); !reflect.DeepEqual(again, slim) {
				t.Errorf("reduced again: %v, want %v", again, slim)
			}
		})
	}
}

// Users can create many objects with the operator's label, so a stub must not grow with them.
func TestStubKeepsNothingThatUsersCanMakeLarge(t *testing.T) {
	slim := slimDeployment(cachedDeployment(func(d *appsv1.Deployment) {
		d.Name, d.Labels, d.Annotations, d.Finalizers = "large", large, large, []string{"example.com/" + large["large"]}
		d.OwnerReferences = append(d.OwnerReferences, metav1.OwnerReference{Name: large["large"]})
		d.Spec.Template.Annotations = large
	}))
	if size := slim.Size(); size > 256 {
		t.Errorf("encoded stub has %d bytes, want at most 256", size)
	}
}
