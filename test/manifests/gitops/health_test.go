// Package gitops tests what GitOps controllers read of an Echo, and the manifests of their recipes.
package gitops

import (
	"encoding/json"
	"testing"

	lua "github.com/yuin/gopher-lua"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	luajson "layeh.com/gopher-json"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/test/manifests/internal/repo"
)

// healthKey is the key of the ConfigMap argocd-cm that contains the health check of Echoes.
const healthKey = "resource.customizations.health.kkloud.io_Echo"

// argoHealth is what the script returns.
type argoHealth struct{ Status, Message string }

// The exploration compares the conditions with kstatus, which Flux and Helm use.
func TestHealthInArgoCD(t *testing.T) {
	configMap := repo.Objects(t, repo.Read(t, repo.Root+"/config/argocd/argocd-cm.yaml"))[0]
	script, _ := configMap["data"].(map[string]any)[healthKey].(string)
	const notObserved = "The operator has not observed the newest spec"
	ready := metav1.Condition{Type: echov1.ConditionReady, Status: metav1.ConditionTrue, Reason: echov1.ReasonReady, Message: "ready"}
	rolling := metav1.Condition{Type: echov1.ConditionReady, Status: metav1.ConditionFalse, Reason: echov1.ReasonRollingOut, Message: "1 of 2"}
	rejected := metav1.Condition{Type: echov1.ConditionReady, Status: metav1.ConditionFalse, Reason: echov1.ReasonRejected, Message: "denied"}
	stalled := metav1.Condition{Type: echov1.ConditionStalled, Status: metav1.ConditionTrue, Reason: echov1.ReasonRejected, Message: "denied"}
	for name, c := range map[string]struct {
		observed   int64
		conditions []metav1.Condition
		health     argoHealth
	}{
		"not reconciled":    {-1, nil, argoHealth{"Progressing", notObserved}},
		"ready":             {7, []metav1.Condition{ready}, argoHealth{"Healthy", "Ready: ready"}},
		"edited":            {6, []metav1.Condition{ready}, argoHealth{"Progressing", notObserved}},
		"rolling out":       {7, []metav1.Condition{rolling}, argoHealth{"Progressing", "RollingOut: 1 of 2"}},
		"rejected":          {7, []metav1.Condition{rejected}, argoHealth{"Progressing", "Rejected: denied"}},
		"rejected for long": {7, []metav1.Condition{rejected, stalled}, argoHealth{"Degraded", "Rejected: denied"}},
		"edited after that": {6, []metav1.Condition{rejected, stalled}, argoHealth{"Progressing", notObserved}},
	} {
		echo := &echov1.Echo{ObjectMeta: metav1.ObjectMeta{Name: "hello", Generation: 7}}
		echo.Status.ObservedGeneration, echo.Status.Conditions = c.observed, c.conditions
		if got := health(t, script, echo); got != c.health {
			t.Errorf("%s: health = %v, want %v", name, got, c.health)
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
	state.SetContext(t.Context())
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
