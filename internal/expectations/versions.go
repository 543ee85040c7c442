// Package expectations keeps a controller from acting on a cache that lags behind its own writes.
package expectations

import (
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// absence is how long the cache may lack a written object. After it, the object may have been deleted while the watch
	// was interrupted.
	absence = time.Second
	// maxLag is how long the cache may have an older version of a written object: an object never returns to one.
	maxLag = 10 * time.Minute
)

// Versions holds the versions of recently written objects. The zero value is empty.
type Versions struct {
	mu      sync.Mutex
	written map[object]write
	swept   time.Time
}

type object struct {
	kind string
	types.NamespacedName
}

type write struct {
	version string
	at      time.Time
}

// Record records the version that a write returned.
func (v *Versions) Record(kind string, written client.Object) {
	v.mu.Lock()
	defer v.mu.Unlock()
	now := time.Now()
	if v.written == nil {
		v.written = map[object]write{}
	}
	if now.Sub(v.swept) > maxLag {
		v.swept = now
		maps.DeleteFunc(v.written, func(_ object, w write) bool { return now.Sub(w.at) > maxLag })
	}
	v.written[object{kind, client.ObjectKeyFromObject(written)}] = write{version: written.GetResourceVersion(), at: now}
}

// IsStale reports whether the cache lacks a recent write of an object, and otherwise forgets that write. cached is nil if
// the cache has no such object.
func (v *Versions) IsStale(kind string, name types.NamespacedName, cached client.Object) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	key := object{kind, name}
	w, found := v.written[key]
	if !found {
		return false
	}
	limit, lacks := absence, true
	if cached != nil {
		limit, lacks = maxLag, isOlder(cached.GetResourceVersion(), w.version)
	}
	if !lacks || time.Since(w.at) > limit {
		delete(v.written, key)
		return false
	}
	return true
}

// isOlder reports whether a version is known to be older than another one of the same object.
func isOlder(version, than string) bool {
	order, err := resourceversion.CompareResourceVersion(version, than)
	return err == nil && order < 0
}
