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
func (w *world) create(object client.Object) {
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
}

// update stores an object if it has changed. Changes of the spec count as a generation.
func (w *world) update(object client.Object) {
	old := w.objects[keyOf(object)]
	if old.GetGeneration() > 0 && !reflect.DeepEqual(field(old.Object, "Spec").Interface(), field(object, "Spec").Interface()) {
		object.SetGeneration(old.GetGeneration() + 1)
	}
	object.SetResourceVersion(old.GetResourceVersion())
	if reflect.DeepEqual(old.Object, object) {
		return
	}
	if updated := newItem(object); updated.text != old.text || !slices.Equal(updated.identities, old.identities) {
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
		echo := object.(*echov1.Echo) //nolint:forcetypeassert // The key has the kind.
		w.specs[echo.Generation] = *echo.Spec.DeepCopy()
	}
	w.publish(change{k, old, stored})
}

// remove removes an object. The garbage collector removes its children.
func (w *world) remove(k key) {
	w.version++
	w.publish(change{k, w.objects[k], nil})
	delete(w.objects, k)
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

// attempt does a write of an object that exists, or a creation, with its fault.
func (c *apiClient) attempt(what string, object client.Object, do func(stored *item) error) error {
	r, k := c.writes, keyOf(object)
	if r.crashed {
		return errCrashed
	}
	r.done = append(r.done, what)
	f := none
	if r.at == len(r.done) {
		f = r.fault
	}
	before := c.objects[k]
	switch isCreation := strings.HasPrefix(what, "creates "); {
	case f == rejected:
		return apierrors.NewForbidden(resourceOf(k), k.name, errors.New("rejected by a policy"))
	case isCreation && before != nil:
		return apierrors.NewAlreadyExists(resourceOf(k), k.name)
	case !isCreation && before == nil:
		return apierrors.NewNotFound(resourceOf(k), k.name)
	}
	if err := do(before); err != nil {
		return err
	}
	if !c.isOther {
		c.checkWrite(what, k, before)
	}
	if f == lost {
		return errors.New("connection reset by peer")
	}
	if r.crashed = f == crash || f == staleCrash; r.crashed {
		return errCrashed
	}
	return nil
}

// otherClient returns the client of a user.
func (w *world) otherClient() *apiClient {
	return &apiClient{world: w, writes: &writes{}, isOther: true}
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

// List returns the pods of the cache by an index.
func (c *apiClient) List(_ context.Context, into client.ObjectList, options ...client.ListOption) error {
	list := into.(*corev1.PodList) //nolint:forcetypeassert // The operator lists ReplicaSets only if pods fail.
	o := (&client.ListOptions{}).ApplyOptions(options)
	for _, k := range sorted(c.cached, "Pod") {
		pod := c.cached[k].Object.(*corev1.Pod) //nolint:forcetypeassert // The key has the kind.
		for _, requirement := range o.FieldSelector.Requirements() {
			if pod.Labels[requirement.Field] == requirement.Value {
				list.Items = append(list.Items, *pod.DeepCopy())
			}
		}
	}
	return nil
}

func (c *apiClient) Create(_ context.Context, object client.Object, _ ...client.CreateOption) error {
	return c.attempt("creates "+keyOf(object).String(), object, func(*item) error {
		created := copyOf(object)
		c.create(created)
		assign(object, created)
		return nil
	})
}

// assign has an object of the operator become as the response says.
func assign(object, response client.Object) {
	reflect.ValueOf(object).Elem().Set(reflect.ValueOf(copyOf(response)).Elem())
}

// Patch applies a JSON patch.
func (c *apiClient) Patch(_ context.Context, object client.Object, patch client.Patch, _ ...client.PatchOption) error {
	k := keyOf(object)
	return c.attempt("patches "+k.String(), object, func(stored *item) error {
		data, err := patch.Data(object)
		if err != nil {
			return err
		}
		operations, err := jsonpatch.DecodePatch(data)
		if err != nil {
			return err
		}
		before, err := json.Marshal(stored.Object)
		if err != nil {
			return err
		}
		after, err := operations.Apply(before)
		if err != nil {
			return apierrors.NewInvalid(schema.GroupKind{Kind: k.kind}, k.name, nil)
		}
		patched := reflect.New(reflect.TypeOf(stored.Object).Elem()).Interface().(client.Object) //nolint:forcetypeassert // Every object is one.
		if err := json.Unmarshal(after, patched); err != nil {
			return err
		}
		field(patched, "Status").Set(field(stored.Object, "Status"))
		c.update(patched)
		assign(object, c.objects[k].Object)
		return nil
	})
}

func (c *apiClient) Delete(_ context.Context, object client.Object, options ...client.DeleteOption) error {
	p, k := (&client.DeleteOptions{}).ApplyOptions(options).Preconditions, keyOf(object)
	return c.attempt("deletes "+k.String(), object, func(stored *item) error {
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
	return s.api.attempt("writes the status", object, func(stored *item) error {
		if stored.GetResourceVersion() != object.GetResourceVersion() {
			return apierrors.NewConflict(resourceOf(k), k.name, errors.New("the object has been modified"))
		}
		updated := copyOf(stored.Object)
		field(updated, "Status").Set(field(object, "Status"))
		s.api.update(updated)
		assign(object, s.api.objects[k].Object)
		return nil
	})
}
