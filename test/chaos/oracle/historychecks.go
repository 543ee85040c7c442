package oracle

import (
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/children"
	"github.com/kkloud-io/echo-operator/test/chaos/kinds"
)

// Creations is how often each child may be created, by kind and name.
type Creations map[string]int

// Allow allows one more creation of a child of the Echo.
func (c Creations) Allow(kind children.Kind, echo string) {
	c[childKey(kind.Name, kinds.ChildName(kind, echo))]++
}

// CheckCreations finds children that were created more often than the operations ask for. It does
// not count children of an Echo that was deleted before the operator observed its first status: a
// stale operator cannot know that they existed, and creates them until it sees the deletion.
func (h *History) CheckCreations(allowed Creations) (findings []error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for child, uids := range h.uids {
		created := 0
		for uid := range uids {
			if owner, owned := h.owners[uid]; !owned || !h.statusNeverObserved(owner) {
				created++
			}
		}
		if created > allowed[child] && allowed[child] > 0 {
			findings = append(findings, fmt.Errorf("%s: created %d times, want at most %d", child, created, allowed[child]))
		}
	}
	return findings
}

// readyLag is how long an external writer's change of a Deployment may go unnoticed by a status
// that says Ready.
const readyLag = time.Second

// CheckReady finds statuses that said Ready of a spec that was not rolled out.
func (h *History) CheckReady() (findings []error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, echo := range h.echoes {
		status := echo.object.Status
		if !meta.IsStatusConditionTrue(status.Conditions, echov1.ConditionReady) || status.ObservedGeneration != echo.object.Generation {
			continue
		}
		if !h.wasRolledOut(echo) && !h.inGap(echo.number) {
			findings = append(findings, Findingf(echo.object, "status says Ready of generation %d (resource version %d), but its Deployment was not rolled out",
				echo.object.Generation, echo.number))
		}
	}
	return findings
}

// wasRolledOut reports whether a version of the Deployment that the operator may have seen when it
// wrote the status had rolled out the Echo's spec.
func (h *History) wasRolledOut(echo version[*echov1.Echo]) bool {
	versions := h.deployments[children.Name(echo.object)]
	for i, d := range versions {
		replaced := !h.viewMayLag && i+1 < len(versions) && versions[i+1].number < echo.number && echo.when.Sub(versions[i+1].when) > readyLag
		if d.number < echo.number && !replaced && RolledOut(d.object, echo.object) {
			return true
		}
	}
	return false
}

// RolledOut reports whether the Deployment has the desired state of the Echo, except for fields that
// its status reports as overridden, and all of its replicas are updated and available.
func RolledOut(d *appsv1.Deployment, echo *echov1.Echo) bool {
	kind := kinds.ByName(kinds.Of(d))
	differs := slices.ContainsFunc(Differences(d, echo), func(field string) bool {
		return kind.DeterminesResponse(field) || !isOverridden(echo, kind.Name, field)
	})
	return !differs && d.Status.ObservedGeneration >= d.Generation &&
		d.Status.UpdatedReplicas >= echo.Spec.Replicas && d.Status.AvailableReplicas >= echo.Spec.Replicas &&
		d.Status.Replicas == d.Status.UpdatedReplicas
}

// desired returns a copy of the Deployment in the desired state of the Echo.
func desired(d *appsv1.Deployment, echo *echov1.Echo) *appsv1.Deployment {
	mutated := d.DeepCopy()
	kinds.Mutate(mutated, echo)
	return mutated
}

// CheckVerified finds statuses that said Verified of a spec whose response no verifier had received. It
// checks Echoes that one pod verifies.
func (h *History) CheckVerified() (findings []error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, echo := range h.echoes {
		status := echo.object.Status
		if !children.WantsVerifierDeployment(echo.object) || status.ObservedGeneration != echo.object.Generation ||
			!meta.IsStatusConditionTrue(status.Conditions, echov1.ConditionVerified) || h.inGap(echo.number) {
			continue
		}
		if !slices.ContainsFunc(h.deployments[children.VerifierName(echo.object)], func(d version[*appsv1.Deployment]) bool {
			return d.number < echo.number && verified(d.object, echo.object)
		}) {
			findings = append(findings, Findingf(echo.object, "status says Verified of generation %d (resource version %d), "+
				"but no verifier of its response was ready", echo.object.Generation, echo.number))
		}
	}
	return findings
}

// verified reports whether the only pod of the verifier expects the response of the Echo, and is ready.
func verified(d *appsv1.Deployment, echo *echov1.Echo) bool {
	response := desired(d, echo).Spec.Template.Labels[children.ResponseLabel]
	return d.Spec.Template.Labels[children.ResponseLabel] == response && d.Status.ObservedGeneration >= d.Generation &&
		d.Status.ReadyReplicas == 1 && d.Status.UpdatedReplicas == 1 && d.Status.Replicas == 1
}

// CheckOrder finds Deployments that went back to an earlier spec of their Echo.
func (h *History) CheckOrder() (findings []error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, versions := range h.deployments {
		newest, uid := int64(0), types.UID("")
		for _, d := range versions {
			if uid != d.object.UID {
				newest, uid = 0, d.object.UID
			}
			generation := h.generationOf(d)
			if generation > 0 && generation < newest {
				findings = append(findings, Findingf(d.object, "went from generation %d of its Echo back to generation %d (resource version %d)",
					newest, generation, d.number))
			}
			newest = max(newest, generation)
		}
	}
	return findings
}

// generationOf returns the newest generation of its Echo that the Deployment can have been written
// for, or 0 if there is none.
func (h *History) generationOf(d version[*appsv1.Deployment]) (generation int64) {
	for _, echo := range h.echoes {
		if echo.number < d.number && echo.object.Generation > generation &&
			metav1.IsControlledBy(d.object, echo.object) && hasMessage(d.object, echo.object) {
			generation = echo.object.Generation
		}
	}
	return generation
}

// hasMessage reports whether the Deployment's server responds with the Echo's message.
func hasMessage(d *appsv1.Deployment, echo *echov1.Echo) bool {
	want := desired(&appsv1.Deployment{}, echo).Spec.Template.Spec.Containers[0]
	return slices.ContainsFunc(d.Spec.Template.Spec.Containers, func(c corev1.Container) bool {
		return c.Name == want.Name && equality.Semantic.DeepEqual(c.Args, want.Args) && equality.Semantic.DeepEqual(c.Env, want.Env)
	})
}

// CheckNoReason finds statuses of Echoes with a condition of that reason.
func (h *History) CheckNoReason(reason string) (findings []error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, echo := range h.echoes {
		conditions := echo.object.Status.Conditions
		if i := slices.IndexFunc(conditions, func(c metav1.Condition) bool { return c.Reason == reason }); i >= 0 {
			findings = append(findings, Findingf(echo.object, "want no condition with reason %s, got %s (resource version %d)",
				reason, describe(&conditions[i]), echo.number))
		}
	}
	return findings
}
