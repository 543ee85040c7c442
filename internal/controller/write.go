package controller

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/backoff"
	"github.com/kkloud-io/echo-operator/internal/children"
)

// lookAgainAfter is when to look for a child that was created: no event comes for one that lost the operator's label,
// or that was deleted while the watch was interrupted.
const lookAgainAfter = 1500 * time.Millisecond

// recreation is the correction that creates a child that was deleted.
const recreation = "recreation"

// create creates the child, or reconciles it if it exists.
func (c *child) create(ctx context.Context) error {
	correction := ""
	if mayBeRecreation := c.echo.Status.ObservedGeneration > 0 || c.memory.lacksStatus(); mayBeRecreation {
		correction = recreation
	}
	if c.mustWait(correction) {
		return nil
	}
	object := client.Object(c.kind.New())
	object.SetNamespace(c.echo.Namespace)
	object.SetName(c.kind.ChildName(c.echo))
	c.kind.Mutate(object, c.echo, c.inputs)
	children.SetEchoGeneration(object, c.echo.Generation)
	start := time.Now()
	if err := c.Client.Create(ctx, object); err != nil {
		took := time.Since(start)
		existing, readErr := c.readLive(ctx) // Admission may reject the creation of an object that exists.
		switch {
		case readErr != nil:
			return readErr
		case existing != nil:
			return c.reconcileLive(ctx, existing)
		default:
			return c.reject(err, took)
		}
	}
	c.versions.Record(c.kind.ObjectKind, object)
	c.requeue(lookAgainAfter)
	log.FromContext(ctx).Info("Created "+c.kind.Name, "child", object.GetName())
	isRepair := c.previouslyReconciled() && !meta.IsStatusConditionTrue(c.echo.Status.Conditions, echov1.ConditionDegraded)
	if isRepair {
		c.Metrics.Corrections.WithLabelValues(c.kind.Name).Inc()
	}
	c.afterWrite(object, correction)
	return nil
}

// accepted returns the record of accepted changes of the child in the Echo's status, or nil.
func (c *child) accepted() *echov1.OverriddenChild {
	for i := range c.echo.Status.Overridden {
		if record := &c.echo.Status.Overridden[i]; record.Kind == c.kind.Name {
			return record
		}
	}
	return nil
}

// update writes the child if it differs from its desired state, unless the operator has accepted the difference, or
// has to wait.
func (c *child) update(ctx context.Context, live client.Object) error {
	c.object = live
	desired, changed := children.Desired(c.kind, live, c.echo, c.inputs)
	if !changed {
		return nil
	}
	c.overridden = c.accepted()
	isAcceptedNow := c.overridden != nil && c.echo.Status.ObservedGeneration == c.echo.Generation
	// The HTTPRoutes or pods have changed on which the children depend.
	isFollowing := c.followed != c.memory.followed
	// Other clients have changed the child since the operator wrote it for this generation of the Echo.
	isDrift := isAcceptedNow || children.EchoGeneration(live) == c.echo.Generation && !isFollowing
	correction := ""
	if isDrift {
		drift := children.Compare(c.kind, live, desired)
		if isAcceptedNow && c.overridden.Hash == drift.Hash {
			return nil
		}
		correction = drift.Description()
	}
	if c.mustWait(correction) {
		mayServeAnotherResponse := correction != "" && !c.kind.Conditional
		if c.failure == nil && mayServeAnotherResponse {
			c.waiting = c.kind.Name + ": the operator pauses before it reverts an external change of " + correction
		}
		return nil
	}
	if err := c.checkNotNewer(ctx, live); err != nil {
		return err
	}
	return c.patch(ctx, live, desired, isDrift, correction)
}

