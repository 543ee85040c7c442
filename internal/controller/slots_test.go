package controller

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// enter enters and fails the test if there is no slot at once.
func enter(t *testing.T, s *slots, namespace string) *slot {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), time.Millisecond)
	defer stop()
	turn, entered := s.enter(ctx, namespace)
	if !entered {
		t.Fatalf("namespace %s: got no slot", namespace)
	}
	return turn
}

func TestASlowCallGivesItsSlotToAnotherReconciliation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlots(1)
		slow := enter(t, s, "slow")
		done := make(chan struct{})
		go func() {
			_ = slow.call(func() error { time.Sleep(10 * time.Second); return nil })
			slow.leave()
			close(done)
		}()
		time.Sleep(2 * slowCall)
		enter(t, s, "other").leave()
		<-done
		if s.slow != 0 || len(s.slowIn) != 0 {
			t.Errorf("slow calls after the end of the last one: %d, %v", s.slow, s.slowIn)
		}
	})
}

func TestAFastCallKeepsItsSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlots(1)
		fast := enter(t, s, "fast")
		_ = fast.call(func() error { time.Sleep(slowCall / 2); return nil })
		ctx, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		if _, entered := s.enter(ctx, "other"); entered {
			t.Error("two reconciliations have the only slot")
		}
	})
}

func TestNamespacesWithSlowCallsLeaveSlotsToOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlots(8)
		end := make(chan struct{})
		defer close(end)
		for n := range 15 {
			namespace := fmt.Sprint("slow-", n)
			for range 2 * maxSlowPerNamespace {
				turn, entered := s.enter(t.Context(), namespace)
				if !entered {
					break
				}
				go func() {
					_ = turn.call(func() error { <-end; return nil })
					turn.leave()
				}()
				time.Sleep(2 * slowCall)
			}
			if got := s.slowIn[namespace]; got < 1 || got > maxSlowPerNamespace {
				t.Fatalf("namespace %s has %d slow calls, want 1 to %d", namespace, got, maxSlowPerNamespace)
			}
			enter(t, s, "other").leave()
		}
		if s.slow > maxSlow {
			t.Errorf("%d slow calls, want at most %d", s.slow, maxSlow)
		}
	})
}
