package oracle

import (
	"slices"
	"strconv"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/test/chaos/kinds"
)

// History is every version of the objects in a namespace, as watches delivered them. Its methods
// may be called concurrently.
type History struct {
	mu sync.Mutex
	// viewMayLag is true if the operator may see a change of an external writer late.
	viewMayLag bool
	// uids holds the UIDs of all children of a kind and name, owners the UID of their Echo.
	uids    map[string]sets.Set[types.UID]
	owners  map[types.UID]types.UID
	deleted sets.Set[types.UID]
	// staleEchoes are the resource versions at which Echoes were served stale.
	staleEchoes []uint64
	echoes      []version[*echov1.Echo]
	deployments map[string][]version[*appsv1.Deployment]
	// newest is the newest recorded resource version of a Deployment. Gaps are the versions
	// between two watches, which were not recorded.
	newest uint64
	gaps   []span
}

// version is one version of an object.
type version[T any] struct {
	object T
	number uint64
	when   time.Time
}

// span is the resource versions after one, up to and including another.
type span struct{ after, to uint64 }

// NewHistory returns the history of an empty namespace.
func NewHistory() *History {
	return &History{
		uids: map[string]sets.Set[types.UID]{}, owners: map[types.UID]types.UID{}, deleted: sets.Set[types.UID]{},
		deployments: map[string][]version[*appsv1.Deployment]{},
	}
}

// AllowLag states that the operator may see a change of an external writer late, because it is
// served stale reads or because events are dropped.
func (h *History) AllowLag() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.viewMayLag = true
}

// ServeStale states that the operator is served Echoes as they were at the resource version.
func (h *History) ServeStale(resourceVersion string) error {
	number, err := strconv.ParseUint(resourceVersion, 10, 64)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.staleEchoes = append(h.staleEchoes, number)
	return err
}

// Gap states that versions of Deployments up to this one may be missing from the history.
func (h *History) Gap(resourceVersion uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.gaps = append(h.gaps, span{h.newest, resourceVersion})
	h.newest = max(h.newest, resourceVersion)
}

// Add records a version of an object. It ignores objects without a resource version.
func (h *History) Add(object client.Object, when time.Time) {
	number, err := strconv.ParseUint(object.GetResourceVersion(), 10, 64)
	if err != nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	switch o := object.(type) {
	case *echov1.Echo:
		h.echoes = append(h.echoes, version[*echov1.Echo]{o, number, when})
		return
	case *appsv1.Deployment:
		h.newest = max(h.newest, number)
		h.deployments[o.Name] = append(h.deployments[o.Name], version[*appsv1.Deployment]{o, number, when})
	}
	name := childKey(kinds.Of(object), object.GetName())
	if h.uids[name] == nil {
		h.uids[name] = sets.Set[types.UID]{}
	}
	h.uids[name].Insert(object.GetUID())
	if owner := metav1.GetControllerOf(object); owner != nil {
		h.owners[object.GetUID()] = owner.UID
	}
}

// Delete records that an object was deleted.
func (h *History) Delete(object client.Object) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.deleted.Insert(object.GetUID())
}

// inGap reports whether versions up to this one may be missing.
func (h *History) inGap(number uint64) bool {
	return slices.ContainsFunc(h.gaps, func(s span) bool { return s.after < number && number <= s.to })
}

// statusNeverObserved reports whether the Echo was deleted and the operator may never have
// observed that it had a status.
func (h *History) statusNeverObserved(uid types.UID) bool {
	var created, observed uint64 // The versions of its creation and of its first status.
	for _, echo := range h.echoes {
		if echo.object.UID != uid {
			continue
		}
		if created == 0 {
			created = echo.number
		}
		if observed == 0 && echo.object.Status.ObservedGeneration > 0 {
			observed = echo.number
		}
	}
	return h.deleted.Has(uid) && (observed == 0 ||
		slices.ContainsFunc(h.staleEchoes, func(stale uint64) bool { return created <= stale && stale < observed }))
}

func childKey(kind, name string) string { return kind + " " + name }
