package controller

import (
	"cmp"
	"context"
	"errors"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/kkloud-io/echo-operator/internal/children"
	"github.com/kkloud-io/echo-operator/internal/status"
)

// reconcileChildren reconciles every child, also after the rejection of another one. Rejections become part of the
// observation. It returns all other errors. The kinds are in the order of their dependencies: a verifier depends on
// the Deployment and on the Service.
func (rec *reconciliation) reconcileChildren(ctx context.Context) error {
	var failed []error
	for _, kind := range children.Kinds {
		err := rec.reconcileKind(ctx, kind)
		if errors.Is(err, errStaleEcho) {
			return err // The other children would be written for the same stale Echo.
		}
		failed = append(failed, err)
	}
	return errors.Join(failed...)
}

func (rec *reconciliation) reconcileKind(ctx context.Context, kind children.Kind) error {
	switch {
	case kind.OptionalAPI:
		return rec.reconcileRoute(ctx, kind)
	case kind.Verifier:
		return rec.reconcileVerifier(ctx, kind)
	}
	result, err := rec.reconcileChild(ctx, kind)
	if !kind.Conditional {
		result.waiting = cmp.Or(result.waiting, result.terminating)
	}
	rec.report(result)
	switch object := result.object.(type) {
	case *appsv1.Deployment:
		rec.observed.Deployment = object
	case *corev1.Service:
		rec.observeService(object)
	}
	return err
}

// serviceLag is how long a node may take to apply a change of the Service: kube-proxy collects changes for a second.
const serviceLag = 2 * time.Second

func (rec *reconciliation) observeService(service *corev1.Service) {
	rec.observed.Service, rec.inputs.ClusterIPs = service, service.Spec.ClusterIPs
	if lag := time.Until(rec.lastServiceChange().Add(serviceLag)); lag > 0 {
		rec.report(outcome{waiting: "Service: the nodes apply the change", recheck: lag})
	}
}

// reconcileVerifier reconciles a verifier, once the newest spec is rolled out: so every result of the newest verifier is
// about that spec.
func (rec *reconciliation) reconcileVerifier(ctx context.Context, kind children.Kind) (err error) {
	var result outcome
	isOutdated := rec.wants(kind) && !rec.canVerify()
	if isOutdated {
		result, err = rec.observeChild(ctx, kind)
	} else {
		result, err = rec.reconcileChild(ctx, kind)
	}
	rec.report(result)
	if !kind.Wanted(rec.echo) {
		return err
	}
	verification := &status.Verification{Failure: result.failure, NotAllowed: !rec.wants(kind), Outdated: isOutdated, Waiting: result.terminating}
	switch object := result.object.(type) {
	case *appsv1.Deployment:
		verification.Deployment = object
	case *appsv1.DaemonSet:
		verification.DaemonSet = object
	}
	rec.observed.Verification = verification
	return err
}

func (rec *reconciliation) canVerify() bool {
	return len(children.ClusterIPs(rec.inputs)) > 0 && status.IsRolledOut(rec.echo, rec.observed)
}
