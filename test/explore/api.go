package explore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	jsonpatch "github.com/evanphx/json-patch/v5"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
)

// kindOf returns the kind of an object, which is the name of its type.
func kindOf(object client.Object) string { return reflect.TypeOf(object).Elem().Name() }

func keyOf(object client.Object) key { return key{kindOf(object), object.GetName()} }

func copyOf(object client.Object) client.Object {
	return object.DeepCopyObject().(client.Object) //nolint:forcetypeassert // A copy has the same type.
}

func resourceOf(k key) schema.GroupResource {
	return schema.GroupResource{Resource: strings.ToLower(k.kind) + "s"}
}

// create stores a new object as an API server does, with what it defaults that the operator reads.
func (w *world) create(object client.Object) error {
	k := keyOf(object)
	if w.objects[k] != nil {
		return apierrors.NewAlreadyExists(resourceOf(k), k.name)
	}
	w.uids++
	object.SetNamespace(namespace)
	object.SetUID(types.UID(fmt.Sprintf("uid-%04d", w.uids)))
	object.SetGeneration(1)
	object.SetCreationTimestamp(metav1.NewTime(w.time()))
	if service, is := object.(*corev1.Service); is {
		service.SetGeneration(0) // Services have none.
		service.Spec.ClusterIP = "192.0.2.1"
		service.Spec.ClusterIPs = []string{service.Spec.ClusterIP}
	}
	w.store(object)
	return nil
}

// update stores an object if it has changed. Changes of the spec count as a generation.
func (w *world) update(object client.Object) {
	old := w.objects[keyOf(object)]
	if old.GetGeneration() > 0 && !reflect.DeepEqual(specOf(old.Object), specOf(object)) {
		object.SetGeneration(old.GetGeneration() + 1)
	}
	object.SetResourceVersion(old.GetResourceVersion())
	if newItem(object).text != old.text || !slices.Equal(newItem(object).identities, old.identities) {
		w.store(object)
	}
}

func (w *world) store(object client.Object) {
	w.version++
	object.SetResourceVersion(strconv.FormatInt(w.version, 10))
	k := keyOf(object)
	old, stored := w.objects[k], newItem(object)
	w.objects[k] = stored
	if k == echoKey {
		w.edits = append(slices.Clip(w.edits), change{k, old, stored})
		echo := object.(*echov1.Echo) //nolint:forcetypeassert // The key has the kind.
		w.specs[echo.Generation] = *echo.Spec.DeepCopy()
	}
	w.publish(change{k, old, stored})
}

// remove removes an object. The garbage collector removes its children.
func (w *world) remove(k key) {
	old := w.objects[k]
	if k == echoKey {
		w.edits = append(slices.Clip(w.edits), change{k, old, nil})
	}
	delete(w.objects, k)
	w.version++
	w.publish(change{k, old, nil})
}

func specOf(object client.Object) any {
	spec := reflect.ValueOf(object).Elem().FieldByName("Spec")
	return spec.Interface()
}

// setStatus replaces the status.
func setStatus(object client.Object, from client.Object) {
	status := reflect.ValueOf(object).Elem().FieldByName("Status")
	status.Set(reflect.ValueOf(from).Elem().FieldByName("Status"))
}

// fault is what goes wrong with one write of a reconciliation.
type fault string

const (
	none     fault = ""
	lost     fault = "the response is lost"
	rejected fault = "a policy rejects it"
	crash    fault = "the operator crashes after it"
	// staleCrash is a crash after which an API server that lags answers.
	staleCrash fault = "the operator crashes after it, and reads the Echo as it was before the last edit"
)

var errCrashed = errors.New("the operator has crashed")

// apiClient is the client of the operator in one reconciliation, or another client.
type apiClient struct {
	client.Client
	*world
	isCached bool // reads are from the cache
	isOther  bool // of another client than the operator
	writes   *writes
}

// writes are those of one reconciliation.
type writes struct {
	done    []string
	fault   fault
	at      int // number of the write with the fault, from 1
	crashed bool
}

// attempt does a write, with its fault.
func (c *apiClient) attempt(what string, object client.Object, do func() error) error {
	r := c.writes
	if r.crashed {
		return errCrashed
	}
	r.done = append(r.done, what)
	f := none
	if r.at == len(r.done) {
		f = r.fault
	}
	if f == rejected {
		return apierrors.NewForbidden(resourceOf(keyOf(object)), object.GetName(), errors.New("rejected by a policy"))
	}
	if err := do(); err != nil {
		return err
	}
	if !c.isOther {
		c.checkWrite(what, keyOf(object))
	}
	if f == lost {
		return errors.New("connection reset by peer")
	}
	if r.crashed = f == crash || f == staleCrash; r.crashed {
		return errCrashed
	}
	return nil
}

