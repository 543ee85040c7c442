package scenarios

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/testing/controlplane"
	"github.com/kkloud-io/echo-operator/test/chaos/harness"
	"github.com/kkloud-io/echo-operator/test/chaos/oracle"
)

const (
	// causeLimit is after which time without progress the status says why, and causeSlack what a busy machine adds.
	causeLimit = 2 * time.Minute
	causeSlack = 20 * time.Second
	// obstaclesAtOnce is how many obstacles are in effect at the same time, each in a namespace of its own.
	obstaclesAtOnce = 100
	// obstacleInterval is the time between two looks at an Echo.
	obstacleInterval = 2 * time.Second

	// obstacleLabel and targetLabel of a namespace select the policy that is in effect there, and for what.
	obstacleLabel     = "kkloud.io/chaos-obstacle"
	targetLabel       = "kkloud.io/chaos-target"
	obstacleFinalizer = "kkloud.io/chaos-obstacle"
	// operatorManager is the field manager of the operator.
	operatorManager = "manager"
	// componentLabel has the target, on everything that belongs to it.
	componentLabel = "app.kubernetes.io/component"
)

// target is what an obstacle stops.
type target struct {
	name, component string
	verify          *echov1.Verify
}

var targets = []target{
	{"server", "server", nil},
	{"verifier", "verifier", &echov1.Verify{From: echov1.VerifyFromCluster}},
	{"verifier on every node", "verifier", &echov1.Verify{From: echov1.VerifyFromEveryNode}},
}

// moment is what happens to an Echo while an obstacle is in effect.
type moment struct {
	name string
	// prepare happens before the obstacle.
	prepare func(context.Context, *obstacleCase) error
	act     func(context.Context, *obstacleCase) error
}

var moments = []moment{
	{"before the creation", func(ctx context.Context, c *obstacleCase) error {
		if c.target.verify == nil {
			return nil
		}
		return c.createReady(ctx, nil)
	}, func(ctx context.Context, c *obstacleCase) error {
		if c.target.verify == nil {
			return c.create(ctx, nil)
		}
		return c.edit(ctx, func(s *echov1.EchoSpec) { s.Verify = c.target.verify })
	}},
	{"before an edit", createTarget, func(ctx context.Context, c *obstacleCase) error {
		return c.edit(ctx, func(s *echov1.EchoSpec) { s.Message = "n" })
	}},
	{"before a deletion", createTarget, func(ctx context.Context, c *obstacleCase) error {
		return c.forEach(ctx, c.place.resource, func(object client.Object) error {
			return c.Client.Delete(ctx, object)
		})
	}},
}

func createTarget(ctx context.Context, c *obstacleCase) error {
	return c.createReady(ctx, c.target.verify)
}

// obstacles has something stop each object of an Echo, and what its controllers create for it, from reaching its end.
// The status has to say so in time, and the Echo has to recover. What the API server has decides about the cases, so a
// scenario consists of all of a moment. SCENARIO="before an edit: quota" selects some.
func obstacles(o harness.Options) (all []harness.Scenario, err error) {
	for _, m := range moments {
		name := m.name
		if strings.HasPrefix(o.Scenario, m.name+":") {
			name = o.Scenario
		}
		isSelected := func(c *obstacleCase) bool {
			return (slices.Contains(coreOfPlaces, c.place.name) || !o.Short) && strings.Contains(c.name(), name)
		}
		if !o.Short || m.name == "before an edit" {
			all = append(all, harness.Scenario{Name: name, Run: func(ctx context.Context, e *harness.Environment) error {
				return runObstacles(ctx, e, m, isSelected)
			}})
		}
	}
	return all, nil
}

func runObstacles(ctx context.Context, e *harness.Environment, m moment, isSelected func(*obstacleCase) bool) error {
	e.Operator.Kill()
	if err := e.StartOperatorFor(); err != nil { // In all namespaces.
		return err
	}
	s := &survey{Environment: e}
	defer func() { _ = s.cleanUp(context.WithoutCancel(ctx)) }()
	if err := s.run(ctx); err != nil {
		return err
	}
	var cases []*obstacleCase
	for _, p := range s.places {
		for _, t := range targets {
			c := &obstacleCase{survey: s, place: p, target: t, moment: m, namespace: fmt.Sprintf("held-%d", len(cases))}
			if s.concerns(p, t, m) && isSelected(c) {
				cases = append(cases, c)
			}
		}
	}
	fmt.Printf("obstacles %s: %d places, %d cases\n", m.name, len(s.places), len(cases))
	var findings []error
	for chunk := range slices.Chunk(cases, obstaclesAtOnce) {
		findings = append(findings, runAtOnce(ctx, e, chunk)...)
	}
	counts := map[string]int{}
	for _, c := range cases {
		counts[c.outcome]++
	}
	fmt.Printf("obstacles %s, outcomes: %v\n", m.name, counts)
	return errors.Join(findings...)
}

