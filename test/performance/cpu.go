package main

import (
	"os"
	"time"

	"github.com/prometheus/procfs"
)

// cpuTime is the processor time that this process and those that it has started have used: the
// API server, etcd, and the side that writes. Unlike the wall clock, it does not count what
// other machines on the same host take away.
func cpuTime() (time.Duration, error) {
	all, err := procfs.AllProcs()
	if err != nil {
		return 0, err
	}
	stats := map[int]procfs.ProcStat{}
	for _, process := range all {
		if stat, err := process.Stat(); err == nil { // Others come and go.
			stats[process.PID] = stat
		}
	}
	sum := 0.0
	for pid, stat := range stats {
		if descends(pid, stats) {
			sum += stat.CPUTime()
		}
	}
	return time.Duration(sum * float64(time.Second)), nil
}

// descends tells whether the process is this one, or one that it has started.
func descends(pid int, stats map[int]procfs.ProcStat) bool {
	for ; pid > 1; pid = stats[pid].PPID {
		if pid == os.Getpid() {
			return true
		}
	}
	return false
}
