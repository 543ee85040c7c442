// Package olm delays upgrades by Operator Lifecycle Manager (OLM) while a rollout is in flight. OLM reads
// the condition Upgradeable of the operator's OperatorCondition, but it does not let the operator watch
// that object. So the package writes the condition when it changes, and reads it again only while it delays an
// upgrade.
package olm

import (
	"context"
	"slices"
	"time"

	operatorsv2 "github.com/operator-framework/api/pkg/operators/v2"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
)

const (
	// period is how often the Echoes in the cache are read.
	period = 2 * time.Second

	// readPeriod is how often the OperatorCondition is read while it delays an upgrade: another client
	// may have deleted or changed it. While nothing rolls out, it is not read.
	readPeriod = time.Minute

	// A failure is retried at intervals up to this. OLM creates the OperatorCondition and grants
	// the permission about when it starts the operator. Without OLM, there is none.
	maxPause = time.Minute
)

// Upgradeable writes the condition Upgradeable of the operator's OperatorCondition. It
// is False while a rollout is in flight, which makes OLM delay an upgrade. OLM creates the
// OperatorCondition and grants permission to write it.
type Upgradeable struct {
	// Condition is the namespace and name of the OperatorCondition.
	Condition client.ObjectKey
	// RolloutInFlight reports whether the status describes a rollout that is expected to complete.
	RolloutInFlight func(echov1.EchoStatus) bool
	// Echoes reads from the cache.
	Echoes client.Reader
	// Live has no cache, because OLM does not grant permission to watch.
	Live client.Client

	// reported is the status that the OperatorCondition had when it was last read or written, at the
	// time checked. It is empty at first.
	reported metav1.ConditionStatus
	checked  time.Time
}

// Start implements manager.Runnable. Only the leader runs it.
func (u *Upgradeable) Start(ctx context.Context) error {
	for pause := period; ; {
		if err := u.check(ctx); err != nil {
			log.FromContext(ctx).Error(err, "Report in the OperatorCondition whether an Echo is rolling out")
			pause = min(2*pause, maxPause)
		} else {
			pause = period
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
	}
}

// check writes the condition if it changed.
func (u *Upgradeable) check(ctx context.Context) error {
	var echoes echov1.EchoList
	if err := u.Echoes.List(ctx, &echoes, client.UnsafeDisableDeepCopy); err != nil {
		return err
	}
	desired := metav1.Condition{
		Type: operatorsv2.Upgradeable, Status: metav1.ConditionTrue, Reason: echov1.ReasonRolledOut, Message: "No Echo is rolling out",
	}
	i := slices.IndexFunc(echoes.Items, func(echo echov1.Echo) bool { return u.RolloutInFlight(echo.Status) })
	delaysUpgrade := i >= 0
	if delaysUpgrade {
		desired.Status, desired.Reason = metav1.ConditionFalse, echov1.ReasonRollingOut
		desired.Message = "Echo " + client.ObjectKeyFromObject(&echoes.Items[i]).String() + " is rolling out"
	}
	isOutdated := delaysUpgrade && time.Since(u.checked) >= readPeriod
	if u.reported == desired.Status && !isOutdated {
		return nil
	}
	return u.report(ctx, desired)
}

// report writes the condition if the OperatorCondition differs.
func (u *Upgradeable) report(ctx context.Context, desired metav1.Condition) error {
	var condition operatorsv2.OperatorCondition
	if err := u.Live.Get(ctx, u.Condition, &condition); err != nil {
		return err
	}
	// A patch keeps fields that this client does not know.
	patch := client.MergeFromWithOptions(condition.DeepCopy(), client.MergeFromWithOptimisticLock{})
	if meta.SetStatusCondition(&condition.Spec.Conditions, desired) {
		if err := u.Live.Patch(ctx, &condition, patch); err != nil {
			return err
		}
		log.FromContext(ctx).Info("Updated OperatorCondition", "upgradeable", desired.Status)
	}
	u.reported, u.checked = desired.Status, time.Now()
	return nil
}
