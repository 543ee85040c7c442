package controller

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

// rejected returns what to report about a failed write. It returns an error if the API server did
// not respond, or if the failure may disappear by itself.
func (rec *reconciliation) rejected(kind children.Kind, err error, took time.Duration) (outcome, error) {
	var response apierrors.APIStatus
	isResponse := errors.As(err, &response)
	isTemporary := isOverload(err) || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)
	if !isResponse || isTemporary {
		return outcome{}, err
	}
	isSlow := took > slowFailure
	// A webhook hangs, while another client keeps changing the child.
	willFailAgain := isSlow && apierrors.IsConflict(err)
	mayDisappear := isTransient(response.Status().Code) && !willFailAgain
	if mayDisappear && rec.backoff.FailedUncertainly(rec.childOf(kind), rec.echo.Generation) <= maxTransient {
		return outcome{}, err
	}
	rejected := rec.fail(kind, echov1.ReasonRejected, err.Error())
	if isSlow {
		rec.readOnly = true
		rejected.recheck = backoff.Min
	}
	return rejected, nil
}

// rejectedUpdate is like rejected, for a write of an existing child. The cache may lag behind the
// child: only the live object shows whether that is the reason of the rejection.
func (rec *reconciliation) rejectedUpdate(ctx context.Context, kind children.Kind, written client.Object, err error, took time.Duration) (outcome, error) {
	// The test of the version in a patch is invalid (422), and the precondition of a deletion is a conflict (409).
	mayBeStale := apierrors.IsInvalid(err) || apierrors.IsConflict(err) || apierrors.IsNotFound(err)
	if !mayBeStale {
		return rec.rejected(kind, err, took)
	}
	live, readErr := rec.readLive(ctx, kind)
	if readErr != nil {
		return outcome{}, readErr
	}
	isReplaced := live == nil || live.GetUID() != written.GetUID()
	isChanged := isReplaced || live.GetResourceVersion() != written.GetResourceVersion()
	isStale := isReplaced || isChanged && took <= slowFailure
	switch {
	case isStale:
		return outcome{}, fmt.Errorf("%w: %w", errStaleChild, err)
	case isChanged:
		// If the child changes while a webhook hangs, the API server returns no error of the webhook.
		err = fmt.Errorf("the API server responded late, perhaps because of a slow admission webhook: %w", err)
	}
	return rec.rejected(kind, err, took)
}

// errStaleChild reports that the child in the cache has since been changed or deleted.
var errStaleChild = errors.New("the cache lags behind the child")

// isTransient reports whether an error with this code usually disappears by itself. A webhook may
// respond with any code, so it may also last.
func isTransient(code int32) bool {
	switch code {
	case http.StatusRequestTimeout, http.StatusConflict, http.StatusTooManyRequests, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	default:
		return false
	}
}

// isOverload reports whether API Priority and Fairness rejected the request: its response is a text, and
// client-go makes an error of it. A webhook's denial is an error of the API server.
func isOverload(err error) bool {
	return apierrors.IsTooManyRequests(err) && apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}

// notControlled returns what to report about an object under the child's name that the Echo does
// not control.
func (rec *reconciliation) notControlled(kind children.Kind, live client.Object) outcome {
	controller := metav1.GetControllerOf(live)
	if isEarlierEcho := controller != nil && controller.Kind == echoKind && controller.Name == rec.echo.Name && isEchoGroup(controller.APIVersion); isEarlierEcho {
		owner := fmt.Sprintf(" of an earlier Echo (UID %s)", controller.UID)
		return outcome{waiting: deletion(kind, live, owner), recheck: rec.recheckOwner(kind)}
	}
	rec.Metrics.CountConflict(kind.Name)
	name := "none"
	if controller != nil {
		name = fmt.Sprintf("%s %s, UID %s", controller.Kind, controller.Name, controller.UID)
	}
	return outcome{recheck: rec.recheckOwner(kind), failure: &status.Failure{Reason: echov1.ReasonConflict, Message: fmt.Sprintf(
		"%s %s exists and is not controlled by this Echo (controller: %s): delete or rename it", kind.Name, live.GetName(), name)}}
}

// deletion describes a child that is being deleted, and what delays that.
func deletion(kind children.Kind, live client.Object, owner string) string {
	message := fmt.Sprintf("%s %s%s is being deleted", kind.Name, live.GetName(), owner)
	if finalizers := live.GetFinalizers(); len(finalizers) > 0 {
		message += "; its finalizers: " + strings.Join(finalizers, ", ")
	}
	return message
}

func isEchoGroup(apiVersion string) bool {
	group, _, _ := strings.Cut(apiVersion, "/")
	return group == echov1.GroupVersion.Group
}

// mutatedByAdmission reports that admission changed fields that determine the response.
func (rec *reconciliation) mutatedByAdmission(kind children.Kind, object client.Object, difference children.Difference) outcome {
	mutated := rec.fail(kind, echov1.ReasonRejected, fmt.Sprintf(
		"an admission policy or webhook changed %s, which determines the response", strings.Join(difference.ResponseFields, ", ")))
	mutated.object = object
	return mutated
}
