package server

import (
	"context"
	"errors"
	"net"
	"runtime"
	"runtime/debug"
	"syscall"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"golang.org/x/sys/unix"
)

const (
	// baseMemory is what the server needs beside connections, connectionMemory what a connection needs while its request
	// arrives, and unsentMemory what the kernel holds at most for a client that does not read: figures are in
	// docs/adr/0011-server.md.
	baseMemory, connectionMemory, unsentMemory = 12 << 20, 12 << 10, 48 << 10
	// One of so many connections has a buffer, and one of so many a large one.
	readersShare, largeHeadsShare = 4, 32
	// sendBuffer and receiveBuffer bound what the kernel keeps for a connection. It doubles them for its own data.
	sendBuffer, receiveBuffer = 16 << 10, 4 << 10
	// threadMemory is the memory limit for each thread.
	threadMemory = 64 << 20
	// otherFiles are the file descriptors that are not connections.
	otherFiles = 64
	// The limits of the number of connections, whatever the memory.
	minConnections, maxConnections = 64, 100_000
)

// LimitMemory keeps the process within the memory limit of its container, if it has one. It returns the number of
// connections that fit into that and into the limit of open files, if each gets the response.
func LimitMemory(response Response) int {
	n := uint64(maxConnections)
	if limit, err := memlimit.FromCgroup(); err == nil && limit < 1<<50 {
		// The rest is the kernel's.
		debug.SetMemoryLimit(int64(limit * 6 / 10))
		runtime.GOMAXPROCS(min(runtime.GOMAXPROCS(0), int(max(1, limit/threadMemory))))
		unsent := min(2*uint64(len(response.Body)), unsentMemory)
		each := connectionMemory + (headSize+unsent)/readersShare + maxHeadSize/largeHeadsShare
		n = min(n, (max(limit*9/10, baseMemory)-baseMemory)/each)
	}
	var files syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files) == nil {
		n = min(n, max(files.Cur, otherFiles)-otherFiles)
	}
	return int(max(n, minConnections))
}

// options are inherited by accepted connections. Small buffers bound what the kernel keeps for a client. The kernel probes
// idle connections, because a NAT or a load balancer forgets flows after some minutes.
var options = [...]struct{ level, name, value int }{
	{unix.SOL_SOCKET, unix.SO_SNDBUF, sendBuffer}, {unix.SOL_SOCKET, unix.SO_RCVBUF, receiveBuffer},
	{unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1}, {unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, 60},
	{unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, 15}, {unix.IPPROTO_TCP, unix.TCP_KEEPCNT, 4},
}

// Listen listens on a TCP address for Serve.
func Listen(ctx context.Context, address string) (net.Listener, error) {
	config := net.ListenConfig{KeepAlive: -1, Control: func(_, _ string, c syscall.RawConn) (err error) {
		controlErr := c.Control(func(fd uintptr) {
			for _, o := range options {
				if err == nil {
					err = unix.SetsockoptInt(int(fd), o.level, o.name, o.value)
				}
			}
		})
		return errors.Join(controlErr, err)
	}}
	config.SetMultipathTCP(false) // It would need more memory.
	return config.Listen(ctx, "tcp", address)
}
