// Mutant: writes without a resource version
// Guarantee: 5
// Suite: stale reads
// Package: internal/children

package children

import (
	"encoding/json"

	"gomodules.xyz/jsonpatch/v2"
)

func LockedPatch(live, desired Object) ([]byte, error) {
	before, after, err := encodeBoth(live, desired)
	if err != nil {
		return nil, err
	}
	operations, err := jsonpatch.CreatePatch(before, after)
	if err != nil {
		return nil, err
	}
	return json.Marshal(operations)
}
