package controller

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/backoff"
	"github.com/kkloud-io/echo-operator/internal/children"
	"github.com/kkloud-io/echo-operator/internal/status"
)

const (
	// maxTransient is how many errors that may disappear by themselves are retried without a
	// report in the status.
	maxTransient = 3

	// slowFailure is the duration of a failed write after which the status reports the failure at
	// once, before the other children are written.
	slowFailure = 5 * time.Second
)

// reject reports a failed write. It returns an error if the API server did
// not respond, or if the failure may disappear by itself.
func (c *child) reject(err error, took time.Duration) error {
	var response apierrors.APIStatus
	isResponse := errors.As(err, &response)
	isTemporary := isOverload(err) || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)
	if !isResponse || isTemporary {
		return err
	}
	isSlow := took > slowFailure
	// A webhook hangs, while another client keeps changing the child.
	willFailAgain := isSlow && apierrors.IsConflict(err)
	mayDisappear := slices.Contains(transient, response.Status().Code) && !willFailAgain
	if remembered := c.memory.entry(c.kind); mayDisappear && remembered.writes.Writes() < maxTransient {
		remembered.writes.Record(maxTransient+1, 2*backoff.Max)
		remembered.failure = nil
		return err
	}
	c.fail(echov1.ReasonRejected, err.Error())
	if isSlow {
		c.readOnly = true
		c.requeue(backoff.Min)
	}
	return nil
}

// rejectUpdate is like reject, for a write of an existing child. The cache may lag behind the
// child: only the live object shows whether that is the reason of the rejection.
func (c *child) rejectUpdate(ctx context.Context, written client.Object, err error, took time.Duration) error {
	// The test of the version in a patch is invalid (422), and the precondition of a deletion is a conflict (409).
	mayBeStale := apierrors.IsInvalid(err) || apierrors.IsConflict(err) || apierrors.IsNotFound(err)
	if !mayBeStale {
		return c.reject(err, took)
	}
	live, readErr := c.readLive(ctx)
	if readErr != nil {
		return readErr
	}
	isReplaced := live == nil || live.GetUID() != written.GetUID()
	isChanged := isReplaced || live.GetResourceVersion() != written.GetResourceVersion()
	isStale := isReplaced || isChanged && took <= slowFailure
	switch {
	case isStale:
		return fmt.Errorf("%w: %w", errStaleChild, err)
	case isChanged:
		// If the child changes while a webhook hangs, the API server returns no error of the webhook.
		err = fmt.Errorf("the API server responded late, perhaps because of a slow admission webhook: %w", err)
	}
	return c.reject(err, took)
}

// transient are the codes of errors that usually disappear by themselves. A webhook may respond with any code, so they
// may also last.
var transient = []int32{
	http.StatusRequestTimeout, http.StatusConflict, http.StatusTooManyRequests, http.StatusServiceUnavailable, http.StatusGatewayTimeout,
}

// isOverload reports whether API Priority and Fairness rejected the request: its response is a text, and
// client-go makes an error of it. A webhook's denial is an error of the API server.
func isOverload(err error) bool {
	return apierrors.IsTooManyRequests(err) && apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}

// fail reports a failure until the next write, which has to wait.
func (c *child) fail(reason, message string) {
	remembered := c.memory.entry(c.kind)
	remembered.failure = &status.Failure{Reason: reason, Message: c.kind.Name + ": " + message}
	c.failure = remembered.failure
	c.requeue(remembered.writes.Record(1, backoff.SlowestWrite))
}

// reportOwner reports an object under the child's name that the Echo does not control.
func (c *child) reportOwner(live client.Object) {
	reads := &c.memory.entry(c.kind).reads
	if reads.Remaining() == 0 {
		reads.Record(1, backoff.SlowestWrite)
	}
	c.requeue(reads.Remaining()) // The watch does not report the deletion of an object without the operator's label.
	controller := metav1.GetControllerOf(live)
	isEcho := controller != nil && schema.FromAPIVersionAndKind(controller.APIVersion, controller.Kind).GroupKind() == echov1.GroupVersion.WithKind(echoKind).GroupKind()
	if isEcho && controller.Name == c.echo.Name {
		c.waiting = deletion(c.kind, live, fmt.Sprintf(" of an earlier Echo (UID %s)", controller.UID))
		return
	}
	c.Metrics.Conflicts.WithLabelValues(c.kind.Name).Inc()
	name := "none"
	if controller != nil {
		name = fmt.Sprintf("%s %s, UID %s", controller.Kind, controller.Name, controller.UID)
	}
	c.failure = &status.Failure{Reason: echov1.ReasonConflict, Message: fmt.Sprintf(
		"%s %s exists and is not controlled by this Echo (controller: %s): delete or rename it", c.kind.Name, live.GetName(), name)}
}

// deletion describes a child that is being deleted, and what delays that.
func deletion(kind children.Kind, live client.Object, owner string) string {
	message := fmt.Sprintf("%s %s%s is being deleted", kind.Name, live.GetName(), owner)
	if finalizers := live.GetFinalizers(); len(finalizers) > 0 {
		message += "; its finalizers: " + strings.Join(finalizers, ", ")
	}
	return message
}
