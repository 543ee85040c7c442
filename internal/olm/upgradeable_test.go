package olm

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	operatorsv2 "github.com/operator-framework/api/pkg/operators/v2"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
)

// installation is an installation by OLM: the OperatorCondition, and the Echoes in the operator's cache.
type installation struct {
	*UpgradeableReconciler
	t         *testing.T
	condition *operatorsv2.OperatorCondition
	// live has the OperatorCondition, and reads counts how often the operator has read it.
	live  client.WithWatch
	reads int
}

func install(t *testing.T) *installation {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{echov1.AddToScheme, operatorsv2.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	i := &installation{t: t, live: fake.NewClientBuilder().WithScheme(scheme).Build()}
	i.condition = &operatorsv2.OperatorCondition{ObjectMeta: metav1.ObjectMeta{Namespace: "operators", Name: "echo-operator.v0.0.0"}}
	i.UpgradeableReconciler = &UpgradeableReconciler{
		Condition:       client.ObjectKeyFromObject(i.condition),
		RolloutInFlight: func(status echov1.EchoStatus) bool { return status.Ready == inFlight },
	}
	i.UpgradeableReconciler.live = interceptor.NewClient(i.live, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
			i.reads++
			return c.Get(ctx, key, object, options...)
		},
	})
	i.echoes = fake.NewClientBuilder().WithScheme(scheme).WithIndex(&echov1.Echo{}, echoesByRollout, i.indexByRollout).Build()
	return i
}

func (i *installation) createCondition() {
	i.condition.ResourceVersion = ""
	i.must(i.live.Create(i.t.Context(), i.condition))
}

func (i *installation) must(err error) {
	i.t.Helper()
	if err != nil {
		i.t.Fatal(err)
	}
}

// startRollout creates an Echo that rolls out.
func (i *installation) startRollout() *echov1.Echo {
	echo := &echov1.Echo{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "hello"}, Status: echov1.EchoStatus{Ready: inFlight}}
	i.must(i.echoes.(client.Client).Create(i.t.Context(), echo))
	return echo
}

func (i *installation) endRollout(echo *echov1.Echo) {
	i.must(i.echoes.(client.Client).Delete(i.t.Context(), echo))
}

// run reconciles as the queue of the controller does, until the time is over.
func (i *installation) run(duration time.Duration) {
	end, backoff, request := time.Now().Add(duration), newBackoff(), reconcile.Request{NamespacedName: i.Condition}
	for {
		result, err := i.Reconcile(i.t.Context(), request)
		next := result.RequeueAfter
		if err != nil {
			next = backoff.When(request)
		} else {
			backoff.Forget(request)
		}
		if next == 0 || time.Now().Add(next).After(end) {
			time.Sleep(time.Until(end))
			return
		}
		time.Sleep(next)
	}
}

func (i *installation) expectCondition(want string) {
	i.t.Helper()
	var condition operatorsv2.OperatorCondition
	i.must(i.live.Get(i.t.Context(), i.Condition, &condition))
	got := "none"
	if c := meta.FindStatusCondition(condition.Spec.Conditions, operatorsv2.Upgradeable); c != nil {
		got = string(c.Status) + " " + c.Reason
	}
	if got != want {
		i.t.Errorf("condition Upgradeable = %s, want %s", got, want)
	}
}

func TestConditionIsReadOnlyOnChangesWhileNothingRollsOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := install(t)
		i.createCondition()
		i.run(time.Hour)
		i.expectCondition("True RolledOut")
		i.run(time.Hour) // After an event.
		if i.reads != 1 {
			t.Errorf("read %d times, want once", i.reads)
		}
	})
}

func TestConditionIsCheckedOnceAMinuteDuringARollout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := install(t)
		i.createCondition()
		echo := i.startRollout()
		for range 100 { // Rollouts of other Echoes start and end.
			i.run(6 * time.Second)
		}
		i.expectCondition("False RollingOut")
		if i.reads < 10 || i.reads > 11 {
			t.Errorf("read %d times in ten minutes, want 10 or 11", i.reads)
		}
		i.endRollout(echo)
		i.run(time.Second)
		i.expectCondition("True RolledOut")
	})
}

func TestConditionIsWrittenAgainDuringARollout(t *testing.T) {
	for name, lose := range map[string]func(*installation){
		"after it was deleted and created": func(i *installation) {
			i.must(i.live.Delete(t.Context(), i.condition))
			i.createCondition()
		},
		"after another client emptied it": func(i *installation) {
			i.must(i.live.Get(t.Context(), i.Condition, i.condition))
			i.condition.Spec.Conditions = nil
			i.must(i.live.Update(t.Context(), i.condition))
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				i := install(t)
				i.createCondition()
				i.startRollout()
				i.run(time.Second)
				i.expectCondition("False RollingOut")
				lose(i)
				i.run(checkPeriod)
				i.expectCondition("False RollingOut")
			})
		})
	}
}

func TestMissingConditionIsReadAtIncreasingIntervals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := install(t)
		i.run(time.Hour)
		if i.reads > 25 {
			t.Errorf("read %d times in an hour, want at most 25", i.reads)
		}
		i.createCondition()
		i.run(maxBackoff)
		i.expectCondition("True RolledOut")
	})
}

func TestOnlyTheStartAndTheEndOfARolloutAreReported(t *testing.T) {
	idle, rolling := &echov1.Echo{}, &echov1.Echo{Status: echov1.EchoStatus{Ready: inFlight}}
	changed := install(t).rolloutChanged()
	for _, test := range []struct {
		before, after *echov1.Echo
		want          bool
	}{{idle, idle, false}, {idle, rolling, true}, {rolling, rolling, false}, {rolling, idle, true}} {
		if got := changed.Update(event.UpdateEvent{ObjectOld: test.before, ObjectNew: test.after}); got != test.want {
			t.Errorf("update from %q to %q passes: %t, want %t", test.before.Status.Ready, test.after.Status.Ready, got, test.want)
		}
	}
	for _, test := range []struct {
		echo *echov1.Echo
		want bool
	}{{idle, false}, {rolling, true}} {
		if got := changed.Create(event.CreateEvent{Object: test.echo}); got != test.want {
			t.Errorf("creation of %q passes: %t, want %t", test.echo.Status.Ready, got, test.want)
		}
		if got := changed.Delete(event.DeleteEvent{Object: test.echo}); got != test.want {
			t.Errorf("deletion of %q passes: %t, want %t", test.echo.Status.Ready, got, test.want)
		}
	}
}
