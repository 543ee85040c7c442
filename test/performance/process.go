package main

import (
	"os"
	"time"

	"github.com/prometheus/procfs"
)

// cpuTimes are the CPU times of processes. Unlike wall time, CPU time leaves out what other machines
// on the same host use.
type cpuTimes struct {
	// all is that of this process and its descendants: the API server, etcd, and the operator or the
	// baseline client.
	all time.Duration
	// apiServer is that of the API server.
	apiServer time.Duration
	// writer is that of the operator, or of this process, which contains the baseline client.
	writer time.Duration
}

// readCPUTimes reads the CPU times that the processes have used since their start. writer is a process
// ID.
func readCPUTimes(writer int) (t cpuTimes, err error) {
	processes, err := procfs.AllProcs()
	if err != nil {
		return t, err
	}
	stats := map[int]procfs.ProcStat{}
	for _, process := range processes {
		if stat, err := process.Stat(); err == nil { // A process may have ended since the list.
			stats[process.PID] = stat
		}
	}
	for pid, stat := range stats {
		if !isDescendant(pid, stats) {
			continue
		}
		used := time.Duration(stat.CPUTime() * float64(time.Second))
		t.all += used
		if stat.Comm == "kube-apiserver" {
			t.apiServer += used
		}
		if pid == writer {
			t.writer = used
		}
	}
	return t, nil
}

// measureCPU returns the CPU times that the processes use during a function.
func measureCPU(writer int, function func() error) (used cpuTimes, err error) {
	before, err := readCPUTimes(writer)
	if err != nil {
		return used, err
	}
	if err := function(); err != nil {
		return used, err
	}
	after, err := readCPUTimes(writer)
	return cpuTimes{all: after.all - before.all, apiServer: after.apiServer - before.apiServer, writer: after.writer - before.writer}, err
}

// isDescendant reports whether the process is this one or one of its descendants.
func isDescendant(pid int, stats map[int]procfs.ProcStat) bool {
	for ; pid > 1; pid = stats[pid].PPID {
		if pid == os.Getpid() {
			return true
		}
	}
	return false
}
