// Command server measures cmd/http-echo within the limits of a default Echo's container, in turns with HashiCorp's
// http-echo, which it replaces, and with nginx. It needs root, for cgroups, and wrk. Requests per second depend on the
// machine and on its other work; ratios of one run do not.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/kkloud-io/echo-operator/test/internal/process"
)

// openFiles is what a run with 10,000 connections needs.
const openFiles = 15_000

// bench has the figures that are measured so far.
type bench struct {
	ctx     context.Context // of the whole run
	bin     string
	cpu     int // millicores
	check   bool
	figures []string
	missed  []error
}

func main() {
	var b bench
	flag.StringVar(&b.bin, "bin", "../../../bin", "`directory` of the programs")
	flag.IntVar(&b.cpu, "cpu", 100, "`millicores` of each server, of which a machine in software needs more than a container has")
	flag.BoolVar(&b.check, "check", false, "measure only what shows a regression, and fail if a figure misses its target")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	b.ctx = ctx
	err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: openFiles, Max: openFiles})
	steps := []func() error{b.compare, b.manyConnections, b.idleMemory, b.unreadResponses, b.hostileClients}
	if b.check {
		steps = steps[:2]
	} else if !isVersion2() {
		err = errors.Join(err, errVersion1)
	}
	for _, step := range steps {
		if err == nil {
			err = step()
		}
	}
	stop()
	fmt.Printf("\n| figure | value | target | status |\n|---|---|---|---|\n")
	for _, f := range b.figures {
		fmt.Println(f)
	}
	if b.check {
		err = errors.Join(err, errors.Join(b.missed...))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench-server:", err)
		os.Exit(1)
	}
}

const atLeast, atMost = "at least", "at most"

// add adds a figure with its target.
func (b *bench) add(value float64, relation string, target float64, name string, args ...any) {
	name, status := fmt.Sprintf(name, args...), "met"
	if !(relation == atLeast && value >= target || relation == atMost && value <= target) {
		status = "MISSED"
		b.missed = append(b.missed, fmt.Errorf("%s: %.3g, want %s %.3g", name, value, relation, target))
	}
	b.figures = append(b.figures, fmt.Sprintf("| %s | %.3g | %s %.3g | %s |", name, value, relation, target, status))
}

// errVersion1 says why memory is not measured on version 1 of cgroups.
var errVersion1 = errors.New("cgroup v1 charges no socket to a container: use a machine with cgroup v2, as current distributions are")

// addSurvival adds that the limits of the container have not ended the server.
func (b *bench) addSurvival(s *server, when string) {
	b.add(map[bool]float64{false: 1}[s.isAlive()], atMost, 0, "restarts %s", when)
	b.add(s.peak(), atMost, memoryLimit>>20, "peak MiB %s", when)
}

func median(values []float64) float64 { return slices.Sorted(slices.Values(values))[len(values)/2] }

// compare measures requests per second. The servers take turns; the median of three counts.
func (b *bench) compare() error {
	names, d, ratio, decline := []string{ours, "http-echo", "nginx"}, 5*time.Second, 2.0, 0.9
	if b.check { // The median of short turns varies more.
		names, d, ratio, decline = names[:2], 2*time.Second, 1.5, 0.35
	}
	var servers []*server
	for _, name := range names {
		s, err := b.start(name)
		if err != nil {
			return err
		}
		defer s.stop()
		servers = append(servers, s)
	}
	load, _ := os.ReadFile("/proc/loadavg") // Only the reader uses it.
	fmt.Printf("load average %.14s\n\n| server | connections | requests/s | peak MiB | alive |\n|---|---|---|---|---|\n", load)
	rates, connections := map[string]float64{}, []int{50, 500, 2000, 5000}
	of := func(name string, connections int) string { return fmt.Sprint(name, connections) }
	for _, n := range connections {
		count, d := 3, d
		if n > 500 { // Connecting takes seconds, and the figure is compared with the same server's.
			count, d = 1, 3*d
		}
		turns := make([][]float64, len(servers))
		for i := range count * len(servers) {
			s := i % len(servers)
			rate, err := b.load(servers[s], n, d)
			if err != nil {
				return err
			}
			turns[s] = append(turns[s], rate)
		}
		for i, s := range servers {
			rates[of(s.name, n)] = median(turns[i])
			fmt.Printf("| %s | %d | %.0f | %.0f | %t |\n", s.name, n, median(turns[i]), s.peak(), s.isAlive())
		}
	}
	original := max(rates[of("http-echo", 50)], rates[of("http-echo", 500)])
	for _, n := range connections {
		rate := rates[of(ours, n)]
		if n <= 500 {
			b.add(rate/original, atLeast, ratio, "requests/s with %d connections ÷ the best of http-echo", n)
		} else {
			b.add(rate/rates[of(ours, 500)], atLeast, decline, "requests/s with %d connections ÷ those with 500", n)
		}
		if !b.check {
			b.add(rate/rates[of("nginx", n)], atLeast, 0.6, "requests/s with %d connections ÷ those of nginx", n)
		}
	}
	b.addSurvival(servers[0], "with 5,000 connections")
	return nil
}

