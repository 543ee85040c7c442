// Package process measures the memory and the CPU time of a running program.
package process

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/procfs"
)

// PeakMemory is the peak resident memory of a process, in bytes.
func PeakMemory(pid int) (float64, error) {
	process, err := procfs.NewProc(pid)
	if err != nil {
		return 0, err
	}
	status, err := process.NewStatus()
	return float64(status.VmHWM), err
}

// CPUTime is the CPU time that a process has used since its start.
func CPUTime(pid int) (time.Duration, error) {
	process, err := procfs.NewProc(pid)
	if err != nil {
		return 0, err
	}
	stat, err := process.Stat()
	return time.Duration(stat.CPUTime() * float64(time.Second)), err
}

// MemStats runs a garbage collection in the program whose pprof endpoint has the address, and
// returns the fields of its runtime.MemStats.
func MemStats(ctx context.Context, c *http.Client, address string) (map[string]float64, error) {
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
	defer func() { _ = response.Body.Close() }() // The body is read; nothing is left to fail.
	stats := map[string]float64{}
	for lines := bufio.NewScanner(response.Body); lines.Scan(); {
		name, value, found := strings.Cut(strings.TrimPrefix(lines.Text(), "# "), " = ")
		if number, err := strconv.ParseFloat(value, 64); found && err == nil {
			stats[name] = number
		}
	}
	if stats["HeapAlloc"] == 0 {
		return nil, fmt.Errorf("%s returned %s without HeapAlloc", profile, response.Status)
	}
	return stats, nil
}
