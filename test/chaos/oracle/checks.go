package oracle

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/children"
	"github.com/kkloud-io/echo-operator/internal/status"
	"github.com/kkloud-io/echo-operator/test/chaos/kinds"
	"github.com/kkloud-io/echo-operator/test/chaos/proxy"
)

// Findingf returns an error that starts with the kind, namespace and name of an object.
func Findingf(object client.Object, format string, args ...any) error {
	name := object.GetName()
	if object.GetNamespace() != "" {
		name = object.GetNamespace() + "/" + name
	}
	return fmt.Errorf("%s %s: %w", kinds.Of(object), name, fmt.Errorf(format, args...))
}

// The operator under test repeats writes that failed, and writes whose response was dropped. For
// each operator the bound of writes is a multiple of the control operator's, plus some for each
// fault or restart.
const (
	writesPerControlWrite = 2
	writesPerFault        = 2
	extraWrites           = 10
)

// WriteBound returns how many writes a number of operators may make.
func WriteBound(operators, controlWrites, faults int) int {
	return operators*writesPerControlWrite*controlWrites + writesPerFault*faults + extraWrites
}

// CheckWriteBound checks that there are at most so many writes.
func CheckWriteBound(writes []proxy.Write, bound int) error {
	if len(writes) <= bound {
		return nil
	}
	counts := map[string]int{}
	for _, write := range writes {
		counts[fmt.Sprintf("%s %s %d", write.Verb, write.Resource, write.Code)]++
	}
	return fmt.Errorf("operator: made %d writes, want at most %d: %v", len(writes), bound, counts)
}

// CheckNoWrites checks that there are no writes.
func CheckNoWrites(writes []proxy.Write) error {
	if len(writes) > 0 {
		return fmt.Errorf("operator: want no writes in steady state, got %v", writes)
	}
	return nil
}

// Failures returns how many writes failed.
func Failures(writes []proxy.Write) (count int) {
	for _, write := range writes {
		if write.Code >= http.StatusBadRequest {
			count++
		}
	}
	return count
}

// A failed reconciliation makes at most so many requests. Watches that reconnect make at most so
// many in a second.
const (
	requestsPerReconciliation = 4
	watchRequestsPerSecond    = 5
)

// RetryBound returns how many failing requests an operator with that many Echoes may make in a
// duration. For each Echo, the time between two reconciliations doubles, starting with 100 ms.
func RetryBound(d time.Duration, echoes int) int {
	reconciliations := 2
	for due := 100 * time.Millisecond; due <= d; due *= 2 {
		reconciliations++
	}
	return echoes*reconciliations*requestsPerReconciliation + int(d.Seconds())*watchRequestsPerSecond
}

// CheckCount checks that something happened between so many and so many times.
func CheckCount(what string, count, lowest, highest int, d time.Duration) error {
	if count < lowest || count > highest {
		return fmt.Errorf("%s: %d in %s, want %d to %d", what, count, d, lowest, highest)
	}
	return nil
}

// CheckDuration checks that something took no longer than its limit.
func CheckDuration(what string, took, limit time.Duration) error {
	if took > limit {
		return fmt.Errorf("%s: took %s, want at most %s", what, took, limit)
	}
	return nil
}

// CheckSettled checks that each Echo has a status for its newest spec, and that no rollout is in
// progress.
func CheckSettled(echoes []echov1.Echo) error {
	for i := range echoes {
		echo := &echoes[i]
		if err := CheckObserved(echo); err != nil {
			return err
		}
		if status.RolloutInFlight(echo.Status) {
			return Findingf(echo, "want a completed rollout, got %s replicas ready: %s", echo.Status.Ready,
				meta.FindStatusCondition(echo.Status.Conditions, echov1.ConditionProgressing).Message)
		}
	}
	return nil
}

// CheckObserved checks that the status is about the newest spec.
func CheckObserved(echo *echov1.Echo) error {
	if echo.Status.ObservedGeneration != echo.Generation {
		return Findingf(echo, "status.observedGeneration = %d, want %d", echo.Status.ObservedGeneration, echo.Generation)
	}
	return nil
}

// CheckReadyNow checks that the Echo is ready with its newest spec.
func CheckReadyNow(echo *echov1.Echo) error {
	ready := meta.FindStatusCondition(echo.Status.Conditions, echov1.ConditionReady)
	if ready == nil || ready.Status != metav1.ConditionTrue || ready.ObservedGeneration != echo.Generation {
		return Findingf(echo, "want condition Ready=True of generation %d, got %s", echo.Generation, describe(ready))
	}
	return nil
}

