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

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
)

// inFlight is the status of an Echo that rolls out.
const inFlight = "in flight"

// installation is an installation by OLM: the OperatorCondition, and the Echoes in the operator's cache.
type installation struct {
	*Upgradeable
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
	i.Upgradeable = &Upgradeable{
		Condition:       client.ObjectKeyFromObject(i.condition),
		RolloutInFlight: func(status echov1.EchoStatus) bool { return status.Ready == inFlight },
		Echoes:          fake.NewClientBuilder().WithScheme(scheme).Build(),
	}
	i.Live = interceptor.NewClient(i.live, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
			i.reads++
			return c.Get(ctx, key, object, options...)
		},
	})
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
	i.must(i.Echoes.(client.Client).Create(i.t.Context(), echo))
	return echo
}

func (i *installation) endRollout(echo *echov1.Echo) {
	i.must(i.Echoes.(client.Client).Delete(i.t.Context(), echo))
}

// run runs Upgradeable for some time.
func (i *installation) run(duration time.Duration) {
	ctx, stop := context.WithTimeout(i.t.Context(), duration)
	defer stop()
	i.must(i.Start(ctx))
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
		i.run(time.Hour)
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
		for range 100 {
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
				i.run(readPeriod + period)
				i.expectCondition("False RollingOut")
			})
		})
	}
}

func TestMissingConditionIsReadAtIncreasingIntervals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := install(t)
		i.run(time.Hour)
		if i.reads > 65 {
			t.Errorf("read %d times in an hour, want at most 65", i.reads)
		}
		i.createCondition()
		i.run(maxPause)
		i.expectCondition("True RolledOut")
	})
}
