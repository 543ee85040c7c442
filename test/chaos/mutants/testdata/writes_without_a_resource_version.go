// Mutant: writes without a resource version
// Guarantee: 5
// Suite: stale reads
// Package: internal/children

package children

import "encoding/json"

func LockedPatch(live, desired Object) ([]byte, error) {
	patch, err := originalLockedPatch(live, desired)
	if err != nil {
		return nil, err
	}
	var operations []json.RawMessage
	if err := json.Unmarshal(patch, &operations); err != nil {
		return nil, err
	}
	return json.Marshal(operations[1:])
}