// runAtOnce runs cases at the same time. Then the operator makes no more writes.
func runAtOnce(ctx context.Context, e *harness.Environment, cases []*obstacleCase) []error {
	findings := make([]error, len(cases))
	var group sync.WaitGroup
	for i, c := range cases {
		group.Go(func() {
			if err := c.run(ctx); err != nil {
				findings[i] = fmt.Errorf("%s: %w", c.name(), err)
			}
		})
	}
	group.Wait()
	if errors.Join(findings...) == nil {
		findings = append(findings, e.ExpectNoWrites(ctx))
	}
	for _, c := range cases {
		findings = append(findings, c.deleteNamespace(context.WithoutCancel(ctx), c.namespace))
	}
	return append(findings, e.Operator.Failed())
}

// obstacleCase is a place, a target and a moment, in a namespace.
type obstacleCase struct {
	*survey
	place     place
	target    target
	moment    moment
	namespace string
	// outcome is how it ended, for the summary.
	outcome string
}

func (c *obstacleCase) name() string {
	return fmt.Sprintf("%s: %s, %s", c.moment.name, c.place.name, c.target.name)
}

func (c *obstacleCase) run(ctx context.Context) error {
	c.outcome = "failed"
	if err := c.createNamespace(ctx, c.namespace, c.target); err != nil {
		return err
	}
	if err := c.moment.prepare(ctx, c); err != nil {
		return fmt.Errorf("before the obstacle: %w", err)
	}
	outcome, finding := c.disturb(ctx)
	finding = errors.Join(finding, c.remove(context.WithoutCancel(ctx)))
	touched, err := c.awaitRecovery(ctx)
	if err := errors.Join(finding, err); err != nil {
		return err
	}
	c.outcome = outcome
	if touched {
		c.outcome += " after a touch"
	}
	return nil
}

// disturb puts the obstacle into effect, and checks that the status says so in time.
func (c *obstacleCase) disturb(ctx context.Context) (outcome string, err error) {
	if err := c.install(ctx); err != nil {
		return "", err
	}
	if err := c.moment.act(ctx, c); err != nil {
		return "", err
	}
	harness.Pause(ctx, causeLimit)
	if err := c.pauseAfterProgress(ctx); err != nil {
		return "", err
	}
	if err := c.poll(ctx, causeSlack+c.place.patience, c.checkCause); err != nil {
		return "", err
	}
	if c.whenReady(ctx) == nil {
		return "not stopped", nil
	}
	return "reported and recovered", nil
}

// pauseAfterProgress waits until the limit has passed since the last progress that the obstacle did not stop: the operator
// wrote a child, for example the verifier after the rollout, or its controller created something for it. That a
// controller replaces its pods is no progress.
func (c *obstacleCase) pauseAfterProgress(ctx context.Context) error {
	var last time.Time
	record := func(t metav1.Time) {
		if t.After(last) {
			last = t.Time
		}
	}
	for resource := range c.trees[c.target.name].Difference(sets.New(podResource)) {
		err := c.forEach(ctx, resource, func(object client.Object) error {
			record(object.GetCreationTimestamp())
			for _, field := range object.GetManagedFields() {
				if field.Manager == operatorManager && field.Time != nil {
					record(*field.Time)
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	harness.Pause(ctx, causeLimit-time.Since(last))
	return ctx.Err()
}

func (c *obstacleCase) create(ctx context.Context, verify *echov1.Verify) error {
	spec := everyChild()
	spec.Verify = verify
	return c.Client.Create(ctx, &echov1.Echo{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: one}, Spec: spec})
}

func (c *obstacleCase) createReady(ctx context.Context, verify *echov1.Verify) error {
	if err := c.create(ctx, verify); err != nil {
		return err
	}
	return c.poll(ctx, 3*harness.ConvergenceTimeout, c.whenReady)
}

func (c *obstacleCase) edit(ctx context.Context, change func(*echov1.EchoSpec)) error {
	echo, err := c.GetEcho(ctx, c.namespace, one)
	if err != nil {
		return err
	}
	before := echo.DeepCopy()
	change(&echo.Spec)
	return c.Client.Patch(ctx, echo, client.MergeFrom(before))
}

// install puts the obstacle into effect.
func (c *obstacleCase) install(ctx context.Context) error {
	if c.place.isFinalizer() {
		return c.setFinalizers(ctx, []string{obstacleFinalizer})
	}
	if c.place.policy != nil {
		if err := c.labelNamespace(ctx, `"`+objectName(c.place.name)+`"`); err != nil {
			return err
		}
		harness.Pause(ctx, 3*time.Second) // Until the API server has observed the label.
		return nil
	}
	object := c.place.object()
	object.SetNamespace(c.namespace)
	if err := c.Client.Create(ctx, object); err != nil {
		return err
	}
	quota, isQuota := object.(*corev1.ResourceQuota)
	if !isQuota {
		return nil
	}
	return c.poll(ctx, 2*harness.ConvergenceTimeout, func(ctx context.Context) error {
		if err := c.Client.Get(ctx, client.ObjectKeyFromObject(quota), quota); err != nil {
			return err
		}
		if len(quota.Status.Used) == 0 {
			return errNotCounted
		}
		return nil
	})
}

// remove removes the obstacle, and the pods that it holds: a policy that is gone does not change them back.
func (c *obstacleCase) remove(ctx context.Context) error {
	if c.place.isFinalizer() {
		return c.setFinalizers(ctx, nil)
	}
	if c.place.object != nil {
		object := c.place.object()
		object.SetNamespace(c.namespace)
		return client.IgnoreNotFound(c.Client.Delete(ctx, object))
	}
	if err := c.labelNamespace(ctx, "null"); err != nil || !c.place.holdsPods {
		return client.IgnoreNotFound(err)
	}
	harness.Pause(ctx, 3*time.Second)
	var pods corev1.PodList
	if err := c.Client.List(ctx, &pods, client.InNamespace(c.namespace), client.MatchingLabels{componentLabel: c.target.component}); err != nil {
		return err
	}
	for i := range pods.Items {
		if err := client.IgnoreNotFound(c.Client.Delete(ctx, &pods.Items[i], client.GracePeriodSeconds(0))); err != nil {
			return err
		}
	}
	return nil
}

func (c *obstacleCase) labelNamespace(ctx context.Context, value string) error {
	patch := fmt.Sprintf(`{"metadata":{"labels":{%q:%s}}}`, obstacleLabel, value)
	return c.Client.Patch(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: c.namespace}}, client.RawPatch(types.MergePatchType, []byte(patch)))
}

func (c *obstacleCase) setFinalizers(ctx context.Context, finalizers []string) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"finalizers": finalizers}})
	if err != nil {
		return err
	}
	return c.forEach(ctx, c.place.resource, func(object client.Object) error {
		return c.Client.Patch(ctx, object, client.RawPatch(types.MergePatchType, patch))
	})
}

