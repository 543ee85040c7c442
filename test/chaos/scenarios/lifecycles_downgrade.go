package scenarios

import (
	"context"
	"encoding/json"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/test/chaos/harness"
	"github.com/kkloud-io/echo-operator/test/chaos/kinds"
)

// downgradeAndUpgrade has version 0.4.0 run for some time. Its CRD removes the new fields from the
// Echo, and its operator writes the Deployment with the values that it knows, which keeps the pod
// settings as it keeps entries of external writers. After the upgrade, the operator removes them,
// and sets them again when the Echo declares them again.
func downgradeAndUpgrade(ctx context.Context, e *harness.Environment) error {
	if err := createReady(ctx, e); err != nil {
		return err
	}
	declare := func(s *echov1.EchoSpec) { s.StatusCode, s.Pod = 503, podSettings() }
	if err := e.EditEcho(ctx, one, declare); err != nil {
		return err
	}
	if err := e.AwaitReady(ctx, one); err != nil {
		return err
	}
	if err := e.Settle(ctx); err != nil {
		return err
	}
	if err := addPodEntries(ctx, e); err != nil {
		return err
	}
	e.Operator.Kill()
	if err := e.EditEcho(ctx, one, func(s *echov1.EchoSpec) { s.StatusCode, s.Pod = 0, nil }); err != nil {
		return err
	}
	if err := writeAsEarlierVersion(ctx, e); err != nil {
		return err
	}
	if err := e.Restart(); err != nil {
		return err
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
	if err := e.EditEcho(ctx, one, declare); err != nil {
		return err
	}
	if err := e.AwaitReady(ctx, one); err != nil {
		return err
	}
	if err := checkPodEntries(ctx, e, true); err != nil {
		return err
	}
	return e.Verify(ctx)
}

// writeAsEarlierVersion writes the values of version 0.4.0 to the subject's Deployment.
func writeAsEarlierVersion(ctx context.Context, e *harness.Environment) error {
	text, err := earlierChildren.ReadFile("testdata/0.4.0/Deployment.yaml")
	if err != nil {
		return err
	}
	var earlier appsv1.Deployment
	if err := yaml.UnmarshalStrict(text, &earlier); err != nil {
		return err
	}
	patch, err := json.Marshal(map[string]any{"spec": earlier.Spec})
	if err != nil {
		return err
	}
	live := kinds.New(deployment)
	live.SetNamespace(e.Subject)
	live.SetName(kinds.ServerName(one))
	return e.Client.Patch(ctx, live, client.RawPatch(types.StrategicMergePatchType, patch))
}