// CheckCondition checks the reason of a condition of the Echo's newest spec.
func CheckCondition(echo *echov1.Echo, conditionType, reason string) error {
	condition := meta.FindStatusCondition(echo.Status.Conditions, conditionType)
	if condition == nil || condition.Reason != reason || condition.ObservedGeneration != echo.Generation {
		return Findingf(echo, "want condition %s with reason %s of generation %d, got %s", conditionType, reason, echo.Generation, describe(condition))
	}
	return nil
}

// CheckDegraded checks that the Echo's newest spec is degraded for that reason, with a message that
// contains the text, and that Ready is False with the same message.
func CheckDegraded(echo *echov1.Echo, reason, text string) error {
	degraded := meta.FindStatusCondition(echo.Status.Conditions, echov1.ConditionDegraded)
	ready := meta.FindStatusCondition(echo.Status.Conditions, echov1.ConditionReady)
	if err := CheckCondition(echo, echov1.ConditionDegraded, reason); err != nil {
		return err
	}
	if !strings.Contains(degraded.Message, text) {
		return Findingf(echo, "want condition Degraded with a message that contains %q, got %s", text, describe(degraded))
	}
	if ready == nil || ready.Status != metav1.ConditionFalse || ready.Message != degraded.Message {
		return Findingf(echo, "want condition Ready=False with the message of Degraded, got %s", describe(ready))
	}
	return nil
}

func describe(c *metav1.Condition) string {
	if c == nil {
		return "no such condition"
	}
	return fmt.Sprintf("%s=%s, reason %s, generation %d: %s", c.Type, c.Status, c.Reason, c.ObservedGeneration, c.Message)
}

// CheckGenerations checks that children, by kind and UID, have the same generation as before.
func CheckGenerations(before, after map[string]int64) error {
	if !maps.Equal(before, after) {
		return fmt.Errorf("generations of the children: want no change, were %v, are %v", before, after)
	}
	return nil
}

// CheckRejected checks that the Echo is degraded because the API server rejected a write, with a
// message that contains the text.
func CheckRejected(echo *echov1.Echo, text string) error {
	degraded := meta.FindStatusCondition(echo.Status.Conditions, echov1.ConditionDegraded)
	if degraded == nil || degraded.Reason != echov1.ReasonRejected || !strings.Contains(degraded.Message, text) {
		return Findingf(echo, "want condition Degraded with reason %s and a message that contains %q, got %s", echov1.ReasonRejected, text, describe(degraded))
	}
	return nil
}

// CheckWritesOf checks that the operator made at most so many writes of an Echo and its children.
func CheckWritesOf(echo string, writes []proxy.Write, bound int) error {
	var names []string
	for _, kind := range children.Kinds {
		names = append(names, kinds.ChildName(kind, echo))
	}
	own := slices.DeleteFunc(slices.Clone(writes), func(w proxy.Write) bool {
		isEcho := w.Resource == kinds.Echoes || w.Resource == kinds.EchoStatus
		return isEcho && w.Name != echo || !isEcho && !slices.Contains(names, w.Name)
	})
	return CheckWriteBound(own, bound)
}

// PolicyWriteBound is how many writes an Echo with a policy may cause in the few minutes of a
// scenario: a few for each child and status for each of two edits, a restart and a recovery, and
// those that are repeated after 1 s, 2 s and so on up to 30 s, each of which may roll out.
const PolicyWriteBound = 200

// RejectedWriteBound returns how many writes an Echo may cause in a short time that is rejected or
// reverted by admission: two of each child, and as many of the status.
func RejectedWriteBound(d time.Duration) int {
	return 2 * 2 * (len(kinds.ChildLists()) + int(d.Seconds()))
}

// CheckWaiting checks that the Echo is not ready but not degraded, with a message that contains the
// text.
func CheckWaiting(echo *echov1.Echo, text string) error {
	ready := meta.FindStatusCondition(echo.Status.Conditions, echov1.ConditionReady)
	if err := CheckCondition(echo, echov1.ConditionDegraded, echov1.ReasonAsExpected); err != nil {
		return err
	}
	if ready == nil || ready.Reason != echov1.ReasonRollingOut || !strings.Contains(ready.Message, text) {
		return Findingf(echo, "want condition Ready with reason %s and a message that contains %q, got %s", echov1.ReasonRollingOut, text, describe(ready))
	}
	return nil
}
