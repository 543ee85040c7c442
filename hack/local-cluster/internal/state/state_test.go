package state

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func TestAbsResolvesLinksInExistingPartOfPath(t *testing.T) {
	target, link := t.TempDir(), filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(target, link); err != nil {
		t.Fatal(err)
	}
	got, err := Abs(filepath.Join(link, "not", "existing"))
	if err != nil {
		t.Fatal(err)
	}
	if want := Dir(filepath.Join(target, "not", "existing")); got != want {
		t.Errorf("Abs() of a path below a link = %q, want %q", got, want)
	}
}

func TestCgroupNameIsStableAndUniquePerDirectory(t *testing.T) {
	const want = "local-cluster-6289553a"
	if got := Dir("/one/bin/cluster").CgroupName(); got != want {
		t.Errorf("CgroupName() = %q, want %q", got, want)
	}
	if got := Dir("/other/bin/cluster").CgroupName(); got == want {
		t.Errorf("CgroupName() of another directory = %q, want a different name", got)
	}
}

func TestReadStatusReturnsWrittenStatus(t *testing.T) {
	dir := Dir(t.TempDir())
	if status, err := dir.ReadStatus(); err != nil || status.Running {
		t.Fatalf("ReadStatus() without a file = %+v, %v, want the zero Status", status, err)
	}
	written := Status{Running: true, Components: []Component{
		{Name: "etcd", PID: 2},
		{Name: "kubelet", PID: 3, Exited: "exit status 1"},
	}}
	if err := dir.WriteStatus(written); err != nil {
		t.Fatal(err)
	}
	status, err := dir.ReadStatus()
	if err != nil {
		t.Fatal(err)
	}
	if exited, found := status.FirstExited(); !found || exited.Name != "kubelet" {
		t.Errorf("FirstExited() = %+v, %t, want kubelet", exited, found)
	}
}

func TestLockFailsUntilUnlocked(t *testing.T) {
	dir := Dir(t.TempDir())
	unlock, err := dir.Lock()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := dir.Lock(); !errors.Is(err, ErrLocked) {
		t.Errorf("second Lock() = %v, want %v", err, ErrLocked)
	}
	unlock()
	unlock, err = dir.Lock()
	if err != nil {
		t.Fatalf("Lock() after unlock = %v, want no error", err)
	}
	unlock()
}