// forEach does something to all objects of the resource that belong to the target.
func (c *obstacleCase) forEach(ctx context.Context, resource schema.GroupVersionResource, do func(client.Object) error) error {
	objects, err := c.list(ctx, resource)
	if err != nil {
		return err
	}
	for i := range objects {
		if err := do(&objects[i]); client.IgnoreNotFound(err) != nil {
			return err
		}
	}
	return nil
}

// poll repeats the check until it succeeds. A check that has started may complete: many cases check at the same time.
func (c *obstacleCase) poll(ctx context.Context, timeout time.Duration, check func(context.Context) error) error {
	for start := time.Now(); ; harness.Pause(ctx, obstacleInterval) {
		err := check(ctx)
		if err == nil || time.Since(start) > timeout || ctx.Err() != nil {
			return err
		}
	}
}

func (c *obstacleCase) isReady(echo *echov1.Echo) error {
	if err := oracle.CheckReadyNow(echo); err != nil || echo.Spec.Verify == nil {
		return err
	}
	return oracle.CheckCondition(echo, echov1.ConditionVerified, echov1.ReasonVerified)
}

func (c *obstacleCase) whenReady(ctx context.Context) error {
	echo, err := c.GetEcho(ctx, c.namespace, one)
	if err != nil {
		return err
	}
	return c.isReady(echo)
}

// checkCause checks the status against what the cluster says in events and conditions.
func (c *obstacleCase) checkCause(ctx context.Context) error {
	echo, err := c.GetEcho(ctx, c.namespace, one)
	if err != nil {
		return err
	}
	var said []string
	var events corev1.EventList
	if err := c.Client.List(ctx, &events, client.InNamespace(c.namespace)); err != nil {
		return err
	}
	for i := range events.Items {
		said = append(said, events.Items[i].Message)
	}
	for resource := range c.trees[c.target.name] {
		err := c.forEach(ctx, resource, func(object client.Object) error {
			conditions, _, _ := unstructured.NestedSlice(object.(*unstructured.Unstructured).Object, "status", "conditions")
			said = append(said, fmt.Sprint(conditions))
			return nil
		})
		if err != nil {
			return err
		}
	}
	return oracle.CheckCause(echo, []string{objectName(c.place.name), `"` + controlplane.Missing + `"`}, said)
}

// awaitRecovery waits until the Echo is ready. Controllers that gave up or that wait for long need a touch, which the
// documents name. An object that the operator writes does not.
func (c *obstacleCase) awaitRecovery(ctx context.Context) (touched bool, err error) {
	err = c.poll(ctx, harness.ConvergenceTimeout, c.whenReady)
	if err == nil || c.place.byOperator {
		return false, wrap("without the obstacle", err)
	}
	for resource := range c.trees[c.target.name] {
		if !slices.Contains([]string{"deployments", "replicasets", "daemonsets"}, resource.Resource) {
			continue
		}
		if err := c.forEach(ctx, resource, func(object client.Object) error {
			return c.Client.Patch(ctx, object, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"touched":"yes"}}}`)))
		}); err != nil {
			return true, err
		}
	}
	return true, wrap("touched without the obstacle", c.poll(ctx, harness.ConvergenceTimeout, c.whenReady))
}

func wrap(when string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", when, err)
}
