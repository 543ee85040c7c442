package state

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// ErrLocked says that another command is changing the cluster right now.
var ErrLocked = errors.New("another up or down of this cluster is at work: wait for it to end")

// Lock keeps a second up or down of the same cluster out until the returned
// function is called or the process ends, however it ends.
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