// manyConnections opens 10,000 connections, of which 2,000 send requests. The median of three turns counts.
func (b *bench) manyConnections() error {
	d := 40 * time.Second
	if b.check {
		d = 5 * time.Second
	}
	const when = "with 10,000 connections, 2,000 of them active"
	var clients, health, rates []float64
	for turn := range 3 {
		s, err := b.start(ours)
		if err != nil {
			return err
		}
		conns := open(s.address, 8000)
		client, check := probe(s.address), probe(s.health)
		rate, err := b.load(s, 2000, d)
		clients, health, rates = append(clients, client().Seconds()), append(health, check().Seconds()), append(rates, rate)
		closeAll(conns)
		b.addSurvival(s, fmt.Sprintf("%s, turn %d", when, turn+1))
		s.stop()
		if err != nil {
			return err
		}
	}
	b.add(median(clients), atMost, 5, "longest response to a new client %s, s", when)
	b.add(median(health), atMost, 5, "longest response to a health check %s, s", when)
	b.add(median(rates), atLeast, 1000, "requests/s %s", when)
	return nil
}

// idleMemory measures what connections cost that wait for a request.
func (b *bench) idleMemory() error {
	s, err := b.start(ours)
	if err != nil {
		return err
	}
	defer s.stop()
	const n = 4000
	before, err := process.PeakMemory(s.process.Process.Pid)
	if err != nil {
		return err
	}
	defer closeAll(open(s.address, n))
	after, err := process.PeakMemory(s.process.Process.Pid)
	b.add(before/(1<<20), atMost, 8, "RSS without connections, MiB")
	b.add((after-before)/n/(1<<10), atMost, 8, "RSS for each idle connection, KiB")
	return err
}

// unreadResponses measures a server whose clients do not read their responses, or only slowly.
func (b *bench) unreadResponses() error {
	for _, size := range []int{12, 16 << 10, 64 << 10} {
		s, err := b.startWith(ours, strings.Repeat("a", size))
		if err != nil {
			return err
		}
		for _, r := range readers {
			clients, health := probe(s.address), probe(s.health)
			stop := r.start(s.address)
			time.Sleep(5 * time.Second)
			stop()
			when := fmt.Sprintf("beside %d clients that %s a response of %d bytes", r.n, r.name, size)
			b.add(clients().Seconds(), atMost, 5, "longest response to a new client %s, s", when)
			b.add(health().Seconds(), atMost, 5, "longest response to a health check %s, s", when)
			b.addSurvival(s, when)
		}
		s.stop()
	}
	return nil
}

// hostileClients compares the requests per second of 50 connections with and without hostile clients, in turns.
func (b *bench) hostileClients() (err error) {
	for _, h := range hostile {
		err = errors.Join(err, b.beside(h))
	}
	return err
}

func (b *bench) beside(h clients) error {
	s, err := b.start(ours)
	if err != nil {
		return err
	}
	defer s.stop()
	var ratios []float64
	for range 3 {
		alone, err := b.load(s, 50, 5*time.Second)
		if err != nil {
			return err
		}
		stop := h.start(s.address)
		disturbed, err := b.load(s, 50, 5*time.Second)
		stop()
		if err != nil {
			return err
		}
		ratios = append(ratios, disturbed/alone)
	}
	b.add(median(ratios), atLeast, 0.9, "requests/s beside %s ÷ those without", h.name)
	b.addSurvival(s, "beside "+h.name)
	return nil
}
