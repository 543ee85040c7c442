package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/children"
	"github.com/kkloud-io/echo-operator/internal/testing/controlplane"
)

// history is everything that happened in a namespace, as the API server tells it.
type history struct {
	cancel  context.CancelFunc
	watches sync.WaitGroup
	// watching is how many of them the API server serves now.
	watching atomic.Int64
	// viewLags is set where the operator may see a change of another writer late: its view is
	// frozen, or events are lost on the way.
	viewLags bool

	mu sync.Mutex
	// uids are those of the children of each name; owners tells whose they are.
	uids   map[string]sets.Set[types.UID]
	owners map[types.UID]types.UID
	// ended are the objects that were deleted.
	ended sets.Set[types.UID]
	// frozen are the versions at which the operator's view of Echoes stood still.
	frozen      []uint64
	deployments map[string][]seen[*appsv1.Deployment]
	echoes      []seen[*echov1.Echo]
	// newest is the last version of a Deployment that was seen; missed are those between two
	// watches.
	newest uint64
	missed []span
}

// seen is one version of an object.
type seen[T any] struct {
	object  T
	version uint64
	when    time.Time
}

// span is the versions after one, up to another.
type span struct{ after, to uint64 }

// recordHistory begins with an empty namespace.
func recordHistory(ctx context.Context, c client.WithWatch, namespace string) (*history, error) {
	ctx, cancel := context.WithCancel(ctx)
	h := &history{cancel: cancel, uids: map[string]sets.Set[types.UID]{}, owners: map[types.UID]types.UID{},
		ended: sets.Set[types.UID]{}, deployments: map[string][]seen[*appsv1.Deployment]{}}
	for _, list := range kinds() {
		w, err := h.watch(ctx, c, list, namespace)
		if err != nil {
			cancel()
			return nil, err
		}
		h.watches.Go(func() {
			for err == nil {
				for event := range w.ResultChan() {
					if object, ok := event.Object.(client.Object); ok && event.Type == watch.Deleted {
						h.end(object)
					} else if ok {
						h.add(object)
					}
				}
				h.watching.Add(-1)
				err = wait.PollUntilContextCancel(ctx, poll, true, func(ctx context.Context) (bool, error) {
					var failed error
					w, failed = h.watch(ctx, c, list, namespace)
					return failed == nil, nil
				})
			}
		})
	}
	return h, nil
}

// watch adds what is there, and watches from then on. An API server that came back does not
// tell what was before, so a watch that ended cannot go on where it was.
func (h *history) watch(ctx context.Context, c client.WithWatch, empty client.ObjectList, namespace string) (watch.Interface, error) {
	list := empty.DeepCopyObject().(client.ObjectList)
	if err := c.List(ctx, list, client.InNamespace(namespace)); err != nil {
		return nil, err
	}
	version, err := strconv.ParseUint(list.GetResourceVersion(), 10, 64)
	if err != nil {
		return nil, err
	}
	if _, ok := list.(*appsv1.DeploymentList); ok {
		h.missTo(version)
	}
	for _, object := range items(list) {
		h.add(object)
	}
	options := &metav1.ListOptions{ResourceVersion: list.GetResourceVersion()}
	w, err := c.Watch(ctx, list, &client.ListOptions{Namespace: namespace, Raw: options})
	if err == nil {
		h.watching.Add(1)
	}
	return w, err
}

// isRecorded checks that what happens now is seen.
func (h *history) isRecorded(context.Context) error {
	if n := h.watching.Load(); n < int64(len(kinds())) {
		return fmt.Errorf("there are %d watches", n)
	}
	return nil
}

func (h *history) stop() {
	h.cancel()
	h.watches.Wait()
}

// missTo notes that the Deployments' versions up to this one may not have been seen.
func (h *history) missTo(version uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.missed = append(h.missed, span{h.newest, version})
	h.newest = max(h.newest, version)
}

func (h *history) hasMissed(version uint64) bool {
	return slices.ContainsFunc(h.missed, func(s span) bool { return s.after < version && version <= s.to })
}

func (h *history) add(object client.Object) {
	version, err := strconv.ParseUint(object.GetResourceVersion(), 10, 64)
	if err != nil {
		return // The end of the watch.
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	switch o := object.(type) {
	case *echov1.Echo:
		h.echoes = append(h.echoes, seen[*echov1.Echo]{o, version, time.Now()})
		return
	case *appsv1.Deployment:
		h.newest = max(h.newest, version)
		h.deployments[o.Name] = append(h.deployments[o.Name], seen[*appsv1.Deployment]{o, version, time.Now()})
	}
	name := kindOf(object) + " " + object.GetName()
	if h.uids[name] == nil {
		h.uids[name] = sets.Set[types.UID]{}
	}
	h.uids[name].Insert(object.GetUID())
	if owner := metav1.GetControllerOf(object); owner != nil {
		h.owners[object.GetUID()] = owner.UID
	}
}

func (h *history) end(object client.Object) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ended.Insert(object.GetUID())
}

