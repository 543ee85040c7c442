package server

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/valyala/fasthttp"
	"golang.org/x/sys/unix"
)

const (
	// headSize is the size of a buffer. A larger head gets one of the few buffers of maxHeadSize.
	headSize, maxHeadSize = 4 << 10, 32 << 10
	// maxBodySize is how much of a request's body the server reads to keep the connection.
	maxBodySize = 256 << 10
	// maxUnsent is how many bytes of responses the kernel may hold for a connection that has given its buffer back.
	maxUnsent = 2 << 10
)

// The phases of a connection.
const (
	fresh       int32 = iota // waits for the first request
	idle                     // waits for another request
	waiting                  // waits for a buffer: a request has arrived
	readingHead              // reads a request until its body
	readingLargeHead
	responding // until the client has received the response
	readingBody
	lingering // waits until the client has read an early response
	closed
)

// limits are the longest times in the phases; a client that receives some of a response has that time again. A proxy must
// close an idle connection before the server does, otherwise it sends requests into a closing connection. Load balancers
// keep them for up to ten minutes.
var limits = [...]time.Duration{
	fresh: time.Minute, idle: 620 * time.Second, waiting: 10 * time.Second, readingHead: 10 * time.Second,
	readingLargeHead: 10 * time.Second, responding: 10 * time.Second, readingBody: 10 * time.Second, lingering: 2 * time.Second, closed: 0,
}

// shortLimit is the longest time in the phases with a buffer while other connections wait for one, and stallLimit is that
// of a client that receives nothing of its response.
const shortLimit, stallLimit = 2 * time.Second, 500 * time.Millisecond

type connection struct {
	server *Server
	tcp    *net.TCPConn
	raw    syscall.RawConn
	phase  atomic.Int32
	since  atomic.Int64 // when the phase began or the client last received something, in ticks
	reason atomic.Int32 // why the connection ends
	unsent int          // at most that many bytes of responses are in the kernel's queue
	queue  int          // the length of the kernel's queue when hasProgressed last looked
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

func (c *connection) age() time.Duration {
	return time.Duration(c.server.now.Load()-c.since.Load()) * tick
}

// closeIdle closes the connection, unless a request has arrived.
func (c *connection) closeIdle() bool {
	phase, arrived := c.phase.Load(), true
	err := c.raw.Control(func(fd uintptr) { arrived = hasArrived(fd) })
	if err != nil || arrived || phase > idle || !c.phase.CompareAndSwap(phase, closed) {
		return false
	}
	if c.server.draining.Load() { // The client may still receive its response.
		return c.tcp.Close() == nil
	}
	c.end(room)
	return true
}

// end closes the connection. It discards what the client has not received, because the kernel would keep it.
func (c *connection) end(why reason) {
	c.reason.CompareAndSwap(0, int32(why))
	_ = c.raw.Control(func(fd uintptr) { // It fails for a closed connection.
		if n, err := unix.IoctlGetInt(int(fd), unix.SIOCOUTQ); err == nil && n > 1 { // The end of the stream counts as one.
			_ = unix.SetsockoptLinger(int(fd), unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
		}
		// The client may be gone.
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, closeTimeout)
	})
	_ = c.tcp.Close()
}

// queued returns the number of bytes that the client has not received, or an error after the connection has ended.
func (c *connection) queued() (n int, err error) {
	if controlErr := c.raw.Control(func(fd uintptr) { n, err = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ) }); controlErr != nil {
		return 0, controlErr
	}
	return n, err
}

// hasProgressed reports whether the client has received something since the last call, and notes the time.
func (c *connection) hasProgressed() bool {
	before := c.queue
	c.queue, _ = c.queued() // It fails for a closed connection, which is removed soon.
	if c.queue != before {
		c.since.Store(c.server.now.Load())
	}
	return c.queue != before
}

// awaitSent waits until the client has received all but n bytes of the responses. It reports whether the connection is open.
func (c *connection) awaitSent(n int) bool {
	for pause := time.Millisecond; ; pause = min(2*pause, 64*time.Millisecond) {
		var err error
		if c.unsent, err = c.queued(); err != nil || c.unsent <= n {
			return err == nil
		}
		var info *unix.TCPInfo
		err = c.raw.Control(func(fd uintptr) { info, _ = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO) })
		if err != nil || info != nil && info.State == unix.BPF_TCP_CLOSE { // The queue of a connection that was reset is never empty.
			return false
		}
		time.Sleep(pause)
	}
}

// hasArrived reports whether a read from the connection returns immediately.
func hasArrived(fd uintptr) bool {
	var b [1]byte
	_, _, err := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
	return err != syscall.EAGAIN && err != syscall.EINTR
}

