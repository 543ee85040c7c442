package controller

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"gomodules.xyz/jsonpatch/v2"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/children"
)

// maxFields is the maximum number of fields in the record of an overridden child.
const maxFields = 16

// maxFieldLength is the maximum length of a field in that record, in bytes.
const maxFieldLength = 253

// changes are the differences between a live child and its desired state.
type changes struct {
	// fields that differ, sorted.
	fields []string
	// answer has those of the fields that determine the answer to a client.
	answer []string
	// hash identifies the fields with their live and their desired values.
	hash string
}

// compare returns how a live child differs from its desired state.
func compare(c children.Kind, live, desired client.Object) (changes, error) {
	before, after, err := encodeBoth(live, desired)
	if err != nil {
		return changes{}, err
	}
	liveDocument, before, err := withMetadata(before)
	if err != nil {
		return changes{}, err
	}
	desiredDocument, after, err := withMetadata(after)
	if err != nil {
		return changes{}, err
	}
	patch, err := jsonpatch.CreatePatch(before, after)
	if err != nil {
		return changes{}, fmt.Errorf("compare %s with its desired state: %w", c.Name, err)
	}
	reverse, err := jsonpatch.CreatePatch(after, before)
	if err != nil {
		return changes{}, fmt.Errorf("compare %s with its desired state: %w", c.Name, err)
	}
	var found changes
	var values []string
	for _, operation := range patch {
		// Admission may have renamed the item of a list, so its desired name counts.
		document := desiredDocument
		if operation.Operation == "remove" {
			document = liveDocument
		}
		field := fieldName(document, operation.Path)
		found.fields = append(found.fields, field)
		if c.DeterminesAnswer(field) {
			found.answer = append(found.answer, field)
		}
		values = append(values, "desired "+operation.Json())
	}
	for _, operation := range reverse {
		values = append(values, "live "+operation.Json())
	}
	slices.Sort(found.fields)
	found.fields = slices.Compact(found.fields)
	slices.Sort(found.answer)
	slices.Sort(values)
	sum := sha256.Sum256([]byte(strings.Join(values, "\n")))
	found.hash = hex.EncodeToString(sum[:8])
	return found, nil
}

// withMetadata returns an object with empty labels and annotations if it has none. So the difference of
// one annotation is the same whether or not another client adds one, as the Deployment controller does
// after each write that removes its revision.
func withMetadata(encoded []byte) (document any, normalized []byte, err error) {
	object := map[string]any{}
	if err := json.Unmarshal(encoded, &object); err != nil {
		return nil, nil, err
	}
	if metadata, is := object["metadata"].(map[string]any); is {
		for _, field := range []string{"labels", "annotations"} {
			if metadata[field] == nil {
				metadata[field] = map[string]any{}
			}
		}
	}
	normalized, err = json.Marshal(object)
	return object, normalized, err
}

func encodeBoth(live, desired client.Object) (before, after []byte, err error) {
	if before, err = json.Marshal(live); err != nil {
		return nil, nil, fmt.Errorf("encode the live child: %w", err)
	}
	if after, err = json.Marshal(desired); err != nil {
		return nil, nil, fmt.Errorf("encode the desired child: %w", err)
	}
	return before, after, nil
}

// lockedPatch returns a JSON patch (RFC 6902) that turns the live child into the desired one, and
// leaves fields alone that this client does not know. The API server rejects it as invalid, before
// admission and without any change, if the child is not in the version that was read.
func lockedPatch(live, desired client.Object) (client.Patch, error) {
	before, after, err := encodeBoth(live, desired)
	if err != nil {
		return nil, err
	}
	operations, err := jsonpatch.CreatePatch(before, after)
	if err != nil {
		return nil, fmt.Errorf("compare the child with its desired state: %w", err)
	}
	sameVersion := jsonpatch.NewOperation("test", "/metadata/resourceVersion", live.GetResourceVersion())
	patch, err := json.Marshal(slices.Insert(operations, 0, sameVersion))
	return client.RawPatch(types.JSONPatchType, patch), err
}

// overridden returns the record of changes that the operator accepts.
func (c changes) overridden(kind string) *echov1.OverriddenChild {
	record := &echov1.OverriddenChild{Kind: kind, Hash: c.hash}
	for _, field := range c.fields[:min(len(c.fields), maxFields)] {
		record.Fields = append(record.Fields, strings.ToValidUTF8(field[:min(len(field), maxFieldLength)], ""))
	}
	return record
}

// accepted returns the record of accepted changes of a child in the Echo's status, or nil.
func accepted(echo *echov1.Echo, kind string) *echov1.OverriddenChild {
	for i := range echo.Status.Overridden {
		if record := &echo.Status.Overridden[i]; record.Kind == kind {
			return record
		}
	}
	return nil
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
