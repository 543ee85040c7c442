package scenarios

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/testing/controlplane"
	"github.com/kkloud-io/echo-operator/test/chaos/harness"
	"github.com/kkloud-io/echo-operator/test/chaos/proxy"
)

const (
	leaseName = "echo-operator.kkloud.io"

	// How soon after the end of a leader a new Echo has to be ready.
	limitAfterTerm = 5 * time.Second
	limitAfterKill = 20 * time.Second
	// renewPeriod is longer than the time between two renewals of a lease. exitTimeout is longer than
	// a leader tries to renew a lease that it has lost.
	renewPeriod = 3 * time.Second
	exitTimeout = 12 * time.Second
)

// leaders runs several operators in one namespace.
func leaders(o harness.Options) ([]harness.Scenario, error) {
	const runs = 5
	all := []harness.Scenario{
		{Name: "leader gets SIGTERM", Run: succession(limitAfterTerm, (*controlplane.Operator).Terminate)},
		twoLeaders(o.Seed),
		{Name: "leader is disconnected", Run: disconnectedLeader},
		{Name: "leader is paused", Run: pausedLeader},
		{Name: "leader gets SIGKILL", Run: succession(limitAfterKill, func(p *controlplane.Operator) error {
			p.Kill()
			return nil
		})},
	}
	if o.Short {
		return all[:2], nil
	}
	for i := range uint64(runs) {
		all = append(all, twoLeaders(o.Seed+1+i))
	}
	return all, nil
}

// elect replaces the subject's operator by a leader and a standby that has filled its caches.
func elect(ctx context.Context, e *harness.Environment) (leader, standby harness.Replica, err error) {
	e.Operator.Kill()
	e.Args = []string{"--leader-elect"} // Verify restarts the operator with it.
	if err := grantLease(ctx, e); err != nil {
		return leader, standby, err
	}
	if leader, err = e.AddReplica(e.Args...); err != nil {
		return leader, standby, err
	}
	if err = awaitSuccessor(ctx, e, ""); err != nil {
		return leader, standby, err
	}
	if standby, err = e.AddReplica(e.Args...); err != nil {
		return leader, standby, err
	}
	err = e.AwaitWatches(ctx, harness.ConvergenceTimeout, standby.Proxy, standby.Failed)
	// The leader may end at any time between two renewals of its lease.
	harness.Pause(ctx, renewPeriod+rand.N(renewPeriod)) //nolint:gosec // Not a secret.
	return leader, standby, err
}

// grantLease grants the operators the permissions of config/rbac for leader election.
func grantLease(ctx context.Context, e *harness.Environment) error {
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: e.Subject, Name: leaseName}}
	if err := client.IgnoreNotFound(e.Client.Delete(ctx, lease)); err != nil {
		return err
	}
	file, err := os.ReadFile(filepath.Join(e.Root, "config", "rbac", "leader_election_role.yaml")) //nolint:gosec // A file of the project.
	if err != nil {
		return err
	}
	var role rbacv1.Role
	if err := yaml.UnmarshalStrict(file, &role); err != nil {
		return err
	}
	role.Namespace = e.Subject
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: e.Subject, Name: role.Name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: harness.OperatorUser}},
	}
	return errors.Join(client.IgnoreAlreadyExists(e.Client.Create(ctx, &role)),
		client.IgnoreAlreadyExists(e.Client.Create(ctx, binding)))
}

// currentLeader returns the holder of the lease, or an empty string.
func currentLeader(ctx context.Context, e *harness.Environment) (string, error) {
	var lease coordinationv1.Lease
	err := e.Client.Get(ctx, client.ObjectKey{Namespace: e.Subject, Name: leaseName}, &lease)
	return ptr.Deref(lease.Spec.HolderIdentity, ""), client.IgnoreNotFound(err)
}

// awaitSuccessor waits until another operator holds the lease.
func awaitSuccessor(ctx context.Context, e *harness.Environment, before string) error {
	return e.Await(ctx, harness.ConvergenceTimeout, "another operator holds the lease", func(ctx context.Context) error {
		leader, err := currentLeader(ctx, e)
		if err == nil && (leader == "" || leader == before) {
			err = fmt.Errorf("holder of Lease %s is %q, want another one than %q", leaseName, leader, before)
		}
		return err
	})
}

