package oracle

import (
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/test/chaos/kinds"
)

// script builds a history, one resource version after the other.
type script struct {
	*History
	version int
	now     time.Time
}

func newScript() *script { return &script{History: NewHistory(), now: time.Now()} }

// add records the next version of an object.
func (s *script) add(object client.Object) {
	s.version++
	object = object.DeepCopyObject().(client.Object)
	object.SetResourceVersion(fmt.Sprint(s.version))
	s.Add(object, s.now)
}

// wait lets time pass.
func (s *script) wait(d time.Duration) { s.now = s.now.Add(d) }

// newEcho returns an Echo with a name, of a generation, whose message names the generation.
func newEcho(generation int64) *echov1.Echo {
	return &echov1.Echo{
		ObjectMeta: metav1.ObjectMeta{Name: "one", UID: "echo", Generation: generation},
		Spec:       echov1.EchoSpec{Message: fmt.Sprint("message ", generation), Replicas: 2, Port: 80, TargetPort: 5678},
	}
}

// ready returns the Echo with a status that says Ready of its generation.
func ready(echo *echov1.Echo) *echov1.Echo {
	echo.Status.ObservedGeneration = echo.Generation
	echo.Status.Conditions = []metav1.Condition{
		{Type: echov1.ConditionReady, Status: metav1.ConditionTrue, Reason: echov1.ReasonReady, ObservedGeneration: echo.Generation},
	}
	return echo
}

// newDeployment returns the Deployment of the Echo before its rollout.
func newDeployment(echo *echov1.Echo, uid types.UID) *appsv1.Deployment {
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: kinds.ServerName(echo.Name), UID: uid, Generation: echo.Generation}}
	kinds.ByName("Deployment").Mutate(d, echo, kinds.Inputs())
	return d
}

// rolledOut returns the Deployment after its rollout.
func rolledOut(d *appsv1.Deployment) *appsv1.Deployment {
	d.Status = appsv1.DeploymentStatus{ObservedGeneration: d.Generation, Replicas: 2, UpdatedReplicas: 2, AvailableReplicas: 2}
	return d
}

// expect compares the findings of a check with the parts of the one that is wanted, if any.
func expect(t *testing.T, findings []error, want ...string) {
	t.Helper()
	if len(want) == 0 {
		if len(findings) > 0 {
			t.Errorf("findings = %v, want none", findings)
		}
		return
	}
	if len(findings) != 1 {
		t.Fatalf("findings = %v, want one with %q", findings, want)
	}
	for _, part := range want {
		if !strings.Contains(findings[0].Error(), part) {
			t.Errorf("finding = %q, want it to contain %q", findings[0], part)
		}
	}
}

// verifiedStatus returns the Echo with a status that says Verified of its generation.
func verifiedStatus(echo *echov1.Echo) *echov1.Echo {
	echo = ready(echo)
	echo.Spec.Verify = &echov1.Verify{PeriodSeconds: 10, TimeoutSeconds: 2, FailureThreshold: 3}
	echo.Status.Conditions = append(echo.Status.Conditions, metav1.Condition{
		Type: echov1.ConditionVerified, Status: metav1.ConditionTrue, Reason: echov1.ReasonVerified, ObservedGeneration: echo.Generation,
	})
	return echo
}

// newVerifier returns the verifier of the Echo, whose pod is ready.
func newVerifier(echo *echov1.Echo) *appsv1.Deployment {
	kind := kinds.ByName("VerifierDeployment")
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: kinds.ChildName(kind, echo.Name), UID: "v", Generation: echo.Generation}}
	kind.Mutate(d, echo, kinds.Inputs())
	d.Status = appsv1.DeploymentStatus{ObservedGeneration: d.Generation, Replicas: 1, UpdatedReplicas: 1, ReadyReplicas: 1}
	return d
}

