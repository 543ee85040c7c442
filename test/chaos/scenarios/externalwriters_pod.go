package scenarios

import (
	"context"
	"maps"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/children"
	"github.com/kkloud-io/echo-operator/test/chaos/harness"
	"github.com/kkloud-io/echo-operator/test/chaos/oracle"
)

// podWriters has external writers change the pod template beside spec.pod.
func podWriters() []harness.Scenario {
	return []harness.Scenario{
		{Name: "pod settings drift", Run: revertPodDrift},
		{Name: "pod settings are removed beside entries that an external writer added later", Run: podEntries{}.run},
		{Name: "pod settings are removed beside entries that an external writer added before", Run: podEntries{before: true}.run},
		{Name: "pod settings are removed beside entries of an external writer while the operator is not running", Run: podEntries{stopped: true}.run},
	}
}

// setPod sets spec.pod, and waits until the pods have it.
func setPod(ctx context.Context, e *harness.Environment, settings *echov1.PodSettings) error {
	if err := e.EditEcho(ctx, one, func(s *echov1.EchoSpec) { s.Pod = settings }); err != nil {
		return err
	}
	if err := e.AwaitReady(ctx, one); err != nil {
		return err
	}
	return e.Settle(ctx)
}

// podDrifts are changes of what the operator sets for spec.pod.
var podDrifts = []drift{
	ofDeployment("no node selector", func(d *appsv1.Deployment) { d.Spec.Template.Spec.NodeSelector = nil }),
	ofDeployment("another node", func(d *appsv1.Deployment) { d.Spec.Template.Spec.NodeSelector["example.com/pool"] = "other" }),
	ofDeployment("no tolerations", func(d *appsv1.Deployment) { d.Spec.Template.Spec.Tolerations = nil }),
	ofDeployment("a toleration for a shorter time", func(d *appsv1.Deployment) {
		for _, t := range d.Spec.Template.Spec.Tolerations {
			if t.TolerationSeconds != nil {
				*t.TolerationSeconds = 1
			}
		}
	}),
	ofDeployment("another priority class", func(d *appsv1.Deployment) { d.Spec.Template.Spec.PriorityClassName = "system-cluster-critical" }),
	ofDeployment("no priority class", func(d *appsv1.Deployment) { d.Spec.Template.Spec.PriorityClassName = "" }),
	ofDeployment("no pull secrets", func(d *appsv1.Deployment) { d.Spec.Template.Spec.ImagePullSecrets = nil }),
	ofDeployment("another label of the pods", func(d *appsv1.Deployment) { d.Spec.Template.Labels["example.com/tier"] = "other" }),
	ofDeployment("no label of the pods", func(d *appsv1.Deployment) { delete(d.Spec.Template.Labels, "example.com/tier") }),
	ofDeployment("no annotations of the pods", func(d *appsv1.Deployment) { d.Spec.Template.Annotations = nil }),
	ofDeployment("no record of the pod settings", func(d *appsv1.Deployment) { delete(d.Annotations, children.PodSettingsAnnotation) }),
	ofDeployment("an invalid record of the pod settings", func(d *appsv1.Deployment) { d.Annotations[children.PodSettingsAnnotation] = "{" }),
}

func revertPodDrift(ctx context.Context, e *harness.Environment) error {
	if err := createReady(ctx, e); err != nil {
		return err
	}
	if err := setPod(ctx, e, podSettings()); err != nil {
		return err
	}
	if err := revertAll(ctx, e, deployment, podDrifts); err != nil {
		return err
	}
	if err := setPod(ctx, e, nil); err != nil {
		return err
	}
	return e.Verify(ctx)
}

// podEntries has an external writer add entries to the pod template, and removes spec.pod.
type podEntries struct {
	// before is true if the writer adds them before spec.pod is set.
	before bool
	// stopped is true if the operator does not run when spec.pod is removed.
	stopped bool
}

func (p podEntries) run(ctx context.Context, e *harness.Environment) error {
	if err := createReady(ctx, e); err != nil {
		return err
	}
	if p.before {
		if err := addPodEntries(ctx, e); err != nil {
			return err
		}
	}
	if err := setPod(ctx, e, podSettings()); err != nil {
		return err
	}
	if !p.before {
		if err := addPodEntries(ctx, e); err != nil {
			return err
		}
	}
	if err := checkPodEntries(ctx, e, true); err != nil {
		return err
	}
	if err := e.ExpectNoWrites(ctx); err != nil {
		return err
	}
	if p.stopped {
		e.Operator.Kill()
	}
	if err := e.EditEcho(ctx, one, func(s *echov1.EchoSpec) { s.Pod = nil }); err != nil {
		return err
	}
	if p.stopped {
		if err := e.Restart(); err != nil {
			return err
		}
	}
	if err := e.AwaitReady(ctx, one); err != nil {
		return err
	}
	if err := e.Settle(ctx); err != nil {
		return err
	}
	if err := checkPodEntries(ctx, e, false); err != nil {
		return err
	}
	return e.Verify(ctx)
}

// The entries of the external writer, beside those of podSettings.
const writerKey = "example.com/writer"

func addPodEntries(ctx context.Context, e *harness.Environment) error {
	return e.OnChild(ctx, one, deployment, func(ctx context.Context, child client.Object) error {
		return e.Update(ctx, child, func() {
			template := &child.(*appsv1.Deployment).Spec.Template
			for _, entries := range []*map[string]string{&template.Labels, &template.Annotations, &template.Spec.NodeSelector} {
				if *entries == nil {
					*entries = map[string]string{}
				}
				(*entries)[writerKey] = "yes"
			}
			template.Spec.Tolerations = slices.Insert(template.Spec.Tolerations, 0, corev1.Toleration{Key: writerKey, Operator: corev1.TolerationOpExists})
			template.Spec.ImagePullSecrets = append(template.Spec.ImagePullSecrets, corev1.LocalObjectReference{Name: "writer"})
		})
	})
}

// checkPodEntries checks that the pod template has the entries of the external writer, and those of
// spec.pod only if that is set.
func checkPodEntries(ctx context.Context, e *harness.Environment, set bool) error {
	settings := podSettings()
	return e.OnChild(ctx, one, deployment, func(_ context.Context, child client.Object) error {
		template := child.(*appsv1.Deployment).Spec.Template
		has := map[string]int{}
		for _, entries := range []map[string]string{template.Labels, template.Annotations, template.Spec.NodeSelector} {
			for key := range entries {
				has[key]++
			}
		}
		for _, t := range template.Spec.Tolerations {
			has[t.Key]++
		}
		for _, s := range template.Spec.ImagePullSecrets {
			has["secret "+s.Name]++
		}
		has["class "+template.Spec.PriorityClassName]++
		want := map[string]int{writerKey: 4, "secret writer": 1}
		ours := []string{"class " + settings.PriorityClassName}
		ours = slices.AppendSeq(ours, maps.Keys(settings.NodeSelector))
		ours = slices.AppendSeq(ours, maps.Keys(settings.Labels))
		ours = slices.AppendSeq(ours, maps.Keys(settings.Annotations))
		for _, t := range settings.Tolerations {
			ours = append(ours, t.Key)
		}
		for _, s := range settings.ImagePullSecrets {
			ours = append(ours, "secret "+s.Name)
		}
		for _, entry := range ours {
			want[entry] = 0
			if set {
				want[entry] = 1
			}
		}
		for entry, count := range want {
			if has[entry] != count {
				return oracle.Findingf(child, "pod settings set: %t; want %d entries %q, got %d in %+v", set, count, entry, has[entry], template)
			}
		}
		return nil
	})
}
