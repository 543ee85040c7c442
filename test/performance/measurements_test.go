package performance

import (
	"fmt"
	"net/http"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/children"
	"github.com/kkloud-io/echo-operator/internal/status"
	"github.com/kkloud-io/echo-operator/internal/testing/controlplane"
	"github.com/kkloud-io/echo-operator/test/internal/process"
)

// duration is the time from a writer's first write to the end of its last, and its CPU time, in
// seconds. Unlike wall time, CPU time leaves out what other programs on the machine use.
type duration struct{ wall, cpu float64 }

// measureTimes measures the operator and the baseline client in turn, with n new Echoes and with an
// edit of all of them.
func (e *environment) measureTimes(n, runs int) {
	var wall, wallRatios, cpu, cpuRatios [2][]float64
	for range runs {
		baseline, operator := e.timeBaseline(n), e.timeOperator(n)
		for i := range operator {
			wall[i], cpu[i] = append(wall[i], operator[i].wall), append(cpu[i], operator[i].cpu)
			wallRatios[i] = append(wallRatios[i], operator[i].wall/baseline[i].wall)
			cpuRatios[i] = append(cpuRatios[i], operator[i].cpu/baseline[i].cpu)
		}
	}
	// On a busy machine, a ratio varies by a tenth.
	for i, tolerance := range []float64{0.25, 0.3} {
		operation := []string{"create", "edit of the message"}[i]
		report(fmt.Sprintf("time to converge, in s: %s of %d Echoes", operation, n), wall[i])
		report("time to converge, relative to the baseline client: "+operation, wallRatios[i])
		report(fmt.Sprintf("CPU time, in s: %s of %d Echoes", operation, n), cpu[i])
		e.compare("CPU time relative to the baseline client: "+operation, 0, tolerance, cpuRatios[i]...)
	}
}

// timeOperator starts the operator on Echoes that exist, whose start does not count.
func (e *environment) timeOperator(n int) (durations [2]duration) {
	namespace := e.createNamespace()
	echoes := e.createEchoes(namespace, n)
	for i := range durations {
		if i > 0 {
			e.must(e.editEchoes(echoes, editMessage))
		}
		operator := e.startOperator([]string{namespace})
		durations[i] = e.timeWriter(operator.PID(), operatorUser, func() { e.await(namespace, operator, isConverged) })
		e.must(operator.Terminate())
	}
	e.deleteEchoes(namespace)
	return durations
}

// timeBaseline has the baseline client, which is a part of this process, write the same.
func (e *environment) timeBaseline(n int) [2]duration {
	namespace := e.createNamespace()
	echoes, observed := e.createEchoes(namespace, n), make([]status.Observation, n)
	create := e.timeWriter(os.Getpid(), baselineUser, func() {
		e.must(forEach(n, func(i int) (err error) {
			observed[i], err = e.createChildren(echoes[i])
			return err
		}))
	})
	e.must(e.editEchoes(echoes, editMessage))
	edit := e.timeWriter(os.Getpid(), baselineUser, func() {
		e.must(forEach(n, func(i int) error { return e.updateChildren(echoes[i], observed[i]) }))
	})
	e.deleteEchoes(namespace)
	return [2]duration{create, edit}
}

// timeWriter measures a process that writes as a user, by the clock of the API server.
func (e *environment) timeWriter(pid int, user string, write func()) duration {
	mark, err := e.audit.Mark()
	e.must(err)
	before, err := process.CPUTime(pid)
	e.must(err)
	write()
	after, err := process.CPUTime(pid)
	e.must(err)
	var received, completed []time.Time
	for _, event := range e.since(mark, user) {
		if isWrite(event) && event.ObjectRef.Resource != "events" {
			received, completed = append(received, event.RequestReceivedTimestamp), append(completed, event.StageTimestamp)
		}
	}
	if len(received) == 0 {
		e.Fatalf("the audit log has no writes of user %s", user)
	}
	wall := slices.MaxFunc(completed, time.Time.Compare).Sub(slices.MinFunc(received, time.Time.Compare))
	return duration{wall: wall.Seconds(), cpu: (after - before).Seconds()}
}

