package server

import (
	"runtime/debug"
	"syscall"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

const (
	// baseMemory is what the server needs beside connections. connectionMemory is what a connection needs while its
	// request arrives, with the kernel's part: figures are in docs/adr/0011-server.md.
	baseMemory, connectionMemory = 12 << 20, 9 << 10
	// otherFiles are the file descriptors that are not connections.
	otherFiles = 64
	// The limits of the number of connections, whatever the memory.
	minConnections, maxConnections = 64, 100_000
)

// LimitMemory keeps the process within the memory limit of its container, if it has one. It returns the number of
// connections that fit into that and into the limit of open files.
func LimitMemory() int {
	n := uint64(maxConnections)
	if limit, err := memlimit.FromCgroup(); err == nil && limit < 1<<50 {
		debug.SetMemoryLimit(int64(limit * 8 / 10))
		n = min(n, (max(limit*9/10, baseMemory)-baseMemory)/connectionMemory)
	}
	var files syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files) == nil {
		n = min(n, max(files.Cur, otherFiles)-otherFiles)
	}
	return int(max(n, minConnections))
}