// freeze notes that the operator sees Echoes as they were in this version.
func (h *history) freeze(version string) error {
	frozen, err := strconv.ParseUint(version, 10, 64)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.frozen = append(h.frozen, frozen)
	return err
}

// couldNotKnow tells whether the Echo is gone, and the operator may never have seen that it had a
// status.
func (h *history) couldNotKnow(uid types.UID) bool {
	var created, described uint64 // The versions in which it first was there, and first had a status.
	for _, echo := range h.echoes {
		if echo.object.UID != uid {
			continue
		}
		if created == 0 {
			created = echo.version
		}
		if described == 0 && echo.object.Status.ObservedGeneration > 0 {
			described = echo.version
		}
	}
	return h.ended.Has(uid) && (described == 0 ||
		slices.ContainsFunc(h.frozen, func(version uint64) bool { return created <= version && version < described }))
}

// checkUIDs finds children that were made anew without need. Those of an Echo that went before
// the operator saw its first status do not count: an operator whose view lags cannot know that
// they were there, and makes them until it sees the end of their Echo.
func (h *history) checkUIDs(expected map[string]int) (findings []error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for name, uids := range h.uids {
		made := 0
		for uid := range uids {
			if owner, owned := h.owners[uid]; !owned || !h.couldNotKnow(owner) {
				made++
			}
		}
		if made > expected[name] && expected[name] > 0 {
			findings = append(findings, fmt.Errorf("%s was made %d times, the operations ask for %d", name, made, expected[name]))
		}
	}
	return findings
}

// lag is how long a Deployment may have been otherwise when the status was written: what
// another writer did in between is not the operator's lie.
const lag = time.Second

// checkReady finds statuses that said Ready of a spec that was not rolled out.
func (h *history) checkReady() (findings []error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, echo := range h.echoes {
		status := echo.object.Status
		if !meta.IsStatusConditionTrue(status.Conditions, echov1.ConditionReady) || status.ObservedGeneration != echo.object.Generation {
			continue
		}
		if !h.wasRolledOut(echo) && !h.hasMissed(echo.version) {
			findings = append(findings, fmt.Errorf("the status of Echo %s said Ready of generation %d, version %d, which was not rolled out",
				echo.object.Name, echo.object.Generation, echo.version))
		}
	}
	return findings
}

func (h *history) wasRolledOut(echo seen[*echov1.Echo]) bool {
	versions := h.deployments[children.Name(echo.object)]
	for i, d := range versions {
		replaced := !h.viewLags && i+1 < len(versions) && versions[i+1].version < echo.version && echo.when.Sub(versions[i+1].when) > lag
		if d.version < echo.version && !replaced && isRolledOut(d.object, echo.object) {
			return true
		}
	}
	return false
}

func isRolledOut(d *appsv1.Deployment, echo *echov1.Echo) bool {
	return hasShape(d, echo) && d.Status.ObservedGeneration >= d.Generation &&
		d.Status.UpdatedReplicas >= echo.Spec.Replicas && d.Status.AvailableReplicas >= echo.Spec.Replicas &&
		d.Status.Replicas == d.Status.UpdatedReplicas
}

func hasShape(d *appsv1.Deployment, echo *echov1.Echo) bool {
	shaped := d.DeepCopy()
	children.Deployment(shaped, echo, controlplane.ServerImage)
	return equality.Semantic.DeepEqual(shaped, d)
}

// checkOrder finds Deployments that went back to an earlier spec after a newer one.
func (h *history) checkOrder() (findings []error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for name, versions := range h.deployments {
		newest, uid := int64(0), types.UID("")
		for _, d := range versions {
			if uid != d.object.UID {
				newest, uid = 0, d.object.UID
			}
			generation := h.generationOf(d)
			if generation > 0 && generation < newest {
				findings = append(findings, fmt.Errorf("the Deployment %s went back from generation %d of its Echo to %d (version %d)",
					name, newest, generation, d.version))
			}
			newest = max(newest, generation)
		}
	}
	return findings
}

// generationOf returns the newest generation of its Echo that the Deployment can stem from, or
// 0 if there is none.
func (h *history) generationOf(d seen[*appsv1.Deployment]) (generation int64) {
	for _, echo := range h.echoes {
		if echo.version < d.version && echo.object.Generation > generation &&
			metav1.IsControlledBy(d.object, echo.object) && hasMessage(d.object, echo.object) {
			generation = echo.object.Generation
		}
	}
	return generation
}

// hasMessage tells whether the Deployment's server says what the Echo says.
func hasMessage(d *appsv1.Deployment, echo *echov1.Echo) bool {
	shaped := d.DeepCopy()
	children.Deployment(shaped, echo, controlplane.ServerImage)
	container, wanted := d.Spec.Template.Spec.Containers[0], shaped.Spec.Template.Spec.Containers[0]
	return equality.Semantic.DeepEqual(container.Args, wanted.Args) && equality.Semantic.DeepEqual(container.Env, wanted.Env)
}
