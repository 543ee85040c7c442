// Package bundle tests the content of the generated bundle that no validator checks.
package bundle

import (
	"path"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/operator-framework/api/pkg/operators/v1alpha1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/test/manifests/internal/repo"
)

// loadCSV returns the ClusterServiceVersion of the bundle.
func loadCSV(t *testing.T) (csv v1alpha1.ClusterServiceVersion) {
	t.Helper()
	decode(t, repo.Read(t, repo.CSVFile), &csv)
	return csv
}

// decode reads YAML or JSON. It fails the test if a field is unknown.
func decode(t *testing.T, text []byte, into any) {
	t.Helper()
	if err := yaml.UnmarshalStrict(text, into); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
}

// Scorecard checks only fields that an example sets, and no field of the status.
func TestEveryFieldHasADescription(t *testing.T) {
	var crd apiextensionsv1.CustomResourceDefinition
	decode(t, repo.Read(t, repo.CRDFile), &crd)
	owned := loadCSV(t).Spec.CustomResourceDefinitions.Owned[0]
	described := map[string]bool{}
	for _, descriptor := range owned.SpecDescriptors {
		described["spec."+descriptor.Path] = true
	}
	for _, descriptor := range owned.StatusDescriptors {
		described["status."+descriptor.Path] = true
	}
	for _, section := range []string{"spec", "status"} {
		for _, field := range fields(section, crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties[section]) {
			if !described[field] {
				t.Errorf("%s has no descriptor in the ClusterServiceVersion", field)
			}
		}
	}
}

// fields returns the paths of all fields that the Echo API defines. Fields of Kubernetes types
// (resources, conditions) have one descriptor for the whole type.
func fields(parent string, schema apiextensionsv1.JSONSchemaProps) (paths []string) {
	for name, property := range schema.Properties {
		paths = append(paths, parent+"."+name)
		if name != "resources" {
			paths = append(paths, fields(parent+"."+name, property)...)
		}
	}
	return paths
}

// The console offers the examples in this order. A status would be invented.
func TestExamplesAreEchoesThatBecomeReadyOnAnyCluster(t *testing.T) {
	annotations := loadCSV(t).Annotations
	var examples []echov1.Echo
	decode(t, []byte("["+annotations["operatorframework.io/initialization-resource"]+"]"), &examples)
	decode(t, []byte(annotations["alm-examples"]), &examples)
	var names []string
	for _, example := range examples {
		names = append(names, example.Name)
		if !reflect.ValueOf(example.Status).IsZero() {
			t.Errorf("example %s has a status, want none", example.Name)
		}
	}
	if want := []string{"hello", "maintenance-page", "redirect", "verified-canary"}; !slices.Equal(names, want) {
		t.Errorf("examples %v, want %v", names, want)
	}
}

func TestPlatformsMatchMakefile(t *testing.T) {
	csv := loadCSV(t)
	var built []string
	for platform := range strings.SplitSeq(repo.MakeVariable(t, "PLATFORMS"), ",") {
		system, architecture, _ := strings.Cut(platform, "/")
		built = append(built, "os."+system, "arch."+architecture)
	}
	var labels, affinity []string
	for label := range csv.Labels {
		if platform, ok := strings.CutPrefix(label, "operatorframework.io/"); ok {
			labels = append(labels, platform)
		}
	}
	repo.Same(t, "platform labels of the ClusterServiceVersion", labels, built)
	pod := csv.Spec.InstallStrategy.StrategySpec.DeploymentSpecs[0].Spec.Template.Spec
	for _, expression := range pod.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0].MatchExpressions {
		for _, value := range expression.Values {
			affinity = append(affinity, path.Base(expression.Key)+"."+value)
		}
	}
	repo.Same(t, "platforms in the node affinity of the operator", affinity, built)
}

// A disconnected cluster mirrors only the related images: not the image of the scorecard.
func TestRelatedImagesMatchUsedImages(t *testing.T) {
	csv := loadCSV(t)
	var used, related []string
	for _, container := range csv.Spec.InstallStrategy.StrategySpec.DeploymentSpecs[0].Spec.Template.Spec.Containers {
		used = append(used, container.Image)
		for _, variable := range container.Env {
			if strings.HasPrefix(variable.Name, "RELATED_IMAGE_") {
				used = append(used, variable.Value)
			}
		}
	}
	repo.Same(t, "annotation containerImage", []string{csv.Annotations["containerImage"]}, used[:1])
	for _, image := range csv.Spec.RelatedImages {
		related = append(related, image.Image)
	}
	repo.Same(t, "relatedImages of the ClusterServiceVersion", related, used)
}

// olmV1Kinds are the kinds of objects that OLM v1 installs, in v1.2.0 and in v1.11.0.
var olmV1Kinds = []string{
	"ClusterRole", "ClusterRoleBinding", "ConfigMap", "ConsoleCLIDownload", "ConsoleLink", "ConsoleQuickStart",
	"ConsoleYAMLSample", "CustomResourceDefinition", "PodDisruptionBudget", "PriorityClass", "PrometheusRule", "Role",
	"RoleBinding", "Secret", "Service", "ServiceAccount", "ServiceMonitor", "VerticalPodAutoscaler",
}

// These are the bundle rules of OLM v1 that the validators of operator-sdk do not check. OLM v0 does not
// install an operator, either, while the cluster lacks an API that it requires.
func TestBundleMeetsOLMv1Rules(t *testing.T) {
	csv := loadCSV(t)
	for _, file := range repo.Glob(t, filepath.Dir(repo.CSVFile)+"/*.yaml") {
		for _, object := range repo.Load(t, file) {
			if kind := object["kind"].(string); file != repo.CSVFile && !slices.Contains(olmV1Kinds, kind) {
				t.Errorf("%s contains a %s, which OLM v1 does not install", file, kind)
			}
		}
	}
	if !slices.Contains(csv.Spec.InstallModes, v1alpha1.InstallMode{Type: v1alpha1.InstallModeTypeAllNamespaces, Supported: true}) {
		t.Error("the install mode AllNamespaces is not supported, and OLM v1 has no other")
	}
	if len(csv.Spec.WebhookDefinitions) > 0 || len(csv.Spec.APIServiceDefinitions.Owned) > 0 {
		t.Error("the bundle has webhooks or API services, for which OLM v1 needs a certificate provider")
	}
	if len(csv.Spec.APIServiceDefinitions.Required) > 0 || len(csv.Spec.CustomResourceDefinitions.Required) > 0 || len(csv.Spec.NativeAPIs) > 0 {
		t.Error("the bundle requires APIs, want none: the Gateway API may be absent")
	}
	// A bundle declares its dependencies in one of these files.
	files, err := filepath.Glob(repo.Root + "/bundle/metadata/*.yaml")
	if err != nil || len(files) != 1 {
		t.Errorf("bundle/metadata contains %v, want only annotations.yaml", files)
	}
}
