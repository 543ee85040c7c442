// Mutant: writes without a resource version
// Guarantee: 5
// Suite: stale reads
// Package: internal/controller

package controller

import (
	"encoding/json"

	"gomodules.xyz/jsonpatch/v2"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func lockedPatch(live, desired client.Object) (client.Patch, error) {
	before, after, err := encodeBoth(live, desired)
	if err != nil {
		return nil, err
	}
	operations, err := jsonpatch.CreatePatch(before, after)
	if err != nil {
		return nil, err
	}
	patch, err := json.Marshal(operations)
	return client.RawPatch(types.JSONPatchType, patch), err
}