// succession ends the leader, and measures how long an Echo takes to become ready that is created right
// after that.
func succession(limit time.Duration, end func(*controlplane.Operator) error) func(context.Context, *harness.Environment) error {
	return func(ctx context.Context, e *harness.Environment) error {
		leader, standby, err := elect(ctx, e)
		if err != nil {
			return err
		}
		defer func() { leader.Kill(); standby.Kill() }()
		before, err := currentLeader(ctx, e)
		if err != nil {
			return err
		}
		start, ended := time.Now(), make(chan error, 1)
		go func() { ended <- end(leader.Operator) }()
		if err := e.CreateEcho(ctx, one, echov1.EchoSpec{Message: "m"}); err != nil {
			return err
		}
		if err := awaitSuccessor(ctx, e, before); err != nil {
			return err
		}
		if err := e.Await(ctx, harness.ConvergenceTimeout, "every Echo is ready", e.AllReady(e.Subject)); err != nil {
			return err
		}
		took := time.Since(start)
		if err := errors.Join(<-ended, e.Measure("new leader has reconciled", took, limit)); err != nil {
			return err
		}
		return e.Verify(ctx)
	}
}

// disconnectedLeader disconnects only the leader from the API server.
func disconnectedLeader(ctx context.Context, e *harness.Environment) error {
	leader, standby, err := elect(ctx, e)
	if err != nil {
		return err
	}
	defer func() { leader.Kill(); standby.Kill() }()
	return replaceLeader(ctx, e, leader, func() { leader.Proxy.SetPlan(disconnected) }, func() { leader.Proxy.SetPlan(nil) }, true)
}

// pausedLeader stops the leader's process for as long as it takes to lose the lease, as a machine
// that hangs does.
func pausedLeader(ctx context.Context, e *harness.Environment) error {
	leader, standby, err := elect(ctx, e)
	if err != nil {
		return err
	}
	defer func() { leader.Kill(); standby.Kill() }()
	signal := func(s syscall.Signal) func() {
		return func() { leader.Signal(s) }
	}
	return replaceLeader(ctx, e, leader, signal(syscall.SIGSTOP), signal(syscall.SIGCONT), false)
}

var errStillRunning = errors.New("the previous leader still runs")

// replaceLeader disables the leader until another one has the lease, and expects the previous leader
// to exit: before the other one gets the lease, if it can, or else soon after it is enabled.
func replaceLeader(ctx context.Context, e *harness.Environment, leader harness.Replica, disable, enable func(), exitsBefore bool) error {
	if err := e.CreateEcho(ctx, one, everyChild()); err != nil {
		return err
	}
	if err := e.Settle(ctx); err != nil {
		return err
	}
	before, err := currentLeader(ctx, e)
	if err != nil {
		return err
	}
	start := time.Now()
	disable()
	for _, message := range []string{"n", "o"} {
		if err := e.EditEcho(ctx, one, func(s *echov1.EchoSpec) { s.Message, s.Replicas = message, 1 }); err != nil {
			return err
		}
	}
	if err := awaitSuccessor(ctx, e, before); err != nil {
		return err
	}
	if exitsBefore && !leader.Exited() {
		return fmt.Errorf("%w while another operator holds the lease", errStillRunning)
	}
	if err := e.Await(ctx, harness.ConvergenceTimeout, "every Echo is ready", e.AllReady(e.Subject)); err != nil {
		return err
	}
	if err := e.Measure("new leader has reconciled", time.Since(start), limitAfterKill); err != nil {
		return err
	}
	enable()
	if err := e.EditEcho(ctx, one, func(s *echov1.EchoSpec) { s.Message = "p" }); err != nil {
		return err
	}
	if err := e.Await(ctx, exitTimeout, "previous leader has exited", func(context.Context) error {
		if !leader.Exited() {
			return errStillRunning
		}
		return nil
	}); err != nil {
		return err
	}
	return e.Verify(ctx)
}

// twoLeaders has two operators reconcile the same Echoes, each with its own faults.
func twoLeaders(seed uint64) harness.Scenario {
	name := fmt.Sprintf("two operators without leader election, seed %d", seed)
	return harness.Scenario{Name: name, Run: func(ctx context.Context, e *harness.Environment) error {
		random := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // It must be reproducible.
		other, err := e.AddReplica()
		if err != nil {
			return err
		}
		defer other.Kill()
		for _, p := range e.Proxies() {
			p.SetPlan(newRandomPlan(random.Uint64(), random))
		}
		s := scheduler{Environment: e, random: random, exists: map[string]bool{}}
		for range 12 {
			name, err := s.step(ctx)
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			if random.IntN(4) == 0 {
				if err := s.serveStale(ctx); err != nil {
					return err
				}
			}
			harness.Pause(ctx, time.Duration(random.IntN(600))*time.Millisecond)
		}
		return errors.Join(e.Verify(ctx), other.Failed())
	}}
}

// disconnected fails every request.
var disconnected = plan{
	request: func(proxy.Request) proxy.Fault { return proxy.Fault{Reset: true} },
	event:   func(proxy.Request) proxy.EventFault { return proxy.CloseWatch },
}
