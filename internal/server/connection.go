package server

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/valyala/fasthttp"
)

const (
	// headSize is the size of a buffer. A larger head gets one of maxLargeHeads buffers of maxHeadSize.
	headSize, maxHeadSize, maxLargeHeads = 4 << 10, 32 << 10, 64
	// maxBodySize is how much of a request's body the server reads to keep the connection.
	maxBodySize = 256 << 10
)

// The phases of a connection.
const (
	fresh       int32 = iota // waits for the first request
	idle                     // waits for another request
	waiting                  // waits for a buffer: a request has arrived
	readingHead              // reads a request until its body
	responding
	readingBody
	lingering // waits until the client has read an early response
	closed
)

// limits are the longest times in the phases. A proxy must close an idle connection before the server
// does, otherwise it sends requests into a closing connection. Load balancers keep them for up to ten minutes.
var limits = [...]time.Duration{
	fresh: time.Minute, idle: 620 * time.Second, waiting: 10 * time.Second, readingHead: 10 * time.Second,
	responding: 10 * time.Second, readingBody: 10 * time.Second, lingering: 2 * time.Second, closed: 0,
}

// shortLimit is the longest time in the phases with a buffer while other connections wait for one.
const shortLimit = 2 * time.Second

type connection struct {
	server *Server
	tcp    *net.TCPConn
	raw    syscall.RawConn
	phase  atomic.Int32
	since  atomic.Int64 // when the phase began, in ticks
}

// reader reads requests.
type reader struct {
	*bufio.Reader
	head fasthttp.RequestHeader
}

var readers = sync.Pool{New: func() any { return &reader{Reader: bufio.NewReaderSize(nil, headSize)} }}

func newConnection(s *Server, tcp *net.TCPConn) *connection {
	raw, _ := tcp.SyscallConn() // It fails only for a connection that is nil.
	c := &connection{server: s, tcp: tcp, raw: raw}
	c.enter(fresh)
	return c
}

func (c *connection) enter(phase int32) {
	c.since.Store(c.server.now.Load())
	c.phase.Store(phase)
}

func (c *connection) isIdle() bool { return c.phase.Load() <= idle }

// closeIdle closes the connection, unless a request has arrived.
func (c *connection) closeIdle() bool {
	phase, arrived := c.phase.Load(), true
	err := c.raw.Control(func(fd uintptr) { arrived = hasArrived(fd) })
	return err == nil && !arrived && phase <= idle && c.phase.CompareAndSwap(phase, closed) && c.tcp.Close() == nil
}

// hasArrived reports whether a read from the connection returns immediately.
func hasArrived(fd uintptr) bool {
	var b [1]byte
	_, _, err := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
	return err != syscall.EAGAIN && err != syscall.EINTR
}

// serve waits for requests without a buffer.
func (c *connection) serve() {
	defer c.server.remove(c)
	defer c.tcp.Close()
	for c.raw.Read(hasArrived) == nil {
		// The time comes first: the deadline of the phase counts from it.
		c.since.Store(c.server.now.Load())
		if phase := c.phase.Load(); phase == closed || !c.phase.CompareAndSwap(phase, waiting) {
			return
		}
		c.server.readers <- struct{}{}
		c.enter(readingHead)
		r := readers.Get().(*reader) //nolint:forcetypeassert // New has no other type.
		r.Reset(c.tcp)
		isOpen := c.requests(r)
		if r.Size() == headSize {
			r.Reset(nil)
			readers.Put(r)
		} else {
			<-c.server.largeHeads
		}
		<-c.server.readers
		if !isOpen {
			return
		}
	}
}

// requests serves the requests that have arrived, and reports whether the connection stays open.
func (c *connection) requests(r *reader) bool {
	for {
		if status := c.readHead(r); status != 0 {
			c.reject(status)
			return false
		}
		if !c.respond(r) {
			return false
		}
		if r.Buffered() == 0 {
			c.enter(idle)
			return true
		}
		c.enter(readingHead)
	}
}

// gone is the status of a client that has closed the connection, or whose deadline has passed.
const gone = -1

