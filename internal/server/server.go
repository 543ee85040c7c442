// Package server sends one fixed response to every HTTP/1 request. Its memory is bounded: connections are, and one that
// waits for a request has no buffer. fasthttp parses requests. Its server and that of net/http hold more memory for each
// connection: see docs/adr/0011-server.md.
package server

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// A server that drains accepts connections for drainMin, and until no request has arrived for drainQuiet: nodes and
	// Gateways learn of a removed endpoint after its server does. drainMax is less than the grace period of a pod.
	drainMin, drainQuiet, drainMax = 5 * time.Second, 3 * time.Second, 25 * time.Second
	// closeMax is the time for responses after the listener has been closed.
	closeMax = 2 * time.Second
	// tick is the resolution of deadlines and of the date.
	tick = time.Second
	// idleAge is the age of idle connections, in ticks, that make room for others.
	idleAge = 2
	// rotation is the time between two attempts to make room for a connection.
	rotation = 20 * time.Millisecond
)

// Server sends a response to every request. Create it with New.
type Server struct {
	response       Response
	messages       atomic.Pointer[[closing + 1]message]
	maxConnections int
	readers        chan struct{} // has an item for each connection with a buffer
	largeHeads     chan struct{} // has an item for each connection with a large buffer

	mu          sync.Mutex
	connections map[*connection]struct{}

	now         atomic.Int64 // in ticks since the start
	lastRequest atomic.Int64 // while the server drains, in ticks since the start
	draining    atomic.Bool
	full        atomic.Bool // The next response closes its connection.
}

// New returns a server that keeps up to maxConnections connections.
func New(response Response, maxConnections int) *Server {
	s := &Server{
		response: response, maxConnections: maxConnections,
		readers: make(chan struct{}, 1+maxConnections/4), largeHeads: make(chan struct{}, maxLargeHeads),
		connections: map[*connection]struct{}{},
	}
	s.messages.Store(response.render(time.Now()))
	return s
}

// Serve serves the listener until the context is done. Then it drains: its responses close their connections, and it
// closes the listener and returns after clients have stopped to connect.
func (s *Server) Serve(ctx context.Context, listener net.Listener) {
	go s.accept(listener)
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	for done, drained := ctx.Done(), int64(0); ; {
		select {
		case <-done:
			done = nil
			s.draining.Store(true)
		case now := <-ticker.C:
			s.messages.Store(s.response.render(now))
			s.closeExpired(s.now.Add(1))
			if !s.draining.Load() {
				continue
			}
			drained++
			quiet := time.Duration(s.now.Load()-s.lastRequest.Load()) * tick
			if since := time.Duration(drained) * tick; since >= drainMax || since > drainMin && quiet > drainQuiet {
				s.close(listener)
				return
			}
		}
	}
}

// close closes idle connections, and the others after their responses.
func (s *Server) close(listener net.Listener) {
	_ = listener.Close()
	for end := time.Now().Add(closeMax); s.count() > 0 && time.Now().Before(end); time.Sleep(rotation) {
		s.closeIdle(s.maxConnections+1, 0)
	}
}

func (s *Server) accept(listener net.Listener) {
	for {
		tcp, err := listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // Neither a file descriptor nor memory is left.
			s.closeIdle(1, 0)
			time.Sleep(rotation)
			continue
		}
		// If no connection is idle, one makes room after its response, so each client gets its turn. Connections without
		// a request will soon be old enough: clients that never send do not displace those that do.
		for s.count() >= s.maxConnections && s.closeIdle(1+s.maxConnections/64, idleAge) == 0 {
			s.full.Store(!s.hasFresh())
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

// hasFresh reports whether a connection waits for its first request.
func (s *Server) hasFresh() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.connections {
		if c.phase.Load() == fresh {
			return true
		}
	}
	return false
}

func (s *Server) remove(c *connection) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.connections, c)
}

// closeIdle closes up to n of the connections that have waited for a request for at least age ticks, the oldest first.
// It returns how many.
func (s *Server) closeIdle(n int, age int64) (closed int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var idle []*connection
	for c := range s.connections {
		if c.isIdle() && s.now.Load()-c.since.Load() >= age {
			idle = append(idle, c)
		}
	}
	slices.SortFunc(idle, func(a, b *connection) int { return int(a.since.Load() - b.since.Load()) })
	for _, c := range idle {
		if closed < n && c.closeIdle() {
			delete(s.connections, c)
			closed++
		}
	}
	return closed
}

func (s *Server) closeExpired(now int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	shorten := len(s.readers) == cap(s.readers) // Slow clients hold all buffers.
	for c := range s.connections {
		phase := c.phase.Load()
		limit := limits[phase]
		if shorten && phase > waiting {
			limit = shortLimit
		}
		if time.Duration(now-c.since.Load())*tick > limit {
			_ = c.tcp.Close()
		}
	}
}
