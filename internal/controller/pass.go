package controller

import (
	"context"
	"errors"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/children"
	"github.com/kkloud-io/echo-operator/internal/status"
)

// pass is one pass over the children of an Echo.
type pass struct {
	*EchoReconciler
	echo   *echov1.Echo
	inputs children.Inputs
	// readOnly is true if no child is written: the garbage collector deletes them, or a write took long and failed.
	// The status reports that failure before the next write, which may take long, too.
	readOnly bool

	// observed is what the status depends on.
	observed status.Observation
	// recheck is when to reconcile again without an event. 0 means that events suffice.
	recheck time.Duration
}

func (r *EchoReconciler) newPass(echo *echov1.Echo) *pass {
	isDeleted := !echo.DeletionTimestamp.IsZero()
	return &pass{
		EchoReconciler: r, echo: echo, readOnly: isDeleted,
		inputs: children.Inputs{ServerImage: r.ServerImage, VerifierImage: r.VerifierImage},
	}
}

// reconcileChildren reconciles every child, also after the rejection of another one. Rejections become part of the
// observation. It returns all other errors.
func (p *pass) reconcileChildren(ctx context.Context) error {
	var failed []error
	for _, kind := range children.Kinds {
		err := p.reconcileKind(ctx, kind)
		if errors.Is(err, errStaleEcho) {
			return err // The other children would be written for the same stale Echo.
		}
		failed = append(failed, err)
	}
	return errors.Join(failed...)
}

func (p *pass) reconcileKind(ctx context.Context, kind children.Kind) error {
	switch {
	case kind.OptionalAPI:
		return p.reconcileRoute(ctx, kind)
	case kind.Verifier:
		return p.reconcileVerifier(ctx, kind)
	}
	c, err := p.reconcileChild(ctx, kind)
	p.report(c)
	switch object := c.object.(type) {
	case *appsv1.Deployment:
		p.observed.Deployment = object
	case *corev1.Service:
		p.observeService(object)
	}
	return err
}

// report adds to the observation what the status reports about every child.
func (p *pass) report(c child) {
	if c.failure != nil {
		p.observed.Rejected = append(p.observed.Rejected, *c.failure)
	}
	if c.overridden != nil {
		p.observed.Overridden = append(p.observed.Overridden, *c.overridden)
	}
	if c.waiting != "" {
		p.observed.Waiting = append(p.observed.Waiting, c.waiting)
	}
	p.recheck = earliest(p.recheck, c.recheck)
}

// serviceLag is how long a node may take to apply a change of the Service: kube-proxy collects changes for a second.
const serviceLag = 2 * time.Second

func (p *pass) observeService(service *corev1.Service) {
	p.observed.Service, p.inputs.ClusterIPs = service, service.Spec.ClusterIPs
	if lag := time.Until(p.backoff.Last(serviceChange(p.echo)).Add(serviceLag)); lag > 0 {
		p.report(child{waiting: "Service: the nodes apply the change", recheck: lag})
	}
}

// wants reports whether the Echo has a child of the kind. An administrator has to allow a verifier on every node.
func (p *pass) wants(kind children.Kind) bool {
	isAllowed := p.AllowEveryNodeVerification || !kind.Verifier || !children.WantsVerifierDaemonSet(p.echo)
	return isAllowed && kind.Wanted(p.echo)
}

// reconcileVerifier reconciles a verifier, once the newest spec is rolled out: so every result of the newest verifier is
// about that spec.
func (p *pass) reconcileVerifier(ctx context.Context, kind children.Kind) error {
	canVerify := len(children.ClusterIPs(p.inputs)) > 0 && status.IsRolledOut(p.echo, p.observed)
	isOutdated := p.wants(kind) && !canVerify
	reconcile := p.reconcileChild
	if isOutdated {
		reconcile = p.observeChild
	}
	c, err := reconcile(ctx, kind)
	p.report(c)
	if !kind.Wanted(p.echo) {
		return err
	}
	verification := &status.Verification{Failure: c.failure, NotAllowed: !p.wants(kind), Outdated: isOutdated}
	switch object := c.object.(type) {
	case *appsv1.Deployment:
		verification.Deployment = object
	case *appsv1.DaemonSet:
		verification.DaemonSet = object
	}
	p.observed.Verification = verification
	return err
}
