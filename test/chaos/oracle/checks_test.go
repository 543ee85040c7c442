package oracle

import (
	"net/http"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/test/chaos/kinds"
	"github.com/kkloud-io/echo-operator/test/chaos/proxy"
)

func writes(n int) []proxy.Write {
	return slices.Repeat([]proxy.Write{{Request: proxy.Request{Verb: "update", Resource: "services"}, Code: http.StatusOK}}, n)
}

// expectResult expects a check to pass or to fail.
func expectResult(t *testing.T, name string, err error, pass bool) {
	t.Helper()
	if (err == nil) != pass {
		t.Errorf("%s: pass = %v, want %v: %v", name, err == nil, pass, err)
	}
}

func TestWriteBound(t *testing.T) {
	for _, test := range []struct{ operators, controlWrites, faults, want int }{
		{1, 0, 0, 10}, {1, 6, 0, 22}, {2, 6, 0, 34}, {1, 6, 5, 32}, {2, 6, 5, 44},
	} {
		if got := WriteBound(test.operators, test.controlWrites, test.faults); got != test.want {
			t.Errorf("WriteBound(%d, %d, %d) = %d, want %d", test.operators, test.controlWrites, test.faults, got, test.want)
		}
	}
}

func TestCheckWriteBound(t *testing.T) {
	expectResult(t, "as many writes as allowed", CheckWriteBound(writes(3), 3), true)
	expectResult(t, "more writes than allowed", CheckWriteBound(writes(4), 3), false)
}

func TestCheckNoWrites(t *testing.T) {
	expectResult(t, "no writes", CheckNoWrites(nil), true)
	expectResult(t, "one write", CheckNoWrites(writes(1)), false)
}

func TestRejectionsCountsForbiddenAndInvalidWrites(t *testing.T) {
	var all []proxy.Write
	for _, code := range []int{http.StatusOK, http.StatusForbidden, http.StatusConflict, http.StatusUnprocessableEntity, http.StatusInternalServerError} {
		all = append(all, proxy.Write{Code: code})
	}
	if got := Rejections(all); got != 2 {
		t.Errorf("Rejections = %d, want 2", got)
	}
}

func TestRetryBound(t *testing.T) {
	for _, test := range []struct {
		d      time.Duration
		echoes int
		want   int
	}{
		{0, 1, 8}, {100 * time.Millisecond, 1, 12}, {time.Second, 1, 4*6 + 5}, {time.Second, 20, 20*4*6 + 5}, {10 * time.Second, 1, 4*9 + 50},
	} {
		if got := RetryBound(test.d, test.echoes); got != test.want {
			t.Errorf("RetryBound(%s, %d) = %d, want %d", test.d, test.echoes, got, test.want)
		}
	}
}

func TestCheckCount(t *testing.T) {
	for count, pass := range map[int]bool{0: false, 1: true, 10: true, 11: false} {
		expectResult(t, "1 to 10 allowed", CheckCount("writes", count, 1, 10, time.Second), pass)
	}
}

func TestCheckDuration(t *testing.T) {
	expectResult(t, "took as long as its limit", CheckDuration("recovery", time.Second, time.Second), true)
	expectResult(t, "took longer than its limit", CheckDuration("recovery", time.Second+1, time.Second), false)
}

func TestCheckGenerations(t *testing.T) {
	before := map[string]int64{"Service a": 1, "Deployment b": 2}
	expectResult(t, "same generations", CheckGenerations(before, map[string]int64{"Service a": 1, "Deployment b": 2}), true)
	expectResult(t, "another generation", CheckGenerations(before, map[string]int64{"Service a": 1, "Deployment b": 3}), false)
	expectResult(t, "another UID", CheckGenerations(before, map[string]int64{"Service c": 1, "Deployment b": 2}), false)
	expectResult(t, "missing child", CheckGenerations(before, map[string]int64{"Service a": 1}), false)
}

// withConditions returns an Echo of generation 2 with conditions of that generation.
func withConditions(conditions ...metav1.Condition) *echov1.Echo {
	echo := newEcho(2)
	echo.Status.ObservedGeneration = 2
	for _, condition := range conditions {
		if condition.ObservedGeneration == 0 {
			condition.ObservedGeneration = 2
		}
		echo.Status.Conditions = append(echo.Status.Conditions, condition)
	}
	return echo
}

func TestCheckObserved(t *testing.T) {
	expectResult(t, "generation is observed", CheckObserved(withConditions()), true)
	echo := withConditions()
	echo.Generation++
	expectResult(t, "generation is not observed", CheckObserved(echo), false)
}

func TestCheckSettled(t *testing.T) {
	progressing := metav1.Condition{Type: echov1.ConditionProgressing, Status: metav1.ConditionTrue, Message: "1 of 2 pods"}
	degraded := metav1.Condition{Type: echov1.ConditionDegraded, Status: metav1.ConditionTrue}
	settled := withConditions(metav1.Condition{Type: echov1.ConditionProgressing, Status: metav1.ConditionFalse})
	unobserved := settled.DeepCopy()
	unobserved.Generation++
	for name, test := range map[string]struct {
		echoes []echov1.Echo
		pass   bool
	}{
		"no Echoes":                       {nil, true},
		"settled":                         {[]echov1.Echo{*settled}, true},
		"generation is not observed":      {[]echov1.Echo{*unobserved}, false},
		"rollout is in progress":          {[]echov1.Echo{*withConditions(progressing)}, false},
		"rollout has failed":              {[]echov1.Echo{*withConditions(progressing, degraded)}, true},
		"one of two Echoes is rolled out": {[]echov1.Echo{*settled, *withConditions(progressing)}, false},
	} {
		expectResult(t, name, CheckSettled(test.echoes), test.pass)
	}
}