// measureMemory measures the operator before and after n new Echoes have converged. Beside them are
// as many uncontrolled objects, which the operator must not hold.
func (e *environment) measureMemory(n int) {
	address := e.freeAddress()
	mark, err := e.audit.Mark()
	e.must(err)
	namespace := e.createNamespace()
	operator := e.startOperator([]string{namespace}, "--pprof-bind-address="+address)
	empty := e.liveHeap(address)
	e.createUncontrolled(namespace, n)
	e.createEchoes(namespace, n)
	e.await(namespace, operator, isConverged)
	heap := (e.liveHeap(address) - empty) / float64(n)
	peak := e.peakMemory(operator)
	before := e.memStats(address)["Mallocs"]
	// A new label of every Deployment triggers a reconciliation of every Echo.
	label := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"touched":"yes"}}}`))
	e.must(forEach(n, func(i int) error {
		deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: children.Name(newEcho(namespace, fmt.Sprint("e", i)))}}
		return e.admin.Patch(e.Context(), deployment, label)
	}))
	time.Sleep(settleTime)
	mallocs := e.memStats(address)["Mallocs"] - before
	report(fmt.Sprintf("peak memory with %d Echoes, in MiB", n), []float64{peak})
	e.compare("live memory per Echo, in KiB", 0, 0.03, heap/1024)
	e.compare("allocations per reconciliation without a change", 0, 0.05, mallocs/float64(n))
	e.compare("watches", 0, 0, e.countWatches(mark))
	e.must(operator.Terminate())
	e.deleteEchoes(namespace)
}

func (e *environment) memStats(address string) map[string]float64 {
	stats, err := process.MemStats(e.Context(), http.DefaultClient, "http://"+address)
	e.must(err)
	return stats
}

// liveHeap returns the least of three, because on a busy machine buffers are live for some time
// after the last request.
func (e *environment) liveHeap(address string) float64 {
	var samples []float64
	for range 3 {
		time.Sleep(settleTime)
		samples = append(samples, e.memStats(address)["HeapAlloc"])
	}
	return slices.Min(samples)
}

func (e *environment) peakMemory(operator *controlplane.Operator) float64 {
	peak, err := process.PeakMemory(operator.PID())
	e.must(err)
	return peak / (1 << 20)
}

// createUncontrolled creates n objects of each kind of child that no Echo controls, and that do
// not carry the operator's labels.
func (e *environment) createUncontrolled(namespace string, n int) {
	e.must(forEach(n, func(i int) error {
		echo := newEcho(namespace, fmt.Sprint("uncontrolled-", i))
		echo.Spec.Port, echo.Spec.TargetPort = 80, 5678
		for _, object := range newChildren(echo) {
			object.SetLabels(nil)
			object.SetOwnerReferences(nil)
			if err := e.admin.Create(e.Context(), object); err != nil {
				return err
			}
		}
		return nil
	}))
}

// measureStarts restarts the operator on n converged Echoes.
func (e *environment) measureStarts(n, runs int) {
	namespace := e.createNamespace()
	e.createEchoes(namespace, n)
	operator := e.startOperator([]string{namespace})
	e.await(namespace, operator, isConverged)
	var first, cpu, peak []float64
	for range runs {
		time.Sleep(settleTime)
		e.must(operator.Terminate())
		begin := time.Now()
		operator = e.startOperator([]string{namespace}, "--metrics-bind-address="+e.metricsAddress)
		first = append(first, time.Since(begin).Seconds())
		e.poll("the operator has reconciled every Echo", operator, 50*time.Millisecond, func() (bool, error) { return e.reconciliations(operator) >= float64(n), nil })
		used, err := process.CPUTime(operator.PID())
		e.must(err)
		cpu, peak = append(cpu, used.Seconds()), append(peak, e.peakMemory(operator))
	}
	e.must(operator.Terminate())
	e.deleteEchoes(namespace)
	name := fmt.Sprintf("a start with %d Echoes: ", n)
	report(name+"time until the first reconciliation, in s", first)
	report(name+"CPU time until all are reconciled, in s", cpu)
	report(name+"peak memory, in MiB", peak)
}

// newEchoes is the number of new Echoes, one after the other, of a measurement.
const newEchoes = 12

// measureReady measures how long a new Echo takes until it is ready.
func (e *environment) measureReady() {
	namespace := e.createNamespace()
	operator := e.startOperator([]string{namespace})
	var ready []float64
	for i := range newEchoes {
		ready = append(ready, e.timeNewEcho(namespace, i, func(echo *echov1.Echo) { e.awaitEcho(operator, echo, isReady) }))
	}
	e.must(operator.Terminate())
	report("a new Echo: time until it is ready, in s", ready)
}

// measureIsolation measures how long a new Echo takes while all n Echoes of another namespace are
// edited continuously, and how long the baseline client takes for the same writes at that moment.
func (e *environment) measureIsolation(n, runs int) {
	crowd, namespace, other := e.createNamespace(), e.createNamespace(), e.createNamespace()
	echoes := e.createEchoes(crowd, n)
	operator := e.startOperator([]string{crowd, namespace})
	e.await(crowd, operator, isConverged)
	var stop atomic.Bool
	var edits errgroup.Group
	edits.Go(func() (err error) {
		for round := 0; err == nil && !stop.Load(); round++ {
			err = e.editEchoes(echoes, func(spec *echov1.EchoSpec) { spec.Message = fmt.Sprint("edit ", round) })
		}
		return err
	})
	var converged, ratios []float64
	for i := range newEchoes * runs {
		time.Sleep(time.Second)
		took := e.timeNewEcho(namespace, i, func(echo *echov1.Echo) { e.awaitEcho(operator, echo, isConverged) })
		baseline := e.timeNewEcho(other, i, func(echo *echov1.Echo) {
			_, err := e.createChildren(echo)
			e.must(err)
		})
		converged, ratios = append(converged, took), append(ratios, took/baseline)
	}
	stop.Store(true)
	e.must(edits.Wait())
	e.must(operator.Terminate())
	name := fmt.Sprintf("a new Echo while another namespace edits %d: ", n)
	report(name+"time to converge, in s", converged)
	report(name+"time relative to the baseline client", ratios)
}

// timeNewEcho returns the seconds from the creation of an Echo to the end of finish.
func (e *environment) timeNewEcho(namespace string, i int, finish func(*echov1.Echo)) float64 {
	echo := newEcho(namespace, fmt.Sprint("new-", i))
	begin := time.Now()
	e.must(e.admin.Create(e.Context(), echo))
	finish(echo)
	return time.Since(begin).Seconds()
}

func (e *environment) awaitEcho(operator *controlplane.Operator, echo *echov1.Echo, condition func(*echov1.Echo) bool) {
	e.poll("Echo "+echo.Name+" has the expected status", operator, 10*time.Millisecond, func() (bool, error) {
		err := e.admin.Get(e.Context(), client.ObjectKeyFromObject(echo), echo)
		return err == nil && condition(echo), err
	})
}