func TestCheckVerified(t *testing.T) {
	const wrong = "says Verified of generation 2"
	for name, test := range map[string]struct {
		history func(*script)
		want    []string
	}{
		"the verifier of the answer was ready": {func(s *script) {
			s.add(newVerifier(verifiedStatus(newEcho(2))))
			s.add(verifiedStatus(newEcho(2)))
		}, nil},
		"the verifier of the answer became ready later": {func(s *script) {
			s.add(verifiedStatus(newEcho(2)))
			s.add(newVerifier(verifiedStatus(newEcho(2))))
		}, []string{wrong}},
		"the verifier of an earlier answer was ready": {func(s *script) {
			s.add(newVerifier(verifiedStatus(newEcho(1))))
			s.add(verifiedStatus(newEcho(2)))
		}, []string{wrong}},
		"the verifier of the answer was not ready": {func(s *script) {
			verifier := newVerifier(verifiedStatus(newEcho(2)))
			verifier.Status.ReadyReplicas = 0
			s.add(verifier)
			s.add(verifiedStatus(newEcho(2)))
		}, []string{wrong}},
		"there was no verifier, and versions may be missing": {func(s *script) {
			s.Gap(1)
			s.add(verifiedStatus(newEcho(2)))
		}, nil},
		"the Echo is ready without a verification": {func(s *script) { s.add(ready(newEcho(2))) }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScript()
			test.history(s)
			expect(t, s.CheckVerified(), test.want...)
		})
	}
}

func TestCheckCreations(t *testing.T) {
	deployment := kinds.ByName("Deployment")
	for name, test := range map[string]struct {
		history func(*script)
		allowed int
		want    []string
	}{
		"created once, one allowed": {func(s *script) { s.add(newDeployment(newEcho(1), "a")) }, 1, nil},
		"several versions of one object": {func(s *script) {
			s.add(newDeployment(newEcho(1), "a"))
			s.add(newDeployment(newEcho(2), "a"))
		}, 1, nil},
		"created twice, two allowed": {func(s *script) {
			s.add(newDeployment(newEcho(1), "a"))
			s.add(newDeployment(newEcho(1), "b"))
		}, 2, nil},
		"created twice, one allowed": {func(s *script) {
			s.add(newEcho(1))
			s.add(newDeployment(newEcho(1), "a"))
			s.add(newDeployment(newEcho(1), "b"))
		}, 1, []string{"Deployment echo-one", "created 2 times", "at most 1"}},
		"created twice, the Echo was deleted after its status was observed": {func(s *script) {
			s.add(newEcho(1))
			s.add(ready(newEcho(1)))
			s.add(newDeployment(newEcho(1), "a"))
			s.add(newDeployment(newEcho(1), "b"))
			s.Delete(newEcho(1))
		}, 1, []string{"created 2 times"}},
		"created twice, the Echo was deleted before it had a status": {func(s *script) {
			s.add(newEcho(1))
			s.add(newDeployment(newEcho(1), "a"))
			s.add(newDeployment(newEcho(1), "b"))
			s.Delete(newEcho(1))
		}, 1, nil},
		"created twice, the operator was served the deleted Echo without its status": {func(s *script) {
			s.add(newEcho(1))
			serveStale(s, 1)
			s.add(ready(newEcho(1)))
			s.add(newDeployment(newEcho(1), "a"))
			s.add(newDeployment(newEcho(1), "b"))
			s.Delete(newEcho(1))
		}, 1, nil},
		"created twice, the operator was served the deleted Echo with its status": {func(s *script) {
			s.add(newEcho(1))
			s.add(ready(newEcho(1)))
			serveStale(s, 2)
			s.add(newDeployment(newEcho(1), "a"))
			s.add(newDeployment(newEcho(1), "b"))
			s.Delete(newEcho(1))
		}, 1, []string{"created 2 times"}},
		"created twice, the operator was served the state before the deleted Echo was created": {func(s *script) {
			serveStale(s, 0)
			s.add(newEcho(1))
			s.add(ready(newEcho(1)))
			s.add(newDeployment(newEcho(1), "a"))
			s.add(newDeployment(newEcho(1), "b"))
			s.Delete(newEcho(1))
		}, 1, []string{"created 2 times"}},
		"created twice, the Echo was deleted before it had a status, another one has a status": {func(s *script) {
			s.add(newEcho(1))
			s.add(newDeployment(newEcho(1), "a"))
			s.add(newDeployment(newEcho(1), "b"))
			s.Delete(newEcho(1))
			next := ready(newEcho(1))
			next.UID = "next"
			s.add(next)
		}, 1, nil},
		"created without an owner": {func(s *script) {
			d := newDeployment(newEcho(1), "a")
			d.OwnerReferences = nil
			s.add(d)
			s.add(newDeployment(newEcho(1), "b"))
		}, 1, []string{"created 2 times"}},
		"child that no operation mentions": {func(s *script) {
			s.add(newDeployment(newEcho(1), "a"))
			s.add(newDeployment(newEcho(1), "b"))
		}, 0, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScript()
			test.history(s)
			allowed := Creations{}
			for range test.allowed {
				allowed.Allow(deployment, "one")
			}
			expect(t, s.CheckCreations(allowed), test.want...)
		})
	}
}

