package main

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
	"github.com/kkloud-io/echo-operator/test/chaos/proxy"
	"github.com/kkloud-io/echo-operator/internal/testing/controlplane"
)

const (
	leaseName = "echo-operator.kkloud.io"

	// How soon an Echo of right after the end of a leader has to be ready.
	afterTerm = 5 * time.Second
	afterKill = 20 * time.Second
	// renewals is longer than a leader takes from one renewal of its lease to the next, and
	// giveUp longer than it tries to renew a lease that it has lost.
	renewals = 3 * time.Second
	giveUp   = 12 * time.Second
)

// leaders are scenarios of several operators in one namespace.
func leaders(_ context.Context, o options) (all []scenario, err error) {
	runs := 5
	if o.short {
		runs = 1
	}
	all = []scenario{
		{name: "SIGKILL of the leader", run: succession(afterKill, runs, func(p *controlplane.Operator) error {
			p.Kill()
			return nil
		})},
		{name: "the leader is cut off", run: cutOffLeader},
		{name: "the leader is paused", run: pausedLeader},
		{name: "SIGTERM of the leader", run: succession(afterTerm, runs, (*controlplane.Operator).Terminate)},
	}
	for i := range runs {
		all = append(all, twoLeaders(o.seed+uint64(i)))
	}
	return all, nil
}

// replica is one of several operators.
type replica struct {
	*controlplane.Operator
	proxy *proxy.Proxy
}

// addReplica starts another operator in the world's namespace.
func (w *world) addReplica(args ...string) (r replica, err error) {
	if r.proxy, err = proxy.New(w.user); err != nil {
		return r, err
	}
	w.others = append(w.others, r.proxy)
	r.Operator, err = startOperator(w.program, w.directory, r.proxy, []string{w.fire}, args...)
	return r, err
}

// elect replaces the world's operator by a leader and a standby that knows the cluster.
func (w *world) elect(ctx context.Context) (leader, standby replica, err error) {
	w.operator.Kill()
	w.args = []string{"--leader-elect"} // For the oracle's restart.
	if err := w.grantLease(ctx); err != nil {
		return leader, standby, err
	}
	if leader, err = w.addReplica(w.args...); err != nil {
		return leader, standby, err
	}
	if err = w.awaitSuccessor(ctx, ""); err != nil {
		return leader, standby, err
	}
	standby, err = w.addStandby(ctx)
	return leader, standby, err
}

func (w *world) addStandby(ctx context.Context) (replica, error) {
	standby, err := w.addReplica(w.args...)
	if err != nil {
		return standby, err
	}
	err = w.await(ctx, convergence, "the standby watches", func(context.Context) error {
		if n := standby.proxy.Watches(); n < watched {
			return fmt.Errorf("it has %d of %d watches", n, watched)
		}
		return standby.Failed()
	})
	// The lease may be at any point of its term when its holder ends.
	pause(ctx, renewals+rand.N(renewals)) //nolint:gosec // Nothing secret.
	return standby, err
}

// grantLease gives the operators what config/rbac gives them for their election.
func (w *world) grantLease(ctx context.Context) error {
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: w.fire, Name: leaseName}}
	if err := client.IgnoreNotFound(w.plane.Client.Delete(ctx, lease)); err != nil {
		return err
	}
	file, err := os.ReadFile(filepath.Join(w.root, "config", "rbac", "leader_election_role.yaml")) //nolint:gosec // A file of the tree.
	if err != nil {
		return err
	}
	var role rbacv1.Role
	if err := yaml.UnmarshalStrict(file, &role); err != nil {
		return err
	}
	role.Namespace = w.fire
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.fire, Name: role.Name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: operatorUser}},
	}
	return errors.Join(client.IgnoreAlreadyExists(w.plane.Client.Create(ctx, &role)),
		client.IgnoreAlreadyExists(w.plane.Client.Create(ctx, binding)))
}

// leaderNow returns who holds the lease, or nothing.
func (w *world) leaderNow(ctx context.Context) (string, error) {
	var lease coordinationv1.Lease
	err := w.plane.Client.Get(ctx, client.ObjectKey{Namespace: w.fire, Name: leaseName}, &lease)
	return ptr.Deref(lease.Spec.HolderIdentity, ""), client.IgnoreNotFound(err)
}

// awaitSuccessor waits until somebody else leads.
func (w *world) awaitSuccessor(ctx context.Context, before string) error {
	return w.await(ctx, convergence, "another operator leads", func(ctx context.Context) error {
		leader, err := w.leaderNow(ctx)
		if err == nil && (leader == "" || leader == before) {
			err = fmt.Errorf("the leader is %q", leader)
		}
		return err
	})
}