// patch writes the difference between the live child and its desired state, based on the version that was read.
func (c *child) patch(ctx context.Context, live, desired client.Object, isDrift bool, correction string) error {
	children.SetEchoGeneration(desired, c.echo.Generation)
	patch, err := children.LockedPatch(live, desired)
	if err != nil {
		return err
	}
	if remembered := c.memory.children[c.kind.Name]; isDrift && remembered != nil && remembered.corrections[correction] != (backoff.Pause{}) {
		remembered.writer = c.lastWriter(ctx)
	}
	object := live.DeepCopyObject().(client.Object)
	start := time.Now()
	if err := c.Client.Patch(ctx, object, client.RawPatch(types.JSONPatchType, patch)); err != nil {
		return c.rejectUpdate(ctx, live, err, time.Since(start))
	}
	c.versions.Record(c.kind.ObjectKind, object)
	log.FromContext(ctx).Info("Updated "+c.kind.Name, "child", live.GetName())
	if isDrift {
		c.Metrics.Corrections.WithLabelValues(c.kind.Name).Inc()
	} else if service, is := object.(*corev1.Service); is && children.ConcernsNodes(live.(*corev1.Service), service) {
		c.memory.serviceChanged = time.Now()
	}
	c.afterWrite(object, correction)
	return nil
}

// lastWriter returns the field manager that changed the child last, or an empty text. The cache lacks field managers.
func (c *child) lastWriter(ctx context.Context) (manager string) {
	live, err := c.readLive(ctx)
	if err != nil || live == nil {
		return ""
	}
	var last metav1.Time
	for _, entry := range live.GetManagedFields() {
		// Times are in seconds. The other writer may revert a correction within one.
		isOurs := entry.Manager == children.ManagedBy && entry.Time.Equal(&last)
		if entry.Subresource == "" && entry.Time != nil && !entry.Time.Before(&last) && !isOurs {
			manager, last = entry.Manager, *entry.Time
		}
	}
	return manager
}

// afterWrite compares the object that a write returned with its desired state. Admission would change
// it again, so an immediate retry has no effect. A correction names the drift that was reverted.
func (c *child) afterWrite(object client.Object, correction string) {
	c.object, c.overridden = object, nil
	if desired, changed := children.Desired(c.kind, object, c.echo, c.inputs); changed {
		difference := children.Compare(c.kind, object, desired)
		if len(difference.ResponseFields) > 0 {
			c.fail(echov1.ReasonRejected, fmt.Sprintf(
				"an admission policy or webhook changed %s, which determines the response", strings.Join(difference.ResponseFields, ", ")))
			return
		}
		c.overridden = difference.Overridden(c.kind.Name)
	}
	c.memory.recordSuccess(c.kind, correction)
}

// remove deletes a child that is not wanted, in the version that was read.
func (c *child) remove(ctx context.Context, live client.Object) error {
	if c.mustWait("") {
		return nil
	}
	if err := c.checkNotNewer(ctx, live); err != nil {
		return err
	}
	uid, version := live.GetUID(), live.GetResourceVersion()
	start := time.Now()
	if err := c.Client.Delete(ctx, live, client.Preconditions{UID: &uid, ResourceVersion: &version}); err != nil {
		return c.rejectUpdate(ctx, live, err, time.Since(start))
	}
	log.FromContext(ctx).Info("Deleted "+c.kind.Name, "child", live.GetName())
	if c.kind.OptionalAPI {
		c.memory.routeDeleted = time.Now()
	}
	return nil
}

// checkNewest reads the Echo from the API server, and returns errStaleEcho if the cached Echo is
// out of date. It is called only if a child indicates that.
func (rec *reconciliation) checkNewest(ctx context.Context) error {
	var newest echov1.Echo
	if err := rec.APIReader.Get(ctx, client.ObjectKeyFromObject(rec.echo), &newest); client.IgnoreNotFound(err) != nil {
		return err
	}
	// One that was not found has no UID.
	isNewest := newest.UID == rec.echo.UID && newest.Generation == rec.echo.Generation && newest.DeletionTimestamp == nil
	if !isNewest {
		return errStaleEcho
	}
	return nil
}

// checkNotNewer returns an error if the child was already written for a newer generation than
// that of the cached Echo: a write would revert the child. Other clients can change the
// annotation, so checkNewest decides.
func (rec *reconciliation) checkNotNewer(ctx context.Context, live client.Object) error {
	if children.EchoGeneration(live) <= rec.echo.Generation {
		return nil
	}
	return rec.checkNewest(ctx)
}
