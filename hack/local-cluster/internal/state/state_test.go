package state

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func TestAbsFollowsLinksOfWhatExists(t *testing.T) {
	target, link := t.TempDir(), filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(target, link); err != nil {
		t.Fatal(err)
	}
	got, err := Abs(filepath.Join(link, "not", "there"))
	if err != nil {
		t.Fatal(err)
	}
	if want := Dir(filepath.Join(target, "not", "there")); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestCgroupNameIsStableAndDistinct(t *testing.T) {
	const want = "local-cluster-6289553a"
	if got := Dir("/one/bin/cluster").CgroupName(); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := Dir("/other/bin/cluster").CgroupName(); got == want {
		t.Errorf("another directory has the name %q too", got)
	}
}

func TestStatusRoundTrip(t *testing.T) {
	dir := Dir(t.TempDir())
	if status, err := dir.ReadStatus(); err != nil || status.Running {
		t.Fatalf("without a file: got %+v, %v", status, err)
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
	if dead, found := status.Dead(); !found || dead.Name != "kubelet" {
		t.Errorf("got %+v, %t as the dead component", dead, found)
	}
}

func TestLockExcludes(t *testing.T) {
	dir := Dir(t.TempDir())
	unlock, err := dir.Lock()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := dir.Lock(); !errors.Is(err, ErrLocked) {
		t.Errorf("the second lock: got %v, want %v", err, ErrLocked)
	}
	unlock()
	unlock, err = dir.Lock()
	if err != nil {
		t.Fatalf("after the unlock: %v", err)
	}
	unlock()
}