func TestCheckReadyNow(t *testing.T) {
	condition := metav1.Condition{Type: echov1.ConditionReady, Status: metav1.ConditionTrue}
	expectResult(t, "ready", CheckReadyNow(withConditions(condition)), true)
	expectResult(t, "no condition", CheckReadyNow(withConditions()), false)
	stale := condition
	stale.ObservedGeneration = 1
	expectResult(t, "ready with the earlier generation", CheckReadyNow(withConditions(stale)), false)
	condition.Status = metav1.ConditionFalse
	expectResult(t, "not ready", CheckReadyNow(withConditions(condition)), false)
}

func TestCheckCondition(t *testing.T) {
	check := func(conditions ...metav1.Condition) error {
		return CheckCondition(withConditions(conditions...), echov1.ConditionAvailable, echov1.ReasonServing)
	}
	condition := metav1.Condition{Type: echov1.ConditionAvailable, Reason: echov1.ReasonServing}
	expectResult(t, "same reason", check(condition), true)
	expectResult(t, "no condition", check(), false)
	condition.ObservedGeneration = 1
	expectResult(t, "earlier generation", check(condition), false)
	expectResult(t, "another reason", check(metav1.Condition{Type: echov1.ConditionAvailable, Reason: echov1.ReasonNotServing}), false)
	expectResult(t, "another type", check(metav1.Condition{Type: echov1.ConditionReady, Reason: echov1.ReasonServing}), false)
}

func TestCheckDegraded(t *testing.T) {
	for name, test := range map[string]struct {
		change func(degraded, ready *metav1.Condition)
		pass   bool
	}{
		"degraded for that reason":       {func(_, _ *metav1.Condition) {}, true},
		"another reason":                 {func(d, _ *metav1.Condition) { d.Reason = echov1.ReasonConflict }, false},
		"another message":                {func(d, r *metav1.Condition) { d.Message, r.Message = "other", "other" }, false},
		"earlier generation":             {func(d, _ *metav1.Condition) { d.ObservedGeneration = 1 }, false},
		"Ready is True":                  {func(_, r *metav1.Condition) { r.Status = metav1.ConditionTrue }, false},
		"Ready has another message":      {func(_, r *metav1.Condition) { r.Message = "other" }, false},
		"there is no condition Degraded": {func(d, _ *metav1.Condition) { d.Type = "Other" }, false},
		"there is no condition Ready":    {func(_, r *metav1.Condition) { r.Type = "Other" }, false},
	} {
		degraded := metav1.Condition{Type: echov1.ConditionDegraded, Status: metav1.ConditionTrue, Reason: echov1.ReasonRejected, Message: "quota exceeded"}
		ready := metav1.Condition{Type: echov1.ConditionReady, Status: metav1.ConditionFalse, Message: "quota exceeded"}
		test.change(&degraded, &ready)
		expectResult(t, name, CheckDegraded(withConditions(degraded, ready), echov1.ReasonRejected, "quota"), test.pass)
	}
}

func TestCheckRejected(t *testing.T) {
	condition := metav1.Condition{Type: echov1.ConditionDegraded, Reason: echov1.ReasonRejected, Message: "services is forbidden"}
	expectResult(t, "rejected", CheckRejected(withConditions(condition), "services"), true)
	expectResult(t, "another message", CheckRejected(withConditions(condition), "deployments"), false)
	expectResult(t, "no condition", CheckRejected(withConditions(), "services"), false)
	condition.Reason = echov1.ReasonConflict
	expectResult(t, "another reason", CheckRejected(withConditions(condition), "services"), false)
}

func TestCheckWritesOfCountsTheWritesOfOneEcho(t *testing.T) {
	var writes []proxy.Write
	for _, name := range []string{"one", "two"} {
		for _, r := range []proxy.Request{
			{Verb: "update", Resource: kinds.EchoStatus, Name: name}, {Verb: "create", Resource: "services", Name: kinds.ServerName(name)},
		} {
			writes = append(writes, proxy.Write{Request: r, Code: http.StatusOK})
		}
	}
	if err := CheckWritesOf("one", writes, 2); err != nil {
		t.Errorf("finding %v for two writes of one of two Echoes, want none", err)
	}
	if CheckWritesOf("one", writes, 1) == nil {
		t.Error("no finding for two writes, want one, because one is allowed")
	}
}

func TestRejectedWriteBoundGrowsWithTheTime(t *testing.T) {
	if short, long := RejectedWriteBound(time.Second), RejectedWriteBound(time.Minute); short < 2 || long <= short {
		t.Errorf("bounds of a second and a minute = %d and %d, want more for the longer time", short, long)
	}
}