func serveStale(s *script, version int) {
	if err := s.ServeStale(fmt.Sprint(version)); err != nil {
		panic(err)
	}
}

func TestServeStaleFailsWithoutAResourceVersion(t *testing.T) {
	if err := NewHistory().ServeStale("newest"); err == nil {
		t.Error("ServeStale(newest) succeeded, want an error")
	}
}

func TestAddIgnoresObjectsWithoutAResourceVersion(t *testing.T) {
	h := NewHistory()
	h.Add(newEcho(1), time.Now())
	if len(h.echoes) != 0 {
		t.Errorf("history has %d versions, want none", len(h.echoes))
	}
}

func TestCheckReady(t *testing.T) {
	notReady := []string{"Echo one", "Ready of generation 1", "not rolled out"}
	for name, test := range map[string]struct {
		history func(*script)
		want    []string
	}{
		"Deployment is rolled out": {func(s *script) {
			s.add(rolledOut(newDeployment(newEcho(1), "a")))
			s.add(ready(newEcho(1)))
		}, nil},
		"there is no Deployment": {func(s *script) { s.add(ready(newEcho(1))) }, notReady},
		"Deployment is not rolled out": {func(s *script) {
			s.add(newDeployment(newEcho(1), "a"))
			s.add(ready(newEcho(1)))
		}, notReady},
		"Deployment is rolled out later": {func(s *script) {
			s.add(newDeployment(newEcho(1), "a"))
			s.add(ready(newEcho(1)))
			s.add(rolledOut(newDeployment(newEcho(1), "a")))
		}, notReady},
		"Deployment of the earlier spec is rolled out": {func(s *script) {
			s.add(rolledOut(newDeployment(newEcho(1), "a")))
			s.add(ready(newEcho(2)))
		}, []string{"Ready of generation 2"}},
		"status is about the earlier generation": {func(s *script) {
			s.add(rolledOut(newDeployment(newEcho(1), "a")))
			echo := newEcho(2)
			echo.Status = ready(newEcho(1)).Status
			s.add(echo)
		}, nil},
		"status says not ready": {func(s *script) {
			echo := ready(newEcho(1))
			echo.Status.Conditions[0].Status = metav1.ConditionFalse
			s.add(echo)
		}, nil},
		"external writer changed the Deployment right before": {func(s *script) {
			s.add(rolledOut(newDeployment(newEcho(1), "a")))
			s.add(newDeployment(newEcho(2), "a"))
			s.wait(readyLag / 2)
			s.add(ready(newEcho(1)))
		}, nil},
		"external writer changed the Deployment long before": {func(s *script) {
			s.add(rolledOut(newDeployment(newEcho(1), "a")))
			s.add(newDeployment(newEcho(2), "a"))
			s.wait(2 * readyLag)
			s.add(ready(newEcho(1)))
		}, notReady},
		"external writer changed the Deployment long before, and the view may lag": {func(s *script) {
			s.AllowLag()
			s.add(rolledOut(newDeployment(newEcho(1), "a")))
			s.add(newDeployment(newEcho(2), "a"))
			s.wait(2 * readyLag)
			s.add(ready(newEcho(1)))
		}, nil},
		"history has a gap": {func(s *script) {
			s.add(newDeployment(newEcho(1), "a"))
			s.add(ready(newEcho(1)))
			s.Gap(uint64(s.version))
		}, nil},
		"history has a gap later": {func(s *script) {
			s.add(newDeployment(newEcho(1), "a"))
			s.add(ready(newEcho(1)))
			s.add(newDeployment(newEcho(1), "a"))
			s.Gap(uint64(s.version) + 1)
		}, notReady},
		"history has two gaps later": {func(s *script) {
			s.add(newDeployment(newEcho(1), "a"))
			s.add(ready(newEcho(1)))
			s.add(newDeployment(newEcho(1), "a"))
			s.Gap(uint64(s.version) + 1)
			s.Gap(uint64(s.version) + 2)
		}, notReady},
		"history has a gap before": {func(s *script) {
			s.add(newDeployment(newEcho(1), "a"))
			s.Gap(uint64(s.version))
			s.add(ready(newEcho(1)))
		}, notReady},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScript()
			test.history(s)
			expect(t, s.CheckReady(), test.want...)
		})
	}
}

