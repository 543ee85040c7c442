package children

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"gomodules.xyz/jsonpatch/v2"
	"k8s.io/apimachinery/pkg/api/equality"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
)

// maxFields is the maximum number of fields in the record of an overridden child.
const maxFields = 16

// maxFieldLength is the maximum length of a field in that record, in bytes.
const maxFieldLength = 253

// Desired returns the desired state of a child, based on the live or an empty object, and whether the two
// differ. Usually they do not: comparing the encodings shows that in an eighth of the time of reflection.
// Encodings of equal objects may differ in notation, for example 1 and 1000m, so reflection decides then.
func Desired(kind Kind, live Object, echo *echov1.Echo, in Inputs) (desired Object, changed bool) {
	desired = live.DeepCopyObject().(Object)
	before := encode(desired)
	kind.Mutate(desired, echo, in)
	if before != nil && bytes.Equal(before, encode(desired)) {
		return desired, false
	}
	return desired, !equality.Semantic.DeepEqual(live, desired)
}

// encode returns the protobuf encoding of the object, or nil for a type without one.
func encode(object Object) []byte {
	if o, is := object.(interface{ Marshal() ([]byte, error) }); is {
		encoding, _ := o.Marshal() // After an error, reflection decides.
		return encoding
	}
	return nil
}

// Difference is how a live child differs from its desired state.
type Difference struct {
	// Fields that differ, sorted, for example "spec.containers[echo].image".
	Fields []string
	// ResponseFields are those of the fields that determine the response to a client.
	ResponseFields []string
	// Hash identifies the fields with their live and their desired values.
	Hash string
}

// Compare returns how a live child differs from its desired state. It fails if one of them cannot be encoded
// in JSON.
func Compare(kind Kind, live, desired Object) (d Difference, err error) {
	before, err := newDocument(live)
	if err != nil {
		return d, err
	}
	after, err := newDocument(desired)
	if err != nil {
		return d, err
	}
	toDesired, err := before.patchTo(after)
	if err != nil {
		return d, err
	}
	toLive, err := after.patchTo(before)
	if err != nil {
		return d, err
	}
	for _, operation := range toDesired {
		named := after // Admission may have renamed the item of a list, so its desired name counts.
		if operation.Operation == "remove" {
			named = before
		}
		field := fieldName(named.content, operation.Path)
		d.Fields = append(d.Fields, field)
		if kind.DeterminesResponse(field) {
			d.ResponseFields = append(d.ResponseFields, field)
		}
	}
	slices.Sort(d.Fields)
	d.Fields = slices.Compact(d.Fields)
	slices.Sort(d.ResponseFields)
	d.Hash = hashOf(toDesired, toLive)
	return d, nil
}

// hashOf returns a hash of the desired and of the live values.
func hashOf(toDesired, toLive []jsonpatch.Operation) string {
	var values []string
	for _, operation := range toDesired {
		values = append(values, "desired "+operation.Json())
	}
	for _, operation := range toLive {
		values = append(values, "live "+operation.Json())
	}
	slices.Sort(values)
	sum := sha256.Sum256([]byte(strings.Join(values, "\n")))
	return hex.EncodeToString(sum[:8])
}

// document is an object in JSON.
type document struct {
	content any
	encoded []byte
}

// newDocument encodes an object, with empty labels and annotations if it has none. So the difference of
// one annotation is the same whether or not another client adds one, as the Deployment controller does
// after each write that removes its revision.
func newDocument(object Object) (d document, err error) {
	encoded, err := json.Marshal(object)
	if err != nil {
		return d, fmt.Errorf("encode a child: %w", err)
	}
	content := map[string]any{}
	if err := json.Unmarshal(encoded, &content); err != nil {
		return d, fmt.Errorf("decode a child: %w", err)
	}
	if metadata, is := content["metadata"].(map[string]any); is {
		for _, field := range []string{"labels", "annotations"} {
			if metadata[field] == nil {
				metadata[field] = map[string]any{}
			}
		}
	}
	normalized, err := json.Marshal(content)
	return document{content, normalized}, err
}

func (d document) patchTo(other document) ([]jsonpatch.Operation, error) {
	return createPatch(d.encoded, other.encoded)
}

func createPatch(before, after []byte) ([]jsonpatch.Operation, error) {
	operations, err := jsonpatch.CreatePatch(before, after)
	if err != nil {
		return nil, fmt.Errorf("compare a child with its desired state: %w", err)
	}
	return operations, nil
}

// LockedPatch returns a JSON patch (RFC 6902) that turns the live child into the desired one, and
// leaves fields alone that this client does not know. The API server rejects it as invalid, before
// admission and without any change, if the child is not in the version that was read.
func LockedPatch(live, desired Object) ([]byte, error) {
	before, err := json.Marshal(live)
	if err != nil {
		return nil, fmt.Errorf("encode the live child: %w", err)
	}
	after, err := json.Marshal(desired)
	if err != nil {
		return nil, fmt.Errorf("encode the desired child: %w", err)
	}
	operations, err := createPatch(before, after)
	if err != nil {
		return nil, err
	}
	sameVersion := jsonpatch.NewOperation("test", "/metadata/resourceVersion", live.GetResourceVersion())
	return json.Marshal(slices.Insert(operations, 0, sameVersion))
}

// Overridden returns the record of a difference that the operator accepts.
func (d Difference) Overridden(kind string) *echov1.OverriddenChild {
	record := &echov1.OverriddenChild{Kind: kind, Hash: d.Hash}
	for _, field := range d.Fields[:min(len(d.Fields), maxFields)] {
		record.Fields = append(record.Fields, strings.ToValidUTF8(field[:min(len(field), maxFieldLength)], ""))
	}
	return record
}

var pointerDecoder = strings.NewReplacer("~1", "/", "~0", "~")

// fieldName formats a JSON pointer (RFC 6901) into a document as Kubernetes formats a field, for
// example "spec.containers[echo].image". An item of a list that has a name is named by it.
func fieldName(document any, pointer string) string {
	var name strings.Builder
	for part := range strings.SplitSeq(strings.TrimPrefix(pointer, "/"), "/") {
		part = pointerDecoder.Replace(part)
		switch value := document.(type) {
		case []any:
			document = nil
			if i, err := strconv.Atoi(part); err == nil && i < len(value) {
				document = value[i]
				if item, is := value[i].(map[string]any); is && item["name"] != nil {
					part = fmt.Sprint(item["name"])
				}
			}
			name.WriteString("[" + part + "]")
			continue
		case map[string]any:
			document = value[part]
		default:
			document = nil
		}
		switch {
		case strings.ContainsAny(part, "./"):
			name.WriteString("[" + part + "]")
		case name.Len() == 0:
			name.WriteString(part)
		default:
			name.WriteString("." + part)
		}
	}
	return name.String()
}
