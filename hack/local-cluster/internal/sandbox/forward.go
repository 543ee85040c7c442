//go:build linux

package sandbox

import (
	"io"
	"log"
	"net"
	"sync"
	"time"
)

// forward forwards every connection of a host listener to an address inside the sandbox.
func forward(listener net.Listener, target string) {
	for {
		client, err := listener.Accept()
		if err != nil {
			// Errors such as a lack of file descriptors are temporary.
			log.Printf("accept for %s: %v", target, err)
			time.Sleep(100 * time.Millisecond)
			continue
		}
		go proxy(client.(*net.TCPConn), target)
	}
}

func proxy(client *net.TCPConn, target string) {
	defer client.Close()
	conn, err := net.Dial("tcp", target)
	if err != nil {
		log.Printf("forward to %s: %v", target, err)
		return
	}
	defer conn.Close()
	server := conn.(*net.TCPConn)

	var both sync.WaitGroup
	both.Go(func() { copyStream(server, client) })
	both.Go(func() { copyStream(client, server) })
	both.Wait()
}

// copyStream copies one direction. At its end it closes only that direction, because the
// other one may still have data to deliver.
func copyStream(to, from *net.TCPConn) {
	// An error means that a peer closed the connection, which the other direction detects too.
	_, _ = io.Copy(to, from)
	_ = to.CloseWrite()
}
