// Package listener bounds the connections of ports that only the kubelet, load balancers and scrapers have to reach.
package listener

import (
	"net"
	"time"
)

const (
	// maxConnections is the number of open connections. A health check or a scrape needs one for a moment.
	maxConnections = 128
	// minTime is the time that each of them has in any case.
	minTime = 200 * time.Millisecond
)

// Newest returns a listener that closes the oldest of its connections before there are too many. So clients that keep
// connections, or send requests in part, neither use up memory nor delay a health check for long.
func Newest(l net.Listener) net.Listener { return &newest{Listener: l} }

type newest struct {
	net.Listener
	connections [maxConnections]accepted
	next        int
}

type accepted struct {
	net.Conn
	at time.Time
}

// Accept implements net.Listener. One goroutine calls it, as those of http.Server and of package server do.
func (n *newest) Accept() (net.Conn, error) {
	connection, err := n.Listener.Accept()
	if err != nil {
		return nil, err
	}
	oldest := &n.connections[n.next]
	if oldest.Conn != nil {
		time.Sleep(time.Until(oldest.at.Add(minTime)))
		if tcp, is := oldest.Conn.(*net.TCPConn); is {
			_ = tcp.SetLinger(0) // The kernel would keep what the client does not read.
		}
		_ = oldest.Close() // Usually it has ended.
	}
	*oldest = accepted{connection, time.Now()}
	n.next = (n.next + 1) % maxConnections
	return connection, nil
}
