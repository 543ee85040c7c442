package gitops

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	kstatus "github.com/fluxcd/cli-utils/pkg/kstatus/status"
	lua "github.com/yuin/gopher-lua"
	"k8s.io/apimachinery/pkg/api/meta"
	luajson "layeh.com/gopher-json"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/test/chaos/oracle"
	"github.com/kkloud-io/echo-operator/test/manifests/internal/repo"
)

// healthKey is the key of the ConfigMap argocd-cm that contains the health check of Echoes.
const healthKey = "resource.customizations.health.kkloud.io_Echo"

// healths are the healths in Argo CD, by what kstatus says.
var healths = map[kstatus.Status]string{
	kstatus.InProgressStatus: "Progressing", kstatus.TerminatingStatus: "Progressing",
	kstatus.CurrentStatus: "Healthy", kstatus.FailedStatus: "Degraded",
}

func TestKstatusAndArgoCDAgreeWithTheConditionsInEveryState(t *testing.T) {
	configMap := repo.Load(t, repo.Root+"/config/argocd/argocd-cm.yaml")[0]
	script, _ := configMap["data"].(map[string]any)[healthKey].(string)
	counts := map[kstatus.Status]int{}
	check := func(name string, echo *echov1.Echo, message string) {
		if err := oracle.CheckKstatus(echo); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		result, err := oracle.Kstatus(echo)
		if err != nil {
			t.Fatal(err)
		}
		counts[result.Status]++
		if got, want := health(t, script, echo), (argoHealth{healths[result.Status], message}); got != want {
			t.Errorf("%s: health in Argo CD = %v, want %v", name, got, want)
		}
	}
	const notObserved = "The operator has not observed the newest spec"
	for name, echo := range states() {
		message := notObserved
		if ready := meta.FindStatusCondition(echo.Status.Conditions, echov1.ConditionReady); ready != nil {
			message = ready.Reason + ": " + ready.Message
		}
		check(name, echo, message)
		echo.Generation++
		check(name+", then a newer spec", echo, notObserved)
	}
	for status := range healths {
		if counts[status] == 0 {
			t.Errorf("no state is %s: %v", status, counts)
		}
	}
}

// argoHealth is what the script returns.
type argoHealth struct{ Status, Message string }

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
