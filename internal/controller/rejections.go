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

// paused returns how long the next write of a child has to wait, and what to report meanwhile. A
// correction names the drift that the write would revert.
func (r *EchoReconciler) paused(echo *echov1.Echo, c children.Kind, correction string) (time.Duration, *status.Failure) {
	paused, failure := r.pace.wait(targetOf(echo, c.Name), echo.Generation)
	if correction == "" || failure != nil {
		return paused, failure
	}
	drift := correctionOf(echo, c, correction)
	again, _ := r.pace.wait(drift, echo.Generation)
	if again > 0 && r.pace.interval(drift) >= repeatedDriftPace {
		failure = repeatedDrift(c, correction)
	}
	return max(paused, again), failure
}

// correctionOf is the target of the writes that revert the same drift.
func correctionOf(echo *echov1.Echo, c children.Kind, correction string) target {
	return targetOf(echo, c.Name+" "+correction)
}

// rejected returns what to report about a failed write. It returns an error if the API server did
// not respond, or if the failure may disappear by itself.
func (r *EchoReconciler) rejected(echo *echov1.Echo, c children.Kind, err error, took time.Duration) (child, error) {
	var response apierrors.APIStatus
	isResponse := errors.As(err, &response)
	isTemporary := isOverload(err) || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)
	if !isResponse || isTemporary {
		return child{}, err
	}
	t := targetOf(echo, c.Name)
	slow := took > slowFailure
	repeats := slow && apierrors.IsConflict(err) // A webhook hangs, while another client keeps changing the child.
	if !repeats && isTransient(response.Status().Code) && r.pace.failed(t, echo.Generation, nil) <= maxTransient {
		return child{}, err
	}
	failure := &status.Failure{Reason: echov1.ReasonRejected, Message: c.Name + ": " + err.Error()}
	r.pace.failed(t, echo.Generation, failure)
	paused, _ := r.pace.wait(t, echo.Generation)
	return child{failure: failure, recheck: paused, slow: slow}, nil
}

// rejectedUpdate is like rejected, for a write of an existing child. The cache may lag behind the
// child: only the live object shows whether that is the reason of the rejection.
func (r *EchoReconciler) rejectedUpdate(ctx context.Context, echo *echov1.Echo, c children.Kind, written client.Object, err error, took time.Duration) (child, error) {
	// A patch of another version is invalid, and a deletion of another version is a conflict.
	mayBeStale := apierrors.IsInvalid(err) || apierrors.IsConflict(err) || apierrors.IsNotFound(err)
	if mayBeStale {
		live, readErr := r.readLive(ctx, echo, c)
		if readErr != nil {
			return child{}, readErr
		}
		replaced := live == nil || live.GetUID() != written.GetUID()
		changed := replaced || live.GetResourceVersion() != written.GetResourceVersion()
		switch {
		case replaced, changed && took <= slowFailure:
			return child{}, fmt.Errorf("%w: %w", errStaleChild, err)
		case changed:
			// If the child changes while a webhook hangs, the API server returns no error of the webhook.
			err = fmt.Errorf("the API server answered late, perhaps because of a slow admission webhook: %w", err)
		}
	}
	return r.rejected(echo, c, err, took)
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
func (r *EchoReconciler) notControlled(echo *echov1.Echo, c children.Kind, live client.Object, controller *metav1.OwnerReference) child {
	if controller != nil && controller.Kind == "Echo" && controller.Name == echo.Name && isEchoGroup(controller.APIVersion) {
		message := fmt.Sprintf("%s %s of an earlier Echo (UID %s) is being deleted", c.Name, live.GetName(), controller.UID)
		if finalizers := live.GetFinalizers(); len(finalizers) > 0 {
			message += "; its finalizers: " + strings.Join(finalizers, ", ")
		}
		return child{waiting: message, recheck: r.recheckOwner(echo, c)}
	}
	r.Metrics.CountConflict(c.Name)
	name := "none"
	if controller != nil {
		name = fmt.Sprintf("%s %s, UID %s", controller.Kind, controller.Name, controller.UID)
	}
	return child{recheck: r.recheckOwner(echo, c), failure: &status.Failure{Reason: echov1.ReasonConflict, Message: fmt.Sprintf(
		"%s %s exists and is not controlled by this Echo (controller: %s): delete or rename it", c.Name, live.GetName(), name)}}
}

// recheckOwner returns when to requeue the Echo. The watch does not report the deletion of an object
// without the operator's label.
func (r *EchoReconciler) recheckOwner(echo *echov1.Echo, c children.Kind) time.Duration {
	t := targetOf(echo, c.Name+" of another owner")
	paused, _ := r.pace.wait(t, echo.Generation)
	if paused == 0 {
		r.pace.failed(t, echo.Generation, &status.Failure{})
		paused, _ = r.pace.wait(t, echo.Generation)
	}
	return paused
}

func isEchoGroup(apiVersion string) bool {
	group, _, _ := strings.Cut(apiVersion, "/")
	return group == echov1.GroupVersion.Group
}

// mutatedByAdmission reports that admission changed fields that determine the answer.
func mutatedByAdmission(c children.Kind, difference changes) *status.Failure {
	return &status.Failure{Reason: echov1.ReasonRejected, Message: fmt.Sprintf(
		"%s: an admission policy or webhook changed %s, which determines the answer", c.Name, strings.Join(difference.answer, ", "))}
}

// repeatedDrift reports that an external writer changes a child again after each correction.
func repeatedDrift(c children.Kind, correction string) *status.Failure {
	message := c.Name + ": an external writer repeatedly changes " + correction
	if correction == recreation {
		message = c.Name + ": an external client repeatedly deletes it"
	}
	return &status.Failure{Reason: echov1.ReasonRepeatedDrift, Message: message}
}
