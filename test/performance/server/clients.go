package main

import (
	"context"
	"io"
	"net"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	request = "GET / HTTP/1.1\r\nHost: a\r\n\r\n"
	upload  = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1073741824\r\n\r\n"
)

// openers is how many connections are opened at the same time: one after the other, each would wait for CPU time.
const openers = 20

// open opens connections that send a request, and returns those that have a response. n is a multiple of openers.
func open(address string, n int) (conns []net.Conn) {
	opened := make(chan net.Conn)
	for range openers {
		go func() {
			for range n / openers {
				opened <- exchange(address)
			}
		}()
	}
	for range n {
		if conn := <-opened; conn != nil {
			conns = append(conns, conn)
		}
	}
	return conns
}

// timeout is the time that a client waits.
const timeout = 10 * time.Second

// exchange returns a connection after its first response, or nil.
func exchange(address string) net.Conn {
	conn, err := net.DialTimeout("tcp", address, timeout)
	if err != nil {
		return nil
	}
	_ = conn.SetDeadline(time.Now().Add(timeout)) // The errors follow.
	_, _ = io.WriteString(conn, request)
	if _, err := conn.Read(make([]byte, 512)); err != nil {
		_ = conn.Close()
		return nil
	}
	return conn
}

func closeAll(conns []net.Conn) {
	for _, conn := range conns {
		_ = conn.Close()
	}
}

// probe sends requests over new connections until the returned function is called. That function returns the longest
// time to a response, which is at least the timeout if one is missing.
func probe(address string) (longest func() time.Duration) {
	ctx, stop := context.WithCancel(context.Background())
	result := make(chan time.Duration)
	go func() {
		maximum := time.Duration(0)
		for ; ctx.Err() == nil; time.Sleep(100 * time.Millisecond) {
			begin := time.Now()
			conn := exchange(address)
			if maximum = max(maximum, time.Since(begin)); conn == nil {
				maximum = timeout
				continue
			}
			_ = conn.Close()
		}
		result <- maximum
	}()
	return func() time.Duration { stop(); return <-result }
}

// hostile are clients that send parts with pauses, and connect again a second after they are disconnected. Silent ones
// stay disconnected: 10,000 clients that connect every second are a flood, which takes the CPU of any server.
var hostile = []clients{
	{"100 heads at a byte per second", 100, request[:20], "a", time.Second},
	{"100 bodies at a byte per second", 100, upload, "a", time.Second},
	{"10 bodies of 1 GiB", 10, upload, strings.Repeat("a", 64<<10), 0},
	{"10 heads of 64 KiB", 10, request[:len(request)-2] + "X: ", strings.Repeat("a", 64<<10) + "\r\n\r\n", 0},
	{"2,000 heads that stop in the middle", 2000, request[:len(request)-2] + "X: " + strings.Repeat("a", 5000), "", time.Second},
	{"10,000 silent connections", 10_000, "", "", time.Second},
}

// readers are clients with a small receive buffer that send a request, and read a byte each second, or nothing.
var readers = []reading{
	{"do not read", 8000, request, false}, {"do not read", 12_000, closingRequest, false},
	{"read slowly", 8000, request, true}, {"read slowly", 8000, closingRequest, true},
	{"pipeline and do not read", 8000, strings.Repeat(request, 30), false},
}

const closingRequest = "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"

type reading struct {
	name    string
	n       int
	request string
	reads   bool
}

// start starts the clients, and returns after they are connected, or have waited for that.
func (r reading) start(address string) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	dialer := net.Dialer{Timeout: timeout, Control: func(_, _ string, raw syscall.RawConn) error {
		return raw.Control(func(fd uintptr) { _ = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 2304) })
	}}
	var group sync.WaitGroup
	for range r.n {
		group.Go(func() {
			conn, err := dialer.DialContext(ctx, "tcp", address)
			if err != nil {
				return
			}
			defer conn.Close()
			_, err = io.WriteString(conn, r.request)
			for ctx.Err() == nil && err == nil {
				if r.reads {
					_ = conn.SetReadDeadline(time.Now().Add(timeout)) // The read reports the error.
					_, err = conn.Read(make([]byte, 1))
				}
				select {
				case <-time.After(time.Second):
				case <-ctx.Done():
				}
			}
		})
		time.Sleep(100 * time.Microsecond)
	}
	return func() { cancel(); group.Wait() }
}

type clients struct {
	name        string
	n           int
	first, next string
	pause       time.Duration
}

// start starts the clients, and returns after they are connected.
func (c clients) start(address string) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var group sync.WaitGroup
	for range c.n {
		group.Go(func() {
			for c.connect(ctx, address); ctx.Err() == nil && c.next != ""; {
				c.connect(ctx, address)
			}
		})
		time.Sleep(100 * time.Microsecond) // The queue of new connections is bounded.
	}
	time.Sleep(time.Second)
	return func() { cancel(); group.Wait() }
}

// connect sends until the server or the context ends the connection.
func (c clients) connect(ctx context.Context, address string) {
	pause := func(d time.Duration) {
		select {
		case <-time.After(d):
		case <-ctx.Done():
		}
	}
	defer pause(time.Second)
	conn, err := (&net.Dialer{Timeout: timeout}).DialContext(ctx, "tcp", address)
	if err != nil {
		return
	}
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	defer conn.Close()
	_, err = io.WriteString(conn, c.first)
	for err == nil {
		if _, err = io.WriteString(conn, c.next); c.next == "" {
			_, err = conn.Read(make([]byte, 1)) // It waits until the server disconnects it.
		}
		pause(c.pause)
	}
}
