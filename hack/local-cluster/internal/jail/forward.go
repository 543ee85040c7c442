//go:build linux

package jail

import (
	"io"
	"log"
	"net"
	"sync"
	"time"
)

// forward hands every connection that a listener of the host accepts to an
// address inside the jail.
func forward(listener net.Listener, target string) {
	for {
		client, err := listener.Accept()
		if err != nil {
			// A lack of descriptors, say, which passes; the listener stays open.
			log.Printf("accept for %s: %v", target, err)
			time.Sleep(100 * time.Millisecond)
			continue
		}
		go connect(client.(*net.TCPConn), target)
	}
}

func connect(client *net.TCPConn, target string) {
	defer client.Close()
	conn, err := net.Dial("tcp", target)
	if err != nil {
		log.Printf("forward to %s: %v", target, err)
		return
	}
	defer conn.Close()
	server := conn.(*net.TCPConn)

	var both sync.WaitGroup
	both.Go(func() { pump(server, client) })
	both.Go(func() { pump(client, server) })
	both.Wait()
}

// pump copies one direction. Its end closes that direction only: the other may
// still have an answer to deliver.
func pump(to, from *net.TCPConn) {
	// An error here is a peer that hung up, which the other direction sees too.
	_, _ = io.Copy(to, from)
	_ = to.CloseWrite()
}
