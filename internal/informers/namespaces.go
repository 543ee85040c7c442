package informers

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kkloud-io/echo-operator/internal/status"
)

const (
	// updatePeriod is how often Namespaces checks its informers.
	updatePeriod = time.Second

	// maxFailure is the maximum number of characters of the API server's message in the log.
	maxFailure = 256
)

// Namespaces are the namespaces that an operator watches. The cache of controller-runtime is synced only if it is in
// every namespace, so one that was deleted, or in which permissions are missing, would stop the operator in all.
// With Namespaces, the manager waits only for the namespaces that the API server lets it read. A request of another
// namespace is held until that is synced, and the log and Served say which namespaces are served.
type Namespaces struct {
	watched []string

	mu     sync.Mutex
	states map[string]*namespaceState
}

// namespaceState is the state of a namespace, or of all in an operator that watches all.
type namespaceState struct {
	informers []*informer
	// isReleased is true once the manager does not wait for the informers of the namespace.
	isReleased bool
	// held are the requests that wait until the informers are synced.
	held sets.Set[reconcile.Request]
	// logged is the failure that the log reported last. It is empty if the namespace is served.
	logged loggedFailure
}

// loggedFailure is what of a failure does not change from one attempt to the next.
type loggedFailure struct {
	kind   string
	reason metav1.StatusReason
}

// NewNamespaces returns the namespaces to watch. None means all.
func NewNamespaces(watched []string) *Namespaces {
	n := &Namespaces{watched: watched, states: map[string]*namespaceState{}}
	for _, namespace := range n.names() {
		n.states[namespace] = &namespaceState{held: sets.Set[reconcile.Request]{}}
	}
	return n
}

// names returns the keys of the states.
func (n *Namespaces) names() []string {
	if len(n.watched) == 0 {
		return []string{metav1.NamespaceAll}
	}
	return n.watched
}

// own has the informer belong to a namespace.
func (n *Namespaces) own(i *informer) {
	i.register, i.isSkipped = n.add, n.isReleased
	failed := func(ctx context.Context, reflector *toolscache.Reflector, err error) {
		if n.logChanges(); !n.isLogged(i.namespace) {
			toolscache.DefaultWatchErrorHandler(ctx, reflector, err)
		}
	}
	_ = i.SetWatchErrorHandlerWithContext(failed) // It fails only for an informer that runs.
}

func (n *Namespaces) add(i *informer) {
	n.mu.Lock()
	defer n.mu.Unlock()
	state := n.states[i.namespace]
	state.informers = append(state.informers, i)
}

// isSynced reports whether the namespace can be read completely.
func (s *namespaceState) isSynced() bool {
	isUnsynced := func(i *informer) bool { return !i.isSynced() }
	return len(s.informers) > 0 && !slices.ContainsFunc(s.informers, isUnsynced)
}

// failure returns why the namespace cannot be read, if that is known, and the kind that cannot. There may be several.
// It returns the one that was logged, as long as that lasts.
func (s *namespaceState) failure() (kind string, err error) {
	for _, i := range s.informers {
		failure := i.failure()
		if isNewer := err != nil && i.kind != s.logged.kind; failure == nil || isNewer {
			continue
		}
		kind, err = i.kind, failure
	}
	return kind, err
}

// isReleased reports whether nothing waits for the informer, because its namespace cannot be read and another one can.
// It remains true, because callers of HasSynced expect that.
func (n *Namespaces) isReleased(i *informer) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	state, found := n.states[i.namespace]
	if !found {
		return false
	}
	if _, err := state.failure(); err != nil && n.anyIsSynced() {
		state.isReleased = true
	}
	return state.isReleased
}

func (n *Namespaces) anyIsSynced() bool {
	for _, state := range n.states {
		if state.isSynced() {
			return true
		}
	}
	return false
}

// Hold reports whether a reconciliation of the request would read an incomplete cache. If so, the request is enqueued
// when the informers of its namespace are synced.
func (n *Namespaces) Hold(request reconcile.Request) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	state, found := ofNamespace(n.states, request.Namespace)
	if !found || state.isSynced() {
		return false
	}
	state.held.Insert(request)
	return true
}

// Unsynced returns the namespaces for which the manager waits.
func (n *Namespaces) Unsynced() (namespaces []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, namespace := range n.names() {
		if state := n.states[namespace]; !state.isSynced() && !state.isReleased {
			namespaces = append(namespaces, cmp.Or(namespace, "all namespaces"))
		}
	}
	return namespaces
}

// Served returns for each watched namespace whether the cache is complete and up to date. It is empty for an operator
// that watches all.
func (n *Namespaces) Served() map[string]bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	served := map[string]bool{}
	for _, namespace := range n.watched {
		_, err := n.states[namespace].failure()
		served[namespace] = err == nil && n.states[namespace].isSynced()
	}
	return served
}

// Start implements source.Source. The source enqueues the requests that were held.
func (n *Namespaces) Start(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	go func() {
		ticker := time.NewTicker(updatePeriod)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
				n.logChanges()
				for _, request := range n.release() {
					queue.Add(request)
				}
			}
		}
	}()
	return nil
}

// release returns the requests whose namespace is now synced.
func (n *Namespaces) release() (requests []reconcile.Request) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, state := range n.states {
		if len(state.held) > 0 && state.isSynced() {
			requests = append(requests, state.held.UnsortedList()...)
			state.held = sets.Set[reconcile.Request]{}
		}
	}
	return requests
}

// logChanges logs each namespace that is served again or no longer, once.
func (n *Namespaces) logChanges() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for namespace, state := range n.states {
		kind, err := state.failure()
		failure := loggedFailure{kind, apierrors.ReasonForError(err)}
		isUnknown := err == nil && !state.isSynced()
		if isUnknown || failure == state.logged {
			continue
		}
		state.logged = failure
		if err == nil {
			log.Log.Info("The namespace was read again", "namespace", namespace)
			continue
		}
		log.Log.Info("Reading the namespace failed; retrying", "namespace", namespace, "kind", kind,
			"error", status.Truncate(err.Error(), maxFailure))
	}
}

// isLogged reports whether the log says that the namespace cannot be read, so that it need not contain each attempt.
func (n *Namespaces) isLogged(namespace string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	state, found := n.states[namespace]
	return found && state.logged.kind != ""
}
