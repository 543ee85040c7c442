package fairqueue

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/util/workqueue"
	_ "sigs.k8s.io/controller-runtime/pkg/controller" // Registers the metrics of work queues.
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

// inBubble runs a test of a queue with a virtual clock. Items are "<namespace>/<name>", and urgent with an
// exclamation mark.
func inBubble(t *testing.T, seats int, test func(t *testing.T, q *Queue[string])) {
	t.Helper()
	inBubbleWith(t, seats, func(item string) bool { return strings.HasSuffix(item, "!") }, test)
}

func inBubbleWith(t *testing.T, seats int, urgent func(string) bool, test func(t *testing.T, q *Queue[string])) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		q := New(Options[string]{
			RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[string](time.Second, time.Second),
			Seats:       seats,
			Namespace: func(item string) string {
				namespace, _, _ := strings.Cut(item, "/")
				return namespace
			},
			Urgent: urgent,
		})
		test(t, q)
		q.ShutDown()
		time.Sleep(2 * time.Hour) // All work ends.
	})
}

// work starts all workers of a queue. An item takes the given time. It returns the items in the order of their starts.
func work(q *Queue[string], seats int, duration func(item string) time.Duration) <-chan string {
	started := make(chan string, 100_000)
	for range Workers(seats) {
		go func() {
			for {
				item, shutDown := q.Get()
				if shutDown {
					return
				}
				started <- item
				time.Sleep(duration(item))
				q.Done(item)
			}
		}()
	}
	return started
}

func millisecond(string) time.Duration { return time.Millisecond }

func add(q *Queue[string], format string, count int) {
	for i := range count {
		q.Add(fmt.Sprintf(format, i))
	}
}

// drain returns the items that were started until now.
func drain(started <-chan string) (items []string) {
	synctest.Wait()
	for len(started) > 0 {
		items = append(items, <-started)
	}
	return items
}

// state has the numbers of free seats, of items in work, and of those without a seat.
type state struct{ free, inWork, slow int }

func stateOf(q *Queue[string]) state {
	q.mu.Lock()
	defer q.mu.Unlock()
	return state{q.free, len(q.seats), q.slow}
}

func inWork(q *Queue[string], namespace string) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.inWork[namespace]
}

func TestNamespacesTakeTurnsHoweverManyItemsOneHas(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, q *Queue[string]) {
		add(q, "many/%d", 10_000)
		started := work(q, 1, millisecond)
		time.Sleep(time.Second)
		drain(started)
		q.Add("other/1")
		time.Sleep(5 * time.Millisecond)
		if items := drain(started); slices.Index(items, "other/1") > 1 || !slices.Contains(items, "other/1") {
			t.Errorf("started %v, want the item of the other namespace to be one of the first two", items)
		}
	})
}

func TestUrgentItemsAndOthersAlternate(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, q *Queue[string]) {
		add(q, "a/%d", 20)
		add(q, "a/%d!", 20)
		started := work(q, 1, millisecond)
		time.Sleep(time.Second)
		for i, item := range drain(started) {
			if urgent := strings.HasSuffix(item, "!"); urgent != (i%2 == 0) {
				t.Fatalf("item %d is %s", i, item)
			}
		}
	})
}

func TestAnItemThatBecomesUrgentOvertakes(t *testing.T) {
	urgent := false
	inBubbleWith(t, 1, func(string) bool { return urgent }, func(t *testing.T, q *Queue[string]) {
		add(q, "a/%d", 100)
		urgent = true
		q.Add("a/99")
		started := work(q, 1, millisecond)
		time.Sleep(time.Second)
		if items := drain(started); items[0] != "a/99" || len(items) != 100 {
			t.Errorf("started %d items, first %s, want 100 and a/99", len(items), items[0])
		}
	})
}

func TestItemsWaitInTheQueueUntilASeatIsFree(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, q *Queue[string]) {
		add(q, "a/%d", 5)
		started := work(q, 2, func(string) time.Duration { return slowAfter / 2 })
		if items := drain(started); len(items) != 2 || q.Len() != 3 {
			t.Errorf("%d items are in work and %d wait, want 2 and 3", len(items), q.Len())
		}
	})
}

func TestASlowItemGivesItsSeatBackForGood(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, q *Queue[string]) {
		q.Add("slow/1")
		started := work(q, 1, func(item string) time.Duration {
			if item == "slow/1" {
				return 10 * slowAfter
			}
			return 7 * slowAfter / 10
		})
		drain(started)
		add(q, "other/%d", 1_000)
		for range 20 {
			time.Sleep(slowAfter)
			synctest.Wait()
			if now := stateOf(q); now.inWork-now.slow > 1 || now.free < 0 || now.free > 1 {
				t.Fatalf("%+v, want one seat", now)
			}
		}
		if items := drain(started); len(items) < 10 {
			t.Errorf("%d items were started beside the slow one, want at least 10", len(items))
		}
		if now := stateOf(q); now.slow != 0 {
			t.Errorf("after the end of the slow item, %d are slow", now.slow)
		}
	})
}