// succession ends leader after leader, and measures how long an Echo of right after that
// takes until it is ready.
func succession(allowed time.Duration, runs int, end func(*controlplane.Operator) error) func(context.Context, *world) error {
	return func(ctx context.Context, w *world) error {
		leader, standby, err := w.elect(ctx)
		if err != nil {
			return err
		}
		defer func() { leader.Kill(); standby.Kill() }()
		for run := range runs {
			if run > 0 {
				leader = standby
				if standby, err = w.addStandby(ctx); err != nil {
					return err
				}
			}
			before, err := w.leaderNow(ctx)
			if err != nil {
				return err
			}
			start, ended := time.Now(), make(chan error, 1)
			go func() { ended <- end(leader.Operator) }()
			echo := fmt.Sprintf("after-%d", run)
			if err := w.createEcho(ctx, echo, echov1.EchoSpec{Message: echo}); err != nil {
				return err
			}
			if err := w.awaitSuccessor(ctx, before); err != nil {
				return err
			}
			if err := w.await(ctx, convergence, "the Echo is ready", w.ready(w.fire)); err != nil {
				return err
			}
			took := time.Since(start)
			if err := <-ended; err != nil {
				return err
			}
			if err := w.measured("a new leader has acted", took, allowed); err != nil {
				return err
			}
		}
		return w.verify(ctx)
	}
}

// cutOffLeader takes the API server away from the leader alone.
func cutOffLeader(ctx context.Context, w *world) error {
	leader, standby, err := w.elect(ctx)
	if err != nil {
		return err
	}
	defer func() { leader.Kill(); standby.Kill() }()
	return w.depose(ctx, leader, func() { leader.proxy.SetPlan(cutOff{}) }, func() { leader.proxy.SetPlan(nil) }, true)
}

// pausedLeader stops the leader's process for as long as it takes to lose the lease, as a
// machine that hangs would.
func pausedLeader(ctx context.Context, w *world) error {
	leader, standby, err := w.elect(ctx)
	if err != nil {
		return err
	}
	defer func() { leader.Kill(); standby.Kill() }()
	signal := func(s syscall.Signal) func() {
		return func() { leader.Signal(s) }
	}
	return w.depose(ctx, leader, signal(syscall.SIGSTOP), signal(syscall.SIGCONT), false)
}

// depose disables the leader until another one leads, and checks that it ends: before another
// leads, where it can, and else soon after, without harm.
func (w *world) depose(ctx context.Context, leader replica, disable, enable func(), ends bool) error {
	if err := w.createEcho(ctx, one, echov1.EchoSpec{Message: "m", Replicas: 2}); err != nil {
		return err
	}
	if err := w.settle(ctx); err != nil {
		return err
	}
	before, err := w.leaderNow(ctx)
	if err != nil {
		return err
	}
	start := time.Now()
	disable()
	for _, message := range []string{"n", "o"} {
		if err := w.editEcho(ctx, one, func(s *echov1.EchoSpec) { s.Message, s.Replicas = message, 1 }); err != nil {
			return err
		}
	}
	if err := w.awaitSuccessor(ctx, before); err != nil {
		return err
	}
	if ends && !leader.Ended() {
		return errors.New("the leader still runs while another leads")
	}
	if err := w.await(ctx, convergence, "the Echo is ready", w.ready(w.fire)); err != nil {
		return err
	}
	if err := w.measured("another has acted", time.Since(start), afterKill); err != nil {
		return err
	}
	enable()
	if err := w.editEcho(ctx, one, func(s *echov1.EchoSpec) { s.Message = "p" }); err != nil {
		return err
	}
	if err := w.await(ctx, giveUp, "the leader of before ends", func(context.Context) error {
		if !leader.Ended() {
			return errors.New("it still runs")
		}
		return nil
	}); err != nil {
		return err
	}
	return w.verify(ctx)
}

// twoLeaders has two operators act on the same Echoes, each with faults of its own.
func twoLeaders(seed uint64) scenario {
	return scenario{name: fmt.Sprintf("two believe that they lead, seed %d", seed), run: func(ctx context.Context, w *world) error {
		random := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // It has to repeat itself.
		other, err := w.addReplica()
		if err != nil {
			return err
		}
		defer other.Kill()
		for _, p := range w.proxies() {
			p.SetPlan(newRandomPlan(random.Uint64(), random))
		}
		s := scheduler{world: w, random: random, exists: map[string]bool{}}
		for range 12 {
			name, err := s.step(ctx)
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			if random.IntN(4) == 0 {
				if err := s.freeze(ctx); err != nil {
					return err
				}
			}
			pause(ctx, time.Duration(random.IntN(600))*time.Millisecond)
		}
		return errors.Join(w.verify(ctx), other.Failed())
	}}
}

// cutOff drops every request.
type cutOff struct{}

// Request implements proxy.Plan.
func (cutOff) Request(proxy.Request) proxy.Fault { return proxy.Fault{Reset: true} }

// Event implements proxy.Plan.
func (cutOff) Event(proxy.Request) proxy.EventFault { return proxy.Cut }