// readHead reads the head of a request. It returns 0, or the status code of the error.
func (c *connection) readHead(r *reader) int {
	err := r.head.Read(r.Reader)
	if isTooLarge(err) && r.Size() == headSize {
		select {
		case c.server.largeHeads <- struct{}{}:
			start, _ := r.Peek(r.Buffered())
			r.Reader = bufio.NewReaderSize(io.MultiReader(bytes.NewReader(start), c.tcp), maxHeadSize)
			err = r.head.Read(r.Reader)
		default:
		}
	}
	var network net.Error
	switch {
	case isTooLarge(err):
		return http.StatusRequestHeaderFieldsTooLarge
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.As(err, &network):
		return gone
	case err != nil:
		return http.StatusBadRequest
	case !bytes.HasPrefix(r.head.Protocol(), []byte("HTTP/1.")):
		return http.StatusHTTPVersionNotSupported
	case r.head.IsConnect():
		return http.StatusNotImplemented
	case !r.isStrict():
		return http.StatusBadRequest
	}
	return 0
}

var colon, crlf, contentLength, transferEncoding = []byte(":"), []byte("\r\n"), []byte("Content-Length"), []byte("Transfer-Encoding")

// isStrict reports whether every proxy reads the head in the same way. fasthttp also accepts folded lines, lines that end
// with LF, names with spaces, a body with two lengths, and Transfer-Encoding: identity.
func (r *reader) isStrict() bool {
	isChunked := r.head.ContentLength() == chunked
	for line := range bytes.Lines(r.head.RawHeaders()) {
		name, _, _ := bytes.Cut(line, colon)
		switch {
		case !bytes.HasSuffix(line, crlf),
			bytes.IndexByte(name, ' ') >= 0 || bytes.IndexByte(name, '\t') >= 0,
			isChunked && bytes.EqualFold(name, contentLength),
			!isChunked && bytes.EqualFold(name, transferEncoding):
			return false
		}
	}
	return true
}

func isTooLarge(err error) bool {
	var small *fasthttp.ErrSmallBuffer
	return errors.As(err, &small)
}

// The lengths of bodies in fasthttp's heads.
const chunked, none = -1, -2

// probeAgent starts the User-Agent of the kubelet, which also probes a pod that stops.
var probeAgent = []byte("kube-probe/")

// respond sends the response and reads the body of the request. It reports whether the connection stays open.
func (c *connection) respond(r *reader) bool {
	length := r.head.ContentLength()
	hasBody := length != 0 && length != none
	// A client that expects an interim response may omit the body, so the start of the next request is unknown.
	isEarly := hasBody && (length > maxBodySize || len(r.head.Peek("Expect")) > 0)
	draining := c.server.draining.Load()
	if draining && !bytes.HasPrefix(r.head.UserAgent(), probeAgent) {
		c.server.lastRequest.Store(c.server.now.Load())
	}
	p := explicit
	switch {
	case isEarly || r.head.ConnectionClose() || draining || c.server.full.CompareAndSwap(true, false):
		p = closing
	case r.head.IsHTTP11():
		p = implicit
	}
	response := c.server.messages.Load()[p].all
	if r.head.IsHead() {
		response = c.server.messages.Load()[p].head
	}
	c.enter(responding)
	if _, err := c.tcp.Write(response); err != nil {
		return false
	}
	if hasBody && !isEarly {
		c.enter(readingBody)
		isEarly = !r.discard(length)
	}
	if isEarly || p == closing && r.Buffered() > 0 { // The client has sent more.
		c.linger()
	}
	return p != closing && !isEarly
}

// discard reads the body of a request. It reports whether the next request follows.
func (r *reader) discard(length int) bool {
	if length != chunked {
		_, err := r.Discard(length)
		return err == nil
	}
	_, err := io.CopyN(io.Discard, httputil.NewChunkedReader(r.Reader), maxBodySize) // Another type would get a buffer, and lose the next request in it.
	return errors.Is(err, io.EOF) && r.head.ReadTrailer(r.Reader) == nil
}

func (c *connection) reject(status int) {
	if status == gone {
		return
	}
	c.enter(responding)
	response := Response{Status: status, Body: []byte(http.StatusText(status) + "\n")}
	if _, err := c.tcp.Write(response.render(time.Now())[closing].all); err == nil {
		c.linger()
	}
}

// linger waits for the client to read the response: closing a connection with unread bytes would discard it.
func (c *connection) linger() {
	c.enter(lingering)
	if c.tcp.CloseWrite() == nil {
		_, _ = io.CopyN(io.Discard, c.tcp, maxBodySize)
	}
}
