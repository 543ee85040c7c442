// Package gitops tests what GitOps controllers read of an Echo, and the manifests of their recipes.
package gitops

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	kstatus "github.com/fluxcd/cli-utils/pkg/kstatus/status"
	lua "github.com/yuin/gopher-lua"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	luajson "layeh.com/gopher-json"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/test/manifests/internal/repo"
)

// healthKey is the key of the ConfigMap argocd-cm that contains the health check of Echoes.
const healthKey = "resource.customizations.health.kkloud.io_Echo"

// argoHealth is what the script returns.
type argoHealth struct{ Status, Message string }

func TestHealthInArgoCDAgreesWithKstatus(t *testing.T) {
	configMap := repo.Load(t, repo.Root+"/config/argocd/argocd-cm.yaml")[0]
	script, _ := configMap["data"].(map[string]any)[healthKey].(string)
	const notObserved = "The operator has not observed the newest spec"
	ready := metav1.Condition{Type: echov1.ConditionReady, Status: metav1.ConditionTrue, Reason: echov1.ReasonReady, Message: "ready"}
	rolling := metav1.Condition{Type: echov1.ConditionReady, Status: metav1.ConditionFalse, Reason: echov1.ReasonRollingOut, Message: "1 of 2"}
	rejected := metav1.Condition{Type: echov1.ConditionReady, Status: metav1.ConditionFalse, Reason: echov1.ReasonRejected, Message: "denied"}
	stalled := metav1.Condition{Type: echov1.ConditionStalled, Status: metav1.ConditionTrue, Reason: echov1.ReasonRejected, Message: "denied"}
	for name, c := range map[string]struct {
		observed   int64
		isDeleted  bool
		conditions []metav1.Condition
		kstatus    kstatus.Status
		health     argoHealth
	}{
		"not reconciled":    {-1, false, nil, kstatus.InProgressStatus, argoHealth{"Progressing", notObserved}},
		"ready":             {7, false, []metav1.Condition{ready}, kstatus.CurrentStatus, argoHealth{"Healthy", "Ready: ready"}},
		"edited":            {6, false, []metav1.Condition{ready}, kstatus.InProgressStatus, argoHealth{"Progressing", notObserved}},
		"rolling out":       {7, false, []metav1.Condition{rolling}, kstatus.InProgressStatus, argoHealth{"Progressing", "RollingOut: 1 of 2"}},
		"rejected":          {7, false, []metav1.Condition{rejected}, kstatus.InProgressStatus, argoHealth{"Progressing", "Rejected: denied"}},
		"rejected for long": {7, false, []metav1.Condition{rejected, stalled}, kstatus.FailedStatus, argoHealth{"Degraded", "Rejected: denied"}},
		"edited after that": {6, false, []metav1.Condition{rejected, stalled}, kstatus.InProgressStatus, argoHealth{"Progressing", notObserved}},
		"deleted":           {7, true, []metav1.Condition{rolling}, kstatus.TerminatingStatus, argoHealth{"Progressing", "RollingOut: 1 of 2"}},
	} {
		echo := &echov1.Echo{ObjectMeta: metav1.ObjectMeta{Name: "hello", Generation: 7}}
		echo.Status.ObservedGeneration, echo.Status.Conditions = c.observed, c.conditions
		if c.isDeleted {
			echo.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
		}
		object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(echo)
		if err != nil {
			t.Fatal(err)
		}
		result, err := kstatus.Compute(&unstructured.Unstructured{Object: object})
		if err != nil {
			t.Fatal(err)
		}
		if got := health(t, script, echo); result.Status != c.kstatus || got != c.health {
			t.Errorf("%s: kstatus = %s, health in Argo CD = %v, want %s, %v", name, result.Status, got, c.kstatus, c.health)
		}
	}
}

// health runs the script as Argo CD does (util/lua/lua.go): with its interpreter and JSON, and without libraries that
// reach the system.
func health(t *testing.T, script string, echo *echov1.Echo) (result argoHealth) {
	t.Helper()
	state := lua.NewState(lua.Options{SkipOpenLibs: true})
	defer state.Close()
	for name, open := range map[string]lua.LGFunction{lua.BaseLibName: lua.OpenBase, lua.TabLibName: lua.OpenTable} {
		state.Push(state.NewFunction(open))
		state.Push(lua.LString(name))
		state.Call(1, 0)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	state.SetContext(ctx)
	object, err := json.Marshal(echo)
	if err != nil {
		t.Fatal(err)
	}
	decoded, err := luajson.Decode(state, object)
	if err != nil {
		t.Fatal(err)
	}
	state.SetGlobal("obj", decoded)
	if err := state.DoString(script); err != nil {
		t.Fatal(err)
	}
	encoded, err := luajson.Encode(state.Get(-1))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(encoded, &result); err != nil {
		t.Fatalf("%s: %v", encoded, err)
	}
	return result
}
