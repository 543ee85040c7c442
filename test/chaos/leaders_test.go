package chaos

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
)

const (
	leaderElect = "--leader-elect"

	// How soon after the end of a leader a new Echo has to be ready.
	termLimit = 5 * time.Second
	killLimit = 20 * time.Second
	// renewPeriod is longer than the time between two renewals of a lease. exitLimit is longer than a leader tries to renew a lease that
	// it has lost.
	renewPeriod = 3 * time.Second
	exitLimit   = 12 * time.Second
)

// elect starts a leader and a standby that has filled its caches.
func elect(e *environment) (leader, standby *operator) {
	e.Helper()
	text, err := os.ReadFile(filepath.Join(root, "config", "rbac", "leader_election_role.yaml"))
	e.must(err)
	var role rbacv1.Role
	e.must(yaml.UnmarshalStrict(text, &role))
	role.Namespace = e.namespace
	binding := &rbacv1.RoleBinding{
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: operatorUser}},
	}
	binding.Namespace, binding.Name = e.namespace, role.Name
	e.must(e.client.Create(e.Context(), &role), e.client.Create(e.Context(), binding))
	leader = e.launch(leaderElect)
	awaitSuccessor(e, "")
	standby = e.start(leaderElect)
	time.Sleep(renewPeriod + rand.N(renewPeriod)) //nolint:gosec // The leader may end at any time between two renewals.
	return leader, standby
}

// holder returns the holder of the lease, or an empty string.
func holder(e *environment) (string, error) {
	var lease coordinationv1.Lease
	err := e.client.Get(e.Context(), client.ObjectKey{Namespace: e.namespace, Name: "echo-operator.kkloud.io"}, &lease)
	return ptr.Deref(lease.Spec.HolderIdentity, ""), client.IgnoreNotFound(err)
}

func awaitSuccessor(e *environment, before string) {
	e.Helper()
	e.await(convergenceLimit, "another operator holds the lease", func() error {
		now, err := holder(e)
		if err == nil && (now == "" || now == before) {
			err = fmt.Errorf("the holder is %q, want another one than %q", now, before)
		}
		return err
	})
}

// A leader that ends hands over: at once if it is told to stop, and soon if it is killed.
func TestSuccession(t *testing.T) {
	for _, end := range []struct {
		name  string
		limit time.Duration
		end   func(*operator) error
	}{
		{"SIGTERM", termLimit, func(o *operator) error { return o.Terminate() }},
		{"SIGKILL", killLimit, func(o *operator) error { o.Kill(); return nil }},
	} {
		t.Run(end.name, func(t *testing.T) {
			if end.name == "SIGKILL" {
				long(t)
			}
			e := newEnvironment(t)
			leader, standby := elect(e)
			before, err := holder(e)
			e.must(err)
			start, ended := time.Now(), make(chan error, 1)
			go func() { ended <- end.end(leader) }()
			e.must(e.create(e.namespace, "one", echov1.EchoSpec{Message: "m"}))
			awaitSuccessor(e, before)
			e.within(start, end.limit, "the new leader has reconciled", e.allReady())
			e.must(<-ended)
			e.verify(standby)
		})
	}
}

var errStillRunning = errors.New("the previous leader still runs")

// A leader that cannot renew its lease exits: before another one has it, if it can, or else soon after it continues.
func TestReplacedLeader(t *testing.T) {
	long(t)
	for _, way := range []struct {
		name            string
		disable, enable func(*operator)
		exitsBefore     bool
	}{
		{"disconnected", func(o *operator) { o.disconnect() }, func(o *operator) { o.connect() }, true},
		{"paused", func(o *operator) { o.Signal(syscall.SIGSTOP) }, func(o *operator) { o.Signal(syscall.SIGCONT) }, false},
	} {
		t.Run(way.name, func(t *testing.T) {
			e := newEnvironment(t)
			leader, standby := elect(e)
			e.must(e.create(e.namespace, "one", everyChild()))
			e.await(podsLimit, "the Echo is ready", e.allReady())
			before, err := holder(e)
			e.must(err)
			start := time.Now()
			way.disable(leader)
			e.operators = []*operator{standby} // The other one may exit.
			for _, message := range []string{"n", "o"} {
				e.must(e.edit("one", func(s *echov1.EchoSpec) { s.Message, s.Replicas = message, 1 }))
			}
			awaitSuccessor(e, before)
			if way.exitsBefore && !leader.Exited() {
				e.Errorf("%v while another operator holds the lease", errStillRunning)
			}
			e.within(start, killLimit, "the new leader has reconciled", e.allReady())
			way.enable(leader)
			e.must(e.edit("one", func(s *echov1.EchoSpec) { s.Message = "p" }))
			e.await(exitLimit, "the previous leader has exited", func() error {
				if !leader.Exited() {
					return errStillRunning
				}
				return nil
			})
			e.verify(standby)
		})
	}
}

// Two operators that both reconcile end in the declared state, also if requests of both fail.
func TestTwoOperators(t *testing.T) {
	e := newEnvironment(t)
	one, other := e.start(), e.start()
	one.faults.Store(share)
	other.faults.Store(share)
	disturb(e, 12, func() {})
	other.faults.Store(0.0)
	e.await(podsLimit, "every Echo is ready", e.allReady())
	e.expectNoWrites(other)
	other.Kill()
	e.verify(one)
}
