// Package server sends one fixed response to every HTTP/1 request. Its memory is bounded: connections are, and one that
// waits for a request has no buffer. fasthttp parses requests. Its server and that of net/http hold more memory for each
// connection: see docs/adr/0011-server.md.
package server

import (
	"context"
	"errors"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kkloud-io/echo-operator/internal/listener"
)

const (
	// A server that drains accepts connections for drainMin, and until no request has arrived for drainQuiet: nodes and
	// Gateways learn of a removed endpoint after its server does. drainMax is less than the grace period of a pod.
	drainMin, drainQuiet, drainMax = 5 * time.Second, 3 * time.Second, 25 * time.Second
	// closeMax is the time for responses after the listener has been closed.
	closeMax = 2 * time.Second
	// tick is the resolution of deadlines.
	tick = 200 * time.Millisecond
	// idleAge is the age of idle connections that make room for others.
	idleAge = 2 * time.Second
	// closeTimeout is the time that a client has to confirm the end of its connection, in milliseconds.
	closeTimeout = 10_000
	// rotation is the time between two attempts to make room for a connection.
	rotation = 20 * time.Millisecond
)

// Server sends a response to every request. Create it with New.
type Server struct {
	response       Response
	messages       atomic.Pointer[[closing + 1]message]
	maxConnections int
	readers        chan struct{} // has an item for each connection with a buffer, in this process or in the kernel
	largeHeads     chan struct{} // has an item for each connection with a large buffer
	observed       *Server       // whose metrics the path /metrics has, or nil
	counters       counters

	mu          sync.Mutex
	connections map[*connection]struct{}

	now         atomic.Int64 // in ticks since the start
	lastRequest atomic.Int64 // while the server drains, in ticks since the start
	draining    atomic.Bool
	full        atomic.Int64 // so many of the next responses close their connections
}

// New returns a server that keeps up to maxConnections connections.
func New(response Response, maxConnections int) *Server {
	s := &Server{
		response: response, maxConnections: maxConnections,
		readers: make(chan struct{}, 1+maxConnections/readersShare), largeHeads: make(chan struct{}, 1+maxConnections/largeHeadsShare),
		connections: map[*connection]struct{}{},
	}
	s.messages.Store(response.render(time.Now()))
	return s
}

// Health returns a server that responds with 200 whatever s responds, and with the metrics of s on the path /metrics.
func (s *Server) Health() *Server {
	h := New(Response{Status: http.StatusOK, Body: []byte("ok\n")}, 4*minConnections) // Its listener keeps fewer.
	h.observed = s
	return h
}

// Serve serves the connections of a listener until the context is done. Then it drains: its responses close their connections, and it
// closes the listener and returns after clients have stopped to connect.
func (s *Server) Serve(ctx context.Context, connections net.Listener) {
	if isHealth := s.observed != nil; isHealth {
		connections = listener.Newest(connections)
	}
	go s.accept(connections)
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	last, second := time.Now(), int64(time.Second/tick)
	for done, drainStart := ctx.Done(), int64(0); ; {
		select {
		case <-done:
			done = nil
			drainStart = s.now.Load()
			s.draining.Store(true)
		case at := <-ticker.C:
			ticks := int64(at.Sub(last).Round(tick) / tick) // A ticker drops some while the container is throttled.
			last = at
			now := s.now.Add(ticks)
			if now/second != (now-ticks)/second {
				s.messages.Store(s.response.render(at))
			}
			s.closeExpired()
			if !s.draining.Load() {
				continue
			}
			quiet := time.Duration(now-s.lastRequest.Load()) * tick
			if since := time.Duration(now-drainStart) * tick; since >= drainMax || since > drainMin && quiet > drainQuiet {
				s.close(connections)
				return
			}
		}
	}
}

// close closes idle connections, and the others after their responses.
func (s *Server) close(connections net.Listener) {
	_ = connections.Close()
	for end := time.Now().Add(closeMax); s.count() > 0 && time.Now().Before(end); time.Sleep(rotation) {
		s.closeIdle(s.maxConnections+1, 0)
	}
}

func (s *Server) accept(connections net.Listener) {
	some := 1 + s.maxConnections/32
	for {
		tcp, err := connections.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // Neither a file descriptor nor memory is left.
			s.closeIdle(1, 0)
			time.Sleep(rotation)
			continue
		}
		// If no connection is idle, some make room after their responses, so each client gets its turn. Connections without
		// a request will soon be old enough: many clients that never send do not displace those that do.
		for s.count() >= s.maxConnections && s.closeIdle(some, idleAge) == 0 {
			n := some
			if 2*s.countFresh() > s.maxConnections {
				n = 0
			}
			s.full.Store(int64(n))
			time.Sleep(rotation)
		}
		c := newConnection(s, tcp.(*net.TCPConn)) //nolint:forcetypeassert // Every listener that main creates is a TCP listener.
		s.mu.Lock()
		s.connections[c] = struct{}{}
		s.mu.Unlock()
		go c.serve()
	}
}

func (s *Server) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.connections)
}

// countFresh returns the number of connections that wait for their first request.
func (s *Server) countFresh() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.connections {
		if c.phase.Load() == fresh {
			n++
		}
	}
	return n
}

func (s *Server) remove(c *connection) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.connections, c)
	s.counters.ended[c.reason.Load()].Add(1)
}

// closeIdle closes up to n of the connections that have waited for a request for at least the age, the oldest first.
// It returns how many.
func (s *Server) closeIdle(n int, age time.Duration) (closed int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var old []*connection
	for c := range s.connections {
		if c.phase.Load() <= idle && c.age() >= age {
			old = append(old, c)
		}
	}
	slices.SortFunc(old, func(a, b *connection) int { return int(a.since.Load() - b.since.Load()) })
	for _, c := range old {
		if closed < n && c.closeIdle() {
			delete(s.connections, c)
			closed++
		}
	}
	return closed
}

// closeExpired closes the connections whose phase has taken too long. It takes less time while others wait for a buffer.
func (s *Server) closeExpired() {
	s.mu.Lock()
	defer s.mu.Unlock()
	isCrowded, isCrowdedLarge := len(s.readers) == cap(s.readers), len(s.largeHeads) == cap(s.largeHeads)
	for c := range s.connections {
		phase := c.phase.Load()
		isSending := phase == responding || phase == lingering
		limit := limits[phase]
		switch {
		case isCrowded && isSending:
			limit = stallLimit
		case isCrowded && phase > waiting, isCrowdedLarge && phase == readingLargeHead:
			limit = shortLimit
		}
		if c.age() > 0 && isSending && c.hasProgressed() {
			continue
		}
		if c.age() > limit {
			c.end(map[bool]reason{false: slow, true: unread}[isSending])
		}
	}
}
