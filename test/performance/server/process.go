package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The memory limit of a default Echo's container, and the period of its CPU quota in microseconds.
const memoryLimit, cpuPeriod = 128 << 20, 100_000

const nginxConf = `daemon off; master_process off; pid %[1]s/pid; error_log /dev/null; events { worker_connections 10000; }
http { access_log off; client_body_temp_path %[1]s/a; proxy_temp_path %[1]s/b; fastcgi_temp_path %[1]s/c; uwsgi_temp_path %[1]s/d;
scgi_temp_path %[1]s/e; server { listen %[2]s backlog=4096; location / { return 200 "maintenance\n"; } } }`

// ours is the program that make builds of cmd/http-echo.
const ours = "server"

// server is a process with the limits of a container.
type server struct {
	name, address, health string
	process               *exec.Cmd
	groups                []string // directories of its cgroups
	ended                 chan struct{}
}

// start starts nginx, http-echo or ours, and waits until it listens.
func (b *bench) start(name string) (*server, error) { return b.startWith(name, "maintenance") }

// startWith is start with another text, except for nginx.
func (b *bench) startWith(name, text string) (*server, error) {
	s := &server{name: name, ended: make(chan struct{})}
	for _, address := range []*string{&s.address, &s.health} {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		*address = listener.Addr().String()
		_ = listener.Close() // The server fails if its port is in use.
	}
	if err := s.limit(b.cpu * cpuPeriod / 1000); err != nil {
		return nil, fmt.Errorf("limit the resources of %s, which needs root: %w", name, err)
	}
	directory, err := os.MkdirTemp("", "bench-server-")
	configuration := filepath.Join(directory, "nginx.conf")
	if err := errors.Join(err, os.WriteFile(configuration, fmt.Appendf(nil, nginxConf, directory, s.address), 0o600)); err != nil {
		return nil, err
	}
	command := map[string][]string{
		"nginx":     {"-c", configuration},
		"http-echo": {"-text=" + text, "-listen", s.address},
		ours:        {"-text=" + text, "-listen", s.address, "-health-listen", s.health},
	}[name]
	// The shell enters the cgroups, and becomes the server.
	const enter = `while [ "$1" != -- ]; do echo $$ >"$1/cgroup.procs"; shift; done; shift; exec "$@"`
	s.process = exec.Command("sh", slices.Concat([]string{"-ec", enter, "sh"}, s.groups, []string{"--", filepath.Join(b.bin, name)}, command)...)
	if err := s.process.Start(); err != nil {
		return nil, err
	}
	go func() {
		_ = s.process.Wait() // That it ended says enough.
		_ = os.RemoveAll(directory)
		close(s.ended)
	}()
	for end := time.Now().Add(time.Minute); time.Now().Before(end) && s.isAlive(); time.Sleep(time.Millisecond) {
		if conn, err := net.Dial("tcp", s.address); err == nil {
			return s, conn.Close()
		}
	}
	s.stop()
	return nil, fmt.Errorf("%s does not listen on %s", name, s.address)
}

func (s *server) isAlive() bool {
	select {
	case <-s.ended:
		return false
	default:
		return true
	}
}

func (s *server) stop() {
	_ = s.process.Process.Kill() // It may have ended.
	<-s.ended
	for _, group := range s.groups { // The kernel removes the process from them a little later.
		for end := time.Now().Add(5 * time.Second); os.Remove(group) != nil && time.Now().Before(end); time.Sleep(time.Millisecond) {
		}
	}
}

const cgroups = "/sys/fs/cgroup"

// isVersion2 reports whether this machine has version 2 of cgroups.
func isVersion2() bool {
	_, err := os.Stat(cgroups + "/cgroup.controllers")
	return err == nil
}

// limit creates the cgroups, of version 1 or 2, with the CPU quota in microseconds. Their share keeps other work on this machine from slowing the server.
func (s *server) limit(cpuQuota int) error {
	files := [][2]string{
		{"cpu/%s/cpu.cfs_period_us", strconv.Itoa(cpuPeriod)}, {"cpu/%s/cpu.cfs_quota_us", strconv.Itoa(cpuQuota)},
		{"cpu/%s/cpu.shares", "20480"}, {"memory/%s/memory.limit_in_bytes", strconv.Itoa(memoryLimit)},
		// Version 1 does not limit TCP buffers together with the rest, but it counts them if they have a limit.
		{"memory/%s/memory.kmem.tcp.limit_in_bytes", strconv.Itoa(1 << 30)},
	}
	if isVersion2() {
		if err := os.WriteFile(cgroups+"/cgroup.subtree_control", []byte("+cpu +memory"), 0); err != nil {
			return err
		}
		files = [][2]string{
			{"%s/cpu.max", fmt.Sprint(cpuQuota, " ", cpuPeriod)}, {"%s/cpu.weight", "2000"},
			{"%s/memory.max", strconv.Itoa(memoryLimit)}, {"%s/memory.swap.max", "0"},
		}
	}
	for _, file := range files {
		path := filepath.Join(cgroups, fmt.Sprintf(file[0], fmt.Sprintf("bench-server-%d-%s", os.Getpid(), s.name)))
		if group := filepath.Dir(path); !slices.Contains(s.groups, group) {
			s.groups = append(s.groups, group)
			if err := os.Mkdir(group, 0o755); err != nil { //nolint:gosec // The mode has no effect on cgroups.
				return err
			}
		}
		if err := os.WriteFile(path, []byte(file[1]), 0); err != nil {
			return err
		}
	}
	return nil
}

// peak is the peak memory of the cgroup, with the kernel's part, in MiB. On version 1 it is the sum of two peaks, which may
// have been at different times.
func (s *server) peak() (sum float64) {
	for _, file := range []string{"memory.peak", "memory.max_usage_in_bytes", "memory.kmem.tcp.max_usage_in_bytes"} {
		for _, group := range s.groups {
			text, _ := os.ReadFile(filepath.Join(group, file)) // The other version has other files.
			bytes, _ := strconv.ParseFloat(strings.TrimSpace(string(text)), 64)
			sum += bytes / (1 << 20)
		}
	}
	return sum
}

var requestsPerSecond = regexp.MustCompile(`Requests/sec: +([0-9.]+)`)

// load returns the requests per second that clients get over connections which they keep; none from a killed server.
func (b *bench) load(s *server, connections int, d time.Duration) (float64, error) {
	args := strings.Fields(fmt.Sprintf("-t2 -c%d -d%.0fs --timeout 5s http://%s/", connections, d.Seconds(), s.address))
	output, err := exec.CommandContext(b.ctx, "wrk", args...).CombinedOutput()
	match := requestsPerSecond.FindSubmatch(output)
	switch {
	case !s.isAlive():
		return 0, nil
	case err != nil || match == nil:
		return 0, fmt.Errorf("wrk: %w: %s", err, output)
	}
	return strconv.ParseFloat(string(match[1]), 64)
}