func (c *apiClient) Get(_ context.Context, name client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	if c.writes.crashed {
		return errCrashed
	}
	k := key{kindOf(into), name.Name}
	objects := c.objects
	if c.isCached {
		objects = c.cached
	}
	found := objects[k]
	if found == nil {
		return apierrors.NewNotFound(resourceOf(k), k.name)
	}
	assign(into, found.Object)
	return nil
}

// List returns the pods of the cache by an index, or the ReplicaSets of a Deployment.
func (c *apiClient) List(_ context.Context, into client.ObjectList, options ...client.ListOption) error {
	var o client.ListOptions
	o.ApplyOptions(options)
	switch list := into.(type) {
	case *corev1.PodList:
		for _, k := range sorted(c.cached, "Pod") {
			pod := c.cached[k].Object.(*corev1.Pod) //nolint:forcetypeassert // The key has the kind.
			for _, requirement := range o.FieldSelector.Requirements() {
				if podIndex(pod, requirement.Field) == requirement.Value {
					list.Items = append(list.Items, *pod.DeepCopy())
				}
			}
		}
	case *metav1.PartialObjectMetadataList:
		list.Items = c.replicaSets(o.LabelSelector)
	default:
		return fmt.Errorf("the model has no %T", into)
	}
	return nil
}

func (c *apiClient) Create(_ context.Context, object client.Object, _ ...client.CreateOption) error {
	return c.attempt("creates "+keyOf(object).String(), object, func() error {
		created := copyOf(object)
		if err := c.create(created); err != nil {
			return err
		}
		assign(object, created)
		return nil
	})
}

// assign has an object of the operator become as the response says.
func assign(object, response client.Object) {
	reflect.ValueOf(object).Elem().Set(reflect.ValueOf(copyOf(response)).Elem())
}

func (c *apiClient) Patch(_ context.Context, object client.Object, patch client.Patch, _ ...client.PatchOption) error {
	k := keyOf(object)
	return c.attempt("patches "+k.String(), object, func() error {
		stored := c.objects[k]
		if stored == nil {
			return apierrors.NewNotFound(resourceOf(k), k.name)
		}
		data, err := patch.Data(object)
		if err != nil {
			return err
		}
		before, err := json.Marshal(stored.Object)
		if err != nil {
			return err
		}
		after, err := apply(patch.Type(), before, data)
		if err != nil {
			return apierrors.NewInvalid(schema.GroupKind{Kind: k.kind}, k.name, nil)
		}
		patched := reflect.New(reflect.TypeOf(stored.Object).Elem()).Interface().(client.Object) //nolint:forcetypeassert // Every object is one.
		if err := json.Unmarshal(after, patched); err != nil {
			return err
		}
		if patched.GetResourceVersion() != stored.GetResourceVersion() {
			return apierrors.NewConflict(resourceOf(k), k.name, errors.New("the object has been modified"))
		}
		setStatus(patched, stored.Object)
		c.update(patched)
		assign(object, c.objects[k].Object)
		return nil
	})
}

func apply(patchType types.PatchType, document, data []byte) ([]byte, error) {
	if patchType == types.MergePatchType {
		return jsonpatch.MergePatch(document, data)
	}
	patch, err := jsonpatch.DecodePatch(data)
	if err != nil {
		return nil, err
	}
	return patch.Apply(document)
}

func (c *apiClient) Delete(_ context.Context, object client.Object, options ...client.DeleteOption) error {
	var o client.DeleteOptions
	o.ApplyOptions(options)
	k := keyOf(object)
	return c.attempt("deletes "+k.String(), object, func() error {
		stored := c.objects[k]
		if stored == nil {
			return apierrors.NewNotFound(resourceOf(k), k.name)
		}
		p := o.Preconditions
		if p != nil && (p.UID != nil && *p.UID != stored.GetUID() || p.ResourceVersion != nil && *p.ResourceVersion != stored.GetResourceVersion()) {
			return apierrors.NewConflict(resourceOf(k), k.name, errors.New("the precondition failed"))
		}
		c.remove(k)
		return nil
	})
}

func (c *apiClient) Status() client.SubResourceWriter { return statusWriter{api: c} }

type statusWriter struct {
	client.SubResourceWriter
	api *apiClient
}

func (s statusWriter) Update(_ context.Context, object client.Object, _ ...client.SubResourceUpdateOption) error {
	k := keyOf(object)
	return s.api.attempt("writes the status", object, func() error {
		stored := s.api.objects[k]
		switch {
		case stored == nil || stored.GetUID() != object.GetUID():
			return apierrors.NewNotFound(resourceOf(k), k.name)
		case stored.GetResourceVersion() != object.GetResourceVersion():
			return apierrors.NewConflict(resourceOf(k), k.name, errors.New("the object has been modified"))
		}
		updated := copyOf(stored.Object)
		setStatus(updated, object)
		s.api.update(updated)
		assign(object, s.api.objects[k].Object)
		return nil
	})
}
