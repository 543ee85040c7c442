package state

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// ErrLocked means that another command is changing the cluster.
var ErrLocked = errors.New("another up or down of this cluster is running: wait until it exits")

// Lock prevents a second up or down of the same cluster until the caller calls unlock or
// the process exits.
func (d Dir) Lock() (unlock func(), err error) {
	if err := os.MkdirAll(string(d), 0o755); err != nil {
		return nil, fmt.Errorf("create the state directory: %w", err)
	}
	file, err := os.OpenFile(d.join("lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the lock: %w", err)
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		file.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, ErrLocked
		}
		return nil, fmt.Errorf("lock %s: %w", file.Name(), err)
	}
	return func() { file.Close() }, nil
}