func TestRolledOut(t *testing.T) {
	if d := rolledOut(newDeployment(newEcho(1), "a")); !RolledOut(d, newEcho(1)) {
		t.Error("RolledOut = false for a completed rollout, want true")
	}
	for name, change := range map[string]func(*appsv1.Deployment){
		"spec has another message":          func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Args = []string{"-text=other"} },
		"generation is not observed":        func(d *appsv1.Deployment) { d.Generation++ },
		"replica is not updated":            func(d *appsv1.Deployment) { d.Status.UpdatedReplicas, d.Status.Replicas = 1, 1 },
		"replica is not available":          func(d *appsv1.Deployment) { d.Status.AvailableReplicas-- },
		"replica of an earlier spec exists": func(d *appsv1.Deployment) { d.Status.Replicas++ },
	} {
		d := rolledOut(newDeployment(newEcho(1), "a"))
		change(d)
		if RolledOut(d, newEcho(1)) {
			t.Errorf("RolledOut = true, want false: %s", name)
		}
	}
}

func TestRolledOutAcceptsFieldsThatTheStatusReportsAsOverridden(t *testing.T) {
	d := rolledOut(newDeployment(newEcho(1), "a"))
	d.Spec.Template.Spec.Containers[0].Image = "mirror:1"
	echo := newEcho(1)
	if RolledOut(d, echo) {
		t.Error("RolledOut = true with an image that is not reported, want false")
	}
	echo.Status.Overridden = []echov1.OverriddenChild{{Kind: "Deployment", Fields: []string{imageField, "spec.template.spec.containers[echo].args"}}}
	if !RolledOut(d, echo) {
		t.Error("RolledOut = false with an image that is reported, want true")
	}
	d.Spec.Template.Spec.Containers[0].Args = []string{"-text=other"}
	if RolledOut(d, echo) {
		t.Error("RolledOut = true with other args, want false, even if they are reported")
	}
}

func TestCheckOrder(t *testing.T) {
	for name, test := range map[string]struct {
		history func(*script)
		want    []string
	}{
		"generations increase": {func(s *script) {
			s.add(newEcho(1))
			s.add(newDeployment(newEcho(1), "a"))
			s.add(newEcho(2))
			s.add(newDeployment(newEcho(2), "a"))
		}, nil},
		"generation decreases": {func(s *script) {
			s.add(newEcho(1))
			s.add(newEcho(2))
			s.add(newDeployment(newEcho(2), "a"))
			s.add(newDeployment(newEcho(1), "a"))
		}, []string{"Deployment echo-one", "from generation 2", "back to generation 1"}},
		"generation decreases with a new object": {func(s *script) {
			s.add(newEcho(1))
			s.add(newEcho(2))
			s.add(newDeployment(newEcho(2), "a"))
			s.add(newDeployment(newEcho(1), "b"))
		}, nil},
		"later generation has the message of the first": {func(s *script) {
			s.add(newEcho(1))
			s.add(newEcho(2))
			s.add(newDeployment(newEcho(2), "a"))
			back := newEcho(1)
			back.Generation = 3
			s.add(back)
			s.add(newDeployment(newEcho(1), "a"))
		}, nil},
		"later generation gets the message of the first afterwards": {func(s *script) {
			s.add(newEcho(1))
			s.add(newEcho(2))
			s.add(newDeployment(newEcho(2), "a"))
			s.add(newDeployment(newEcho(1), "a"))
			back := newEcho(1)
			back.Generation = 3
			s.add(back)
		}, []string{"back to generation 1"}},
		"versions of the Echo are recorded in another order": {func(s *script) {
			back := newEcho(1)
			back.Generation = 3
			s.add(back)
			s.add(newEcho(1))
			s.add(newEcho(2))
			s.add(newDeployment(newEcho(2), "a"))
			s.add(newDeployment(newEcho(1), "a"))
		}, nil},
		"external writer sets a message of no generation": {func(s *script) {
			s.add(newEcho(1))
			s.add(newDeployment(newEcho(1), "a"))
			s.add(newDeployment(newEcho(7), "a"))
			s.add(newDeployment(newEcho(1), "a"))
		}, nil},
		"Deployment is controlled by another Echo": {func(s *script) {
			s.add(newEcho(1))
			s.add(newEcho(2))
			s.add(newDeployment(newEcho(2), "a"))
			d := newDeployment(newEcho(1), "a")
			d.OwnerReferences[0].UID = "other"
			s.add(d)
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScript()
			test.history(s)
			expect(t, s.CheckOrder(), test.want...)
		})
	}
}
