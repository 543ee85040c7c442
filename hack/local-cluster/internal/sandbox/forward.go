//go:build linux

package sandbox

import (
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"sync"
	"time"
)

// forward forwards every connection of an inherited listener of the host to an address inside the sandbox.
func forward(fd uintptr, target string) error {
	file := os.NewFile(fd, "listener")
	// Closing keeps the components from inheriting the descriptor, which would keep the port in use.
	defer file.Close()
	listener, err := net.FileListener(file)
	if err != nil {
		return fmt.Errorf("open the listener for %s: %w", target, err)
	}
	go func() {
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
	}()
	return nil
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
