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
	turn, entered := s.enter(ctx, line{namespace: namespace})
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
		if _, entered := s.enter(ctx, line{namespace: "other"}); entered {
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
				turn, entered := s.enter(t.Context(), line{namespace: namespace})
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

func TestReconciliationsThatWaitForASlotDoNotExceedTheShareOfTheirNamespace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const slotCount = 8
		s := newSlots(slotCount)
		end := make(chan struct{})
		defer close(end)
		for range maxSlow + 2*slotCount {
			go func() {
				if turn, entered := s.enter(t.Context(), line{namespace: "slow"}); entered {
					_ = turn.call(func() error { <-end; return nil })
					turn.leave()
				}
			}()
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := s.slowIn["slow"]; got < maxSlowPerNamespace || got > maxSlowPerNamespace+slotCount {
			t.Errorf("the namespace has %d slow calls, want %d to %d", got, maxSlowPerNamespace, maxSlowPerNamespace+slotCount)
		}
	})
}

func TestLinesThatWaitForASlotTakeTurns(t *testing.T) {
	many := line{namespace: "many"}
	for _, other := range []line{{namespace: "other"}, {namespace: "many", newSpec: true}} {
		synctest.Test(t, func(t *testing.T) {
			s := newSlots(1)
			order := make(chan line, 100)
			wait := func(l line) {
				go func() {
					turn, _ := s.enter(t.Context(), l)
					order <- l
					turn.leave()
				}()
				synctest.Wait()
			}
			first := enter(t, s, "many")
			for range 90 {
				wait(many)
			}
			wait(other)
			ctx, stop := context.WithCancel(t.Context())
			go func() {
				if _, entered := s.enter(ctx, many); entered {
					t.Error("a reconciliation entered after its context had ended")
				}
			}()
			synctest.Wait()
			stop()
			first.leave()
			synctest.Wait()
			if got := []line{<-order, <-order}; got[1] != other {
				t.Errorf("the first two are of the lines %v, want the second to be of the line %v", got, other)
			}
			if s.free != 1 || len(s.waiting) != 0 || len(order) != 89 {
				t.Errorf("afterwards: %d free slots, %d lines that wait, %d more reconciliations, want 1, 0, 89", s.free, len(s.waiting), len(order))
			}
		})
	}
}
