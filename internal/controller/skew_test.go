package controller

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/children"
)

// unknownField is the name of a field that an API server may have and the client library has not.
const unknownField = "fieldOfANewerServer"

// mapFields are fields whose value is a map: the client library knows all keys.
var mapFields = map[string]bool{
	"labels": true, "annotations": true, "matchLabels": true, "nodeSelector": true, "limits": true, "requests": true,
}

// forEachStruct calls a function with each struct in a document, and with its path.
func forEachStruct(document any, path string, do func(path string, object map[string]any)) {
	switch value := document.(type) {
	case map[string]any:
		for field, part := range value {
			if selector := path == "/spec" && field == "selector"; !mapFields[field] && !selector { // That of a Service is a map.
				forEachStruct(part, path+"/"+field, do)
			}
		}
		do(path, value)
	case []any:
		for i, item := range value {
			forEachStruct(item, fmt.Sprint(path, "/", i), do)
		}
	}
}

// storedChild returns the child of an Echo with a sidecar beside the server, as a newer API server
// stores it: each struct has a field that the client does not know. It contains the path of the struct.
func storedChild(t *testing.T, kind children.Kind, echo *echov1.Echo) []byte {
	t.Helper()
	object := kind.New()
	kind.Mutate(object, echo, inputs)
	object.SetResourceVersion("7")
	if deployment, is := object.(*appsv1.Deployment); is {
		pod := &deployment.Spec.Template.Spec
		pod.Containers = append([]corev1.Container{{Name: "sidecar"}}, pod.Containers...)
	}
	encoded, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	var document any
	if err := json.Unmarshal(encoded, &document); err != nil {
		t.Fatal(err)
	}
	forEachStruct(document, "", func(path string, object map[string]any) { object[unknownField] = path })
	if encoded, err = json.Marshal(document); err != nil {
		t.Fatal(err)
	}
	return encoded
}

func echoBeforeAndAfterAnEdit() (before, after *echov1.Echo) {
	before = &echov1.Echo{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "hello", UID: "1", Generation: 1},
		Spec:       echov1.EchoSpec{Message: "a", Replicas: 2, Port: 80, TargetPort: 5678},
	}
	after = before.DeepCopy()
	after.Generation++
	after.Spec = echov1.EchoSpec{Message: "b", Replicas: 3, Port: 81, TargetPort: 80, Image: "docker.io/library/other:1", Args: []string{"x"}}
	return before, after
}

// A write keeps the unknown fields of each struct that it does not remove.
func TestPatchKeepsFieldsThatTheClientDoesNotKnow(t *testing.T) {
	before, after := echoBeforeAndAfterAnEdit()
	for _, kind := range children.Kinds {
		t.Run(kind.Name, func(t *testing.T) {
			stored := storedChild(t, kind, before)
			live := client.Object(kind.New())
			if err := json.Unmarshal(stored, live); err != nil {
				t.Fatal(err)
			}
			desired := live.DeepCopyObject().(client.Object)
			kind.Mutate(desired, after, inputs)
			children.SetEchoGeneration(desired, after.Generation)
			operations, err := children.LockedPatch(live, desired)
			if err != nil {
				t.Fatal(err)
			}
			patch, err := jsonpatch.DecodePatch(operations)
			if err != nil {
				t.Fatal(err)
			}
			written, err := patch.Apply(stored)
			if err != nil {
				t.Fatal(err)
			}

			var was, is any
			if err := json.Unmarshal(stored, &was); err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal(written, &is); err != nil {
				t.Fatal(err)
			}
			existed := map[string]bool{}
			forEachStruct(was, "", func(path string, _ map[string]any) { existed[path] = true })
			forEachStruct(is, "", func(path string, object map[string]any) {
				if existed[path] && object[unknownField] != path {
					t.Errorf("%s: unknown field = %v, want %s", path, object[unknownField], path)
				}
			})
			if got := client.Object(kind.New()); json.Unmarshal(written, got) != nil || children.EchoGeneration(got) != after.Generation {
				t.Errorf("the patch did not result in the child of generation %d: %s", after.Generation, written)
			}
		})
	}
}

// A child with unknown fields is in its desired state, so it causes no write.
func TestUnknownFieldsAreNoDifference(t *testing.T) {
	echo, _ := echoBeforeAndAfterAnEdit()
	unknown := binary.AppendUvarint(nil, 1000<<3|2) // Field 1000 of the protobuf message, a string.
	unknown = append(binary.AppendUvarint(unknown, 5), "value"...)
	for _, kind := range children.Kinds {
		object := kind.New()
		kind.Mutate(object, echo, inputs)
		message, isMessage := object.(interface{ Marshal() ([]byte, error) })
		if !isMessage {
			continue // The client reads this kind as JSON, whose decoder ignores unknown fields.
		}
		encoded, err := message.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		// Field 2 is the spec. Decoding merges it with the first one.
		encoded = append(append(encoded, unknown...), 2<<3|2, byte(len(unknown)))
		encoded = append(encoded, unknown...)
		live := kind.New()
		if err := live.(interface{ Unmarshal([]byte) error }).Unmarshal(encoded); err != nil {
			t.Fatalf("decode a %s with unknown fields: %v", kind.Name, err)
		}
		if desired, changed := children.Desired(kind, live, echo, inputs); changed {
			t.Errorf("%s with unknown fields: changed, want no difference: %v", kind.Name, desired)
		}
	}
}