func TestAnItemIsNotInWorkTwice(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, q *Queue[string]) {
		q.Add("a/1")
		started := work(q, 2, func(string) time.Duration { return time.Hour })
		drain(started)
		q.Add("a/1")
		time.Sleep(time.Minute)
		if items := drain(started); len(items) > 0 {
			t.Errorf("started again: %v", items)
		}
		time.Sleep(time.Hour)
		if items := drain(started); len(items) != 1 {
			t.Errorf("started %v after the end of the first, want a/1", items)
		}
	})
}

func TestANamespaceHasAShareOfSlowItems(t *testing.T) {
	const seats = 8
	inBubble(t, seats, func(t *testing.T, q *Queue[string]) {
		hang := func(item string) time.Duration {
			if strings.HasPrefix(item, "slow-") {
				return time.Hour
			}
			return time.Millisecond
		}
		started := work(q, seats, hang)
		for n := range 15 {
			namespace := fmt.Sprintf("slow-%d", n)
			add(q, namespace+"/%d", 10*maxInWork)
			time.Sleep(time.Minute)
			synctest.Wait()
			if got := inWork(q, namespace); got < 1 || got > maxInWork {
				t.Fatalf("namespace %d has %d slow items, want 1 to %d", n, got, maxInWork)
			}
			drain(started)
			q.Add("other/1")
			time.Sleep(time.Second)
			if items := drain(started); !slices.Contains(items, "other/1") {
				t.Fatalf("beside %d slow namespaces: started %v, want other/1", n+1, items)
			}
		}
		if now := stateOf(q); now.slow > maxSlow {
			t.Errorf("%d slow items, want at most %d", now.slow, maxSlow)
		}
	})
}

func TestItemsOfASlowNamespaceGoOnWhenItHasItsShareAgain(t *testing.T) {
	inBubble(t, 8, func(t *testing.T, q *Queue[string]) {
		add(q, "slow/%d", 500)
		started := work(q, 8, func(string) time.Duration { return 10 * time.Second })
		time.Sleep(10 * time.Minute)
		if items := drain(started); len(items) != 500 || q.Len() != 0 {
			t.Errorf("started %d items, %d wait, want 500 and 0", len(items), q.Len())
		}
	})
}

func TestTheEndOfWorkWakesAWorkerThatWaits(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, q *Queue[string]) {
		add(q, "a/%d", 2)
		first, _ := q.Get()
		started := make(chan string, 1)
		go func() {
			item, _ := q.Get()
			started <- item
			q.Done(item)
		}()
		synctest.Wait()
		q.Done(first)
		if items := drain(started); len(items) != 1 {
			t.Errorf("the worker that waited has %v, want one item", items)
		}
	})
}

func TestAPanicFreesOneSeat(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, q *Queue[string]) {
		q.Add("a/1")
		func() {
			defer func() { _ = recover() }()
			item, _ := q.Get()
			defer q.Done(item)
			time.Sleep(2 * slowAfter)
			panic("in a reconciliation")
		}()
		if now := stateOf(q); now != (state{free: 1}) {
			t.Errorf("%+v, want one free seat and nothing else", now)
		}
	})
}

func TestTheMetricsShowTheItemsThatWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New(Options[string]{
			Name:        "test",
			RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[string](time.Second, time.Second),
			Seats:       1, Namespace: func(string) string { return "a" }, Urgent: func(string) bool { return false },
		})
		earlier, earlierSum := metricOf(t, "workqueue_queue_duration_seconds")
		add(q, "%d", 3)
		started := work(q, 1, func(string) time.Duration { return slowAfter / 2 })
		drain(started)
		if depth, _ := metricOf(t, "workqueue_depth"); depth != 2 {
			t.Errorf("workqueue_depth = %v, want 2", depth)
		}
		time.Sleep(time.Second)
		drain(started)
		if count, sum := metricOf(t, "workqueue_queue_duration_seconds"); count-earlier != 3 || sum-earlierSum < 3*slowAfter.Seconds()/2 {
			t.Errorf("workqueue_queue_duration_seconds has %v items more and %v s, want 3 and %v s",
				count-earlier, sum-earlierSum, 3*slowAfter.Seconds()/2)
		}
		q.ShutDown()
		time.Sleep(time.Hour)
	})
}

// metricOf returns the value of a gauge, or the number and the sum of the values of a histogram.
func metricOf(t *testing.T, name string) (value, sum float64) {
	t.Helper()
	families, err := metrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, m := range family.GetMetric() {
			value += m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
			sum += m.GetHistogram().GetSampleSum()
		}
	}
	return value, sum
}

func TestShutDownEndsWorkersThatWaitAndDropsItems(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, q *Queue[string]) {
		started := work(q, 1, func(string) time.Duration { return slowAfter / 2 })
		add(q, "a/%d", 10)
		drain(started)
		q.ShutDown()
		time.Sleep(time.Minute)
		if items := drain(started); len(items) > 0 {
			t.Errorf("started after the shutdown: %v", items)
		}
	})
}
