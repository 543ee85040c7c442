package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kkloud-io/echo-operator/internal/testing/controlplane"
)

// memory is what an operator takes, in bytes.
type memory struct {
	// Peak is the most that was resident, as the kernel counts it.
	Peak float64
	// Heap is what was live after a garbage collection, when all was quiet.
	Heap float64
	// Mallocs is the number of allocations of a pass that changes nothing, with the event that
	// brings it.
	Mallocs float64
	// Watches is the number of watches that it began.
	Watches float64
	// APIServer is what was live in the API server after a garbage collection.
	APIServer float64
}

const (
	kib = 1 << 10
	mib = 1 << 20
)

// memoryAt starts the operator on a namespace with n Echoes that it has to write for, and
// measures it. Without Echoes it shows what the program itself takes.
func (s *server) memoryAt(ctx context.Context, n int) (m memory, err error) {
	port, err := controlplane.FreePort()
	if err != nil {
		return m, err
	}
	mark, err := s.audit.Mark()
	if err != nil {
		return m, err
	}
	namespace, _, operator, err := s.startOn(ctx, n, "--pprof-bind-address=127.0.0.1:"+port)
	if err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, operator.Terminate(), s.clear(ctx, namespace)) }()
	if err := pause(ctx, settling); err != nil {
		return m, err
	}
	events, err := s.audit.Since(mark, operatorUser)
	if err != nil {
		return m, err
	}
	m.Watches = countOf("", events, 1).Watches
	if m.Peak, err = peak(operator.PID()); err != nil {
		return m, err
	}
	server, err := s.memStats(ctx)
	if err != nil {
		return m, err
	}
	m.APIServer = server["HeapAlloc"]
	before, err := memStats(ctx, http.DefaultClient, "http://127.0.0.1:"+port)
	m.Heap = before["HeapAlloc"]
	if err != nil || n == 0 {
		return m, err
	}
	if err := s.touch(ctx, namespace, n); err != nil {
		return m, err
	}
	after, err := memStats(ctx, http.DefaultClient, "http://127.0.0.1:"+port)
	m.Mallocs = (after["Mallocs"] - before["Mallocs"]) / float64(n)
	return m, err
}

// touch labels every Deployment, which brings every Echo into one more pass, and waits for them.
func (s *server) touch(ctx context.Context, namespace string, n int) error {
	if err := each(ctx, n, writers, func(ctx context.Context, i int) error {
		deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprint("echo-e", i)}}
		return s.plane.Client.Patch(ctx, deployment, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"touched":"yes"}}}`)))
	}); err != nil {
		return err
	}
	return pause(ctx, settling)
}

// peak reads the most memory that was resident from the kernel's account of the process.
func peak(pid int) (float64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if rest, found := strings.CutPrefix(line, "VmHWM:"); found {
			size, err := strconv.ParseFloat(strings.Fields(rest)[0], 64)
			return size * kib, err
		}
	}
	return 0, fmt.Errorf("process %d has no VmHWM", pid)
}

// memStats is that of the API server.
func (s *server) memStats(ctx context.Context) (map[string]float64, error) {
	c, err := rest.HTTPClientFor(s.plane.Config)
	if err != nil {
		return nil, err
	}
	return memStats(ctx, c, s.plane.Config.Host)
}

// memStats collects garbage in the program at the address, and reads what its runtime counts.
func memStats(ctx context.Context, c *http.Client, address string) (map[string]float64, error) {
	profile, err := url.JoinPath(address, "debug", "pprof", "heap")
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, profile+"?gc=1&debug=1", nil)
	if err != nil {
		return nil, err
	}
	response, err := c.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }() // It was read.
	stats := map[string]float64{}
	for lines := bufio.NewScanner(response.Body); lines.Scan(); {
		name, value, found := strings.Cut(strings.TrimPrefix(lines.Text(), "# "), " = ")
		if number, err := strconv.ParseFloat(value, 64); found && err == nil {
			stats[name] = number
		}
	}
	if stats["HeapAlloc"] == 0 {
		return nil, fmt.Errorf("%s answered %s, and no HeapAlloc", profile, response.Status)
	}
	return stats, nil
}

// addForeign makes Deployments and Services that are nobody's Echo's.
func (s *server) addForeign(ctx context.Context, n int) error {
	namespace, err := s.newNamespace(ctx)
	if err != nil {
		return err
	}
	return each(ctx, n, writers, func(ctx context.Context, i int) error {
		labels := map[string]string{"app": fmt.Sprint("foreign-", i)}
		meta := metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprint("foreign-", i), Labels: labels}
		deployment := &appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: controlplane.ServerImage}}},
			},
		}}
		service := &corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{Selector: labels, Ports: []corev1.ServicePort{{Port: 80}}}}
		return errors.Join(s.plane.Client.Create(ctx, deployment), s.plane.Client.Create(ctx, service))
	})
}
