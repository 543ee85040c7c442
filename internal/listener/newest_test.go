package listener

import (
	"errors"
	"io"
	"net"
	"syscall"
	"testing"
)

// A client that does not read leaves nothing in the kernel.
func TestNewestResetsTheOldestConnection(t *testing.T) {
	tcp, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // It does not block.
	if err != nil {
		t.Fatal(err)
	}
	l := Newest(tcp)
	var clients [maxConnections + 1]net.Conn
	for i := range clients {
		var acceptErr error
		clients[i], err = net.Dial("tcp", l.Addr().String()) //nolint:noctx // It does not block.
		_, acceptErr = l.Accept()
		if err := errors.Join(err, acceptErr); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := io.ReadAll(clients[0]); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the oldest connection ended with %v, want %v", err, syscall.ECONNRESET)
	}
}
