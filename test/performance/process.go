package main

import (
	"os"
	"time"

	"github.com/prometheus/procfs"
)

// cpuTime is the CPU time that this process and its descendants have used: the API server, etcd,
// and the operator or the baseline client. Unlike wall time, CPU time leaves out what other
// machines on the same host use.
func cpuTime() (time.Duration, error) {
	processes, err := procfs.AllProcs()
	if err != nil {
		return 0, err
	}
	stats := map[int]procfs.ProcStat{}
	for _, process := range processes {
		if stat, err := process.Stat(); err == nil { // A process may have ended since the list.
			stats[process.PID] = stat
		}
	}
	sum := 0.0
	for pid, stat := range stats {
		if isDescendant(pid, stats) {
			sum += stat.CPUTime()
		}
	}
	return time.Duration(sum * float64(time.Second)), nil
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