// serve waits for requests without a buffer.
func (c *connection) serve() {
	defer func() {
		if recover() != nil { // A defect ends one connection.
			c.reason.Store(int32(failed))
		}
		c.enter(responding) // The client may still receive its last response.
		c.awaitSent(0)
		c.end(left)
		c.server.remove(c)
	}()
	for c.raw.Read(hasArrived) == nil {
		// The time comes first: the deadline of the phase counts from it.
		c.since.Store(c.server.now.Load())
		if phase := c.phase.Load(); phase == closed || !c.phase.CompareAndSwap(phase, waiting) || !c.handle() {
			return
		}
	}
}

// handle serves the requests that have arrived with a buffer, and reports whether the connection stays open.
func (c *connection) handle() bool {
	c.server.readers <- struct{}{}
	r := readers.Get().(*reader) //nolint:forcetypeassert // New has no other type.
	defer func() {
		if r.Size() == headSize {
			r.Reset(nil)
			readers.Put(r)
		} else {
			<-c.server.largeHeads
		}
		<-c.server.readers
	}()
	c.enter(readingHead)
	r.Reset(c.tcp)
	return c.requests(r)
}

// requests serves the requests that have arrived, and reports whether the connection stays open.
func (c *connection) requests(r *reader) bool {
	for {
		if status := c.readHead(r); status != 0 {
			c.reject(r, status)
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
		c.enter(waiting)
		c.server.largeHeads <- struct{}{}
		c.enter(readingLargeHead)
		start, _ := r.Peek(r.Buffered())
		r.Reader = bufio.NewReaderSize(io.MultiReader(bytes.NewReader(start), c.tcp), maxHeadSize)
		err = r.head.Read(r.Reader)
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

// isStrict reports whether every proxy reads the header in the same way. The request line may end with LF (RFC 9112, 2.2).
// fasthttp also accepts folded lines, lines that end
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

// isPoller reports whether the request names the address of the pod, as health checks of load balancers and of the kubelet
// and scrapers do: it would arrive as long as the pod exists. Clients of the Service name something else.
func (c *connection) isPoller(r *reader) bool {
	host, _, err := net.SplitHostPort(string(r.head.Host()))
	if err != nil {
		host = strings.Trim(string(r.head.Host()), "[]")
	}
	local, _ := c.tcp.LocalAddr().(*net.TCPAddr)
	return host == "" || local != nil && local.IP.Equal(net.ParseIP(host))
}

// respond sends the response and reads the body of the request. It reports whether the connection stays open.
func (c *connection) respond(r *reader) bool {
	length := r.head.ContentLength()
	hasBody := length != 0 && length != none
	// A client that expects an interim response may omit the body, so the start of the next request is unknown.
	isEarly := hasBody && (length > maxBodySize || len(r.head.Peek("Expect")) > 0)
	draining := c.server.draining.Load()
	if draining && !c.isPoller(r) {
		c.server.lastRequest.Store(c.server.now.Load())
	}
	p := explicit
	switch {
	case isEarly || r.head.ConnectionClose() || draining || c.server.full.Load() > 0 && c.server.full.Add(-1) >= 0:
		p = closing
	case r.head.IsHTTP11():
		p = implicit
	}
	m := &c.server.messages.Load()[p]
	if o := c.server.observed; o != nil && string(r.head.RequestURI()) == "/metrics" {
		m = &o.metrics().render(time.Now())[p]
	}
	response := m.all
	if r.head.IsHead() {
		response = m.head
	}
	c.server.counters.requests.Add(1)
	if !c.send(response) {
		return false
	}
	if hasBody && !isEarly {
		c.enter(readingBody)
		isEarly = !r.discard(length)
	}
	isOpen := p != closing && !isEarly
	if !isOpen {
		c.reason.CompareAndSwap(0, int32(responded))
	}
	if isEarly || p == closing && r.Buffered() > 0 { // The client has sent more.
		c.linger(r)
	}
	return isOpen
}

// send sends a response. A client that does not read keeps the buffer of its connection.
func (c *connection) send(response []byte) bool {
	c.enter(responding)
	n, err := c.tcp.Write(response)
	c.server.counters.bytes.Add(int64(n))
	c.unsent += n
	return err == nil && (c.unsent <= maxUnsent || c.awaitSent(maxUnsent))
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

func (c *connection) reject(r *reader, status int) {
	if status == gone {
		return
	}
	c.server.counters.reject(status)
	c.reason.CompareAndSwap(0, int32(rejected))
	response := Response{Status: status, Body: []byte(http.StatusText(status) + "\n")}
	if c.send(response.render(time.Now())[closing].all) {
		c.linger(r)
	}
}

// linger waits for the client to read the response: closing a connection with unread bytes would discard it.
func (c *connection) linger(r *reader) {
	c.enter(lingering)
	err := c.tcp.CloseWrite()
	for n := 0; err == nil && n < maxBodySize; _, err = r.Peek(1) {
		n += r.Buffered()
		_, _ = r.Discard(r.Buffered())
	}
}
