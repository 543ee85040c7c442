package oracle

import (
	"net/http"
	"slices"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kkloud-io/echo-operator/test/chaos/proxy"
)

// After a write without lasting effect, the operator waits before it writes the object again: so
// long at first, twice as long each time, and never longer than the maximum.
const (
	minPace = time.Second
	maxPace = 30 * time.Second
	// unpacedWrites is how many writes the operator may make in addition: the first one, and one
	// that replaces a write based on a stale snapshot.
	unpacedWrites = 2
)

// PaceBound returns how many writes of one object the operator may make in a duration while its
// writes have no lasting effect.
func PaceBound(d time.Duration) int {
	writes, due := unpacedWrites, time.Duration(0)
	for wait := minPace; due <= d; wait = min(2*wait, maxPace) {
		writes++
		due += wait
	}
	return writes
}

// CheckPace checks that the writes of one object in a duration do not exceed PaceBound.
func CheckPace(what string, writes int, d time.Duration) error {
	return CheckCount(what, writes, 0, PaceBound(d), d.Round(time.Second))
}

// Effective returns the writes that were not based on a stale snapshot. The API server rejects a
// stale patch as unprocessable and any other stale write with a conflict, so it changes nothing.
func Effective(writes []proxy.Write) []proxy.Write {
	return slices.DeleteFunc(slices.Clone(writes), func(w proxy.Write) bool {
		return w.Code == http.StatusConflict || w.Code == http.StatusUnprocessableEntity
	})
}

// WritesOf returns the writes of one object, or of its status.
func WritesOf(writes []proxy.Write, resource string, object client.ObjectKey) (found []proxy.Write) {
	for _, write := range writes {
		// The request that creates an object does not name it.
		named := write.Name == object.Name || write.Name == "" && write.Verb == "create"
		if write.Resource == resource && write.Namespace == object.Namespace && named {
			found = append(found, write)
		}
	}
	return found
}
