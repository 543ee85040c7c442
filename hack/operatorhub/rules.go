package main

import (
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/blang/semver/v4"
)

const (
	openShiftVersions = "com.redhat.openshift.versions"
	// openShiftOffset is the difference between the minor versions of Kubernetes and OpenShift:
	// OpenShift 4.17 contains Kubernetes 1.30.
	openShiftOffset = 13
)

// rule is a static check of the pipelines of both hubs. A name that starts with check_ is the
// one that the pipeline prints and documents. Warnings of the pipeline count as problems here.
type rule struct {
	name  string
	check func(operator) []string
}

var rules = []rule{
	{"layout", eachBundle(layout)},
	{"check_operator_name", checkOperatorName},
	{"check_operator_name_unique", checkOperatorNameUnique},
	{"check_operator_version_directory_name", eachBundle(checkVersionDirectory)},
	{"check_required_fields", eachBundle(checkRequiredFields)},
	{"check_network_policy_presence", eachBundle(checkNetworkPolicy)},
	{"check_api_version_constraints", eachBundle(checkAPIVersions)},
	{"check_validate_schema_ci_config", checkCISchema},
	{"check_ci_upgrade_graph", checkUpgradeGraph},
	{"check_using_fbc", checkFBC},
	{"check_catalog_usage", checkCatalogUsage},
	{"check_bundle_release_config", checkReleaseConfig},
	{"check_validate_schema_bundle_release_config", eachBundle(checkReleaseConfigSchema)},
	{"check_bundle_images_in_fbc", checkCatalogImages},
	{"check_olm_bundle_object_in_fbc", checkBundleObject},
	{"channels", checkChannels},
	{"check_dangling_bundles", checkDangling},
	{"check_upgrade_graph_loop", checkLoop},
	{"check_replaces_availability", checkReplaces},
}

func eachBundle(check func(bundle) []string) func(operator) []string {
	return func(o operator) (problems []string) {
		for _, b := range o.bundles {
			for _, problem := range check(b) {
				problems = append(problems, filepath.Base(b.dir)+": "+problem)
			}
		}
		return problems
	}
}

// layout allows only the directories of a bundle and release-config.yaml, without links or other files.
func layout(b bundle) (problems []string) {
	entries, err := os.ReadDir(b.dir)
	if err != nil {
		return []string{err.Error()}
	}
	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	names = slices.DeleteFunc(names, func(name string) bool { return name == "release-config.yaml" })
	if want := []string{"manifests", "metadata", "tests"}; !slices.Equal(names, want) {
		problems = append(problems, fmt.Sprintf("contains %v, want %v", names, want))
	}
	if _, err := os.Stat(filepath.Join(b.dir, "tests/scorecard/config.yaml")); err != nil {
		problems = append(problems, "file tests/scorecard/config.yaml is missing")
	}
	if csvs, _ := filepath.Glob(filepath.Join(b.dir, "manifests/*.clusterserviceversion.yaml")); len(csvs) != 1 {
		problems = append(problems, fmt.Sprintf("directory manifests contains %d files *.clusterserviceversion.yaml, want 1", len(csvs)))
	}
	return problems
}

func checkOperatorName(o operator) (problems []string) {
	for _, b := range o.bundles {
		name, _, _ := strings.Cut(b.CSV.Name, ".")
		if b.Package != o.name || name != o.name {
			problems = append(problems, fmt.Sprintf("package %q, ClusterServiceVersion %q and directory %q must have the same name",
				b.Package, name, o.name))
		}
	}
	return problems
}

func checkOperatorNameUnique(o operator) []string {
	var names []string
	for _, b := range o.bundles {
		name, _, _ := strings.Cut(b.CSV.Name, ".")
		names = append(names, name)
	}
	if names = slices.Compact(names); len(names) > 1 {
		return []string{fmt.Sprintf("bundles have different names: %v", names)}
	}
	return nil
}

func checkVersionDirectory(b bundle) []string {
	_, named, _ := strings.Cut(b.CSV.Name, ".v")
	if dir, version := filepath.Base(b.dir), b.version().String(); dir != version || named != version {
		return []string{fmt.Sprintf("spec.version %s and metadata.name %s must match the directory name %s", version, b.CSV.Name, dir)}
	}
	return nil
}

func checkRequiredFields(b bundle) (problems []string) {
	spec, annotations := b.CSV.Spec, b.CSV.Annotations
	require := func(ok bool, field, allowed string) {
		if !ok {
			problems = append(problems, field+" must be "+allowed)
		}
	}
	require(length(spec.DisplayName, 3, 50), "spec.displayName", "3 to 50 characters")
	require(length(spec.Description, 20, many), "spec.description", "at least 20 characters")
	require(length(spec.Provider.Name, 3, many), "spec.provider.name", "at least 3 characters")
	require(len(spec.Keywords) > 0, "spec.keywords", "a list with at least one item")
	require(!b.version().Equals(semver.Version{}), "spec.version", "a semantic version")

	require(len(spec.Icon) > 0, "spec.icon", "a list with at least one item")
	for _, icon := range spec.Icon {
		image, err := base64.StdEncoding.DecodeString(icon.Data)
		require(err == nil && len(image) > 0, "spec.icon.base64data", "a base64-encoded image")
		require(slices.Contains([]string{"image/png", "image/jpeg", "image/gif", "image/svg+xml"}, icon.MediaType),
			"spec.icon.mediatype", "image/png, image/jpeg, image/gif or image/svg+xml")
	}
	require(len(spec.Maintainers) > 0, "spec.maintainers", "a list with at least one item")
	for _, maintainer := range spec.Maintainers {
		require(maintainer.Name != "" && strings.Contains(maintainer.Email, "@"), "spec.maintainers", "names with e-mail addresses")
	}
	require(len(spec.Links) > 0, "spec.links", "a list with at least one item")
	for _, link := range spec.Links {
		require(link.Name != "" && strings.HasPrefix(link.URL, "http"), "spec.links", "names with URLs")
	}

	_, err := time.Parse(time.RFC3339, annotations["createdAt"])
	require(err == nil, "metadata.annotations.createdAt", "an RFC 3339 timestamp")
	require(slices.Contains(capabilities, annotations["capabilities"]), "metadata.annotations.capabilities", "one of "+strings.Join(capabilities, ", "))
	for category := range strings.SplitSeq(annotations["categories"], ",") {
		require(slices.Contains(categories, strings.TrimSpace(category)), "metadata.annotations.categories", "of "+strings.Join(categories, ", "))
	}
	require(image.MatchString(annotations["containerImage"]), "metadata.annotations.containerImage", "an image with a tag or a digest")
	require(strings.HasPrefix(annotations["repository"], "http"), "metadata.annotations.repository", "a URL")
	require(length(annotations["support"], 3, many), "metadata.annotations.support", "at least 3 characters")
	require(length(annotations["description"], 10, many), "metadata.annotations.description", "at least 10 characters")
	return problems
}

// many is a length limit that no field reaches.
const many = 1 << 20

func length(text string, low, high int) bool {
	n := utf8.RuneCountInString(text)
	return low <= n && n <= high
}

var (
	image        = regexp.MustCompile(`^([^/]+/)+[^/:@]+[:@].+$`)
	capabilities = []string{"Basic Install", "Seamless Upgrades", "Full Lifecycle", "Deep Insights", "Auto Pilot"}
	categories   = []string{
		"AI/Machine Learning", "Application Runtime", "Big Data", "Cloud Provider", "Database", "Developer Tools",
		"Drivers and plugins", "Integration & Delivery", "Logging & Tracing", "Modernization & Migration", "Monitoring",
		"Networking", "OpenShift Optional", "Security", "Storage", "Streaming & Messaging",
	}
)

func checkNetworkPolicy(b bundle) (problems []string) {
	for _, object := range b.Objects {
		if object.GetKind() == "NetworkPolicy" {
			problems = append(problems, fmt.Sprintf("NetworkPolicy %s must not be in the bundle", object.GetName()))
		}
	}
	return problems
}

func checkAPIVersions(b bundle) []string {
	minimum, err := semver.Parse(b.CSV.Spec.MinKubeVersion)
	if err != nil {
		return []string{fmt.Sprintf("spec.minKubeVersion %q must be a version: %v", b.CSV.Spec.MinKubeVersion, err)}
	}
	oldest, err := semver.ParseTolerant(b.annotations[openShiftVersions])
	if err != nil {
		return []string{fmt.Sprintf("%s in metadata/annotations.yaml must be v4.<minor> when spec.minKubeVersion is set: %v", openShiftVersions, err)}
	}
	if want := minimum.Minor - openShiftOffset; oldest.Minor < want {
		return []string{fmt.Sprintf("%s v4.%d contains an older Kubernetes than spec.minKubeVersion %s: want at least v4.%d",
			openShiftVersions, oldest.Minor, minimum, want)}
	}
	return nil
}

func checkUpgradeGraph(o operator) []string {
	if graph := o.ci.UpdateGraph; o.ci.FBC == nil && graph != "semver-mode" && graph != "replaces-mode" {
		return []string{fmt.Sprintf("ci.yaml: updateGraph is %q, want semver-mode or replaces-mode", graph)}
	}
	return nil
}

func checkCISchema(o operator) (problems []string) {
	if o.ciError != nil {
		return []string{o.ciError.Error()}
	}
	if len(o.ci.Reviewers) == 0 {
		problems = append(problems, "ci.yaml: reviewers must have at least one user: without, no maintainer can merge")
	}
	if o.ci.FBC == nil {
		return problems
	}
	for i, mapping := range o.ci.FBC.CatalogMapping {
		if mapping.TemplateName == "" || len(mapping.CatalogNames) == 0 || (mapping.Type != "olm.template.basic" && mapping.Type != "olm.semver") {
			problems = append(problems, fmt.Sprintf(
				"ci.yaml: fbc.catalog_mapping[%d] must have a template_name, catalog_names, and the type olm.template.basic or olm.semver", i))
		}
	}
	return problems
}

// checkFBC requires a file-based catalog of an operator that has catalog templates.
func checkFBC(o operator) []string {
	if len(o.texts) > 0 && (o.ci.FBC == nil || !o.ci.FBC.Enabled) {
		return []string{"ci.yaml: fbc.enabled must be true"}
	}
	return nil
}

// checkCatalogUsage compares the catalog templates with the mapping in ci.yaml.
func checkCatalogUsage(o operator) (problems []string) {
	mapped := map[string]bool{}
	if o.ci.FBC != nil {
		for _, mapping := range o.ci.FBC.CatalogMapping {
			mapped[mapping.TemplateName] = true
			if _, found := o.texts[mapping.TemplateName]; !found {
				problems = append(problems, "ci.yaml: fbc.catalog_mapping names catalog-templates/"+mapping.TemplateName+", which does not exist")
			}
		}
	}
	for name := range o.texts {
		if !mapped[name] {
			problems = append(problems, "catalog-templates/"+name+" is not in fbc.catalog_mapping of ci.yaml")
		}
	}
	return problems
}

func checkReleaseConfig(o operator) (problems []string) {
	for _, b := range o.bundles {
		if b.release == nil {
			continue
		}
		if o.ci.FBC == nil || !o.ci.FBC.Enabled {
			problems = append(problems, b.CSV.Name+": release-config.yaml needs fbc.enabled in ci.yaml")
		}
		for _, place := range b.release.CatalogTemplates {
			if _, found := o.texts[place.TemplateName]; !found {
				problems = append(problems, fmt.Sprintf("%s: release-config.yaml names template %q, which does not exist", b.CSV.Name, place.TemplateName))
			}
		}
	}
	return problems
}

func checkReleaseConfigSchema(b bundle) (problems []string) {
	if b.release == nil {
		return nil
	}
	if b.releaseError != nil {
		return []string{b.releaseError.Error()}
	}
	if len(b.release.CatalogTemplates) == 0 {
		problems = append(problems, "release-config.yaml: catalog_templates must have at least one item")
	}
	for i, place := range b.release.CatalogTemplates {
		if place.TemplateName == "" || len(place.Channels) == 0 {
			problems = append(problems, fmt.Sprintf("release-config.yaml: catalog_templates[%d] must have a template_name and channels", i))
		}
	}
	return problems
}

// checkCatalogImages allows only bundles that the pipeline has built.
func checkCatalogImages(o operator) (problems []string) {
	for _, entry := range o.template {
		allowed := strings.HasPrefix(entry.Image, "quay.io/community-operator-pipeline-prod/") ||
			strings.HasPrefix(entry.Image, "quay.io/openshift-community-operators/")
		if entry.Schema == "olm.bundle" && !allowed {
			problems = append(problems, fmt.Sprintf("catalog-templates: image %s of %s is not in a registry of the hub", entry.Image, entry.Name))
		}
	}
	return problems
}

func checkBundleObject(o operator) (problems []string) {
	for name, text := range o.texts {
		if strings.Contains(text, "olm.bundle.object") {
			problems = append(problems, "catalog-templates/"+name+" has a property olm.bundle.object, want olm.csv.metadata")
		}
	}
	return problems
}

// checkChannels rejects what an index in semver-mode cannot keep: it offers every version in every channel of its
// metadata at once, with all upgrades of skipRange.
func checkChannels(o operator) (problems []string) {
	if o.ci.UpdateGraph != "semver-mode" {
		return nil
	}
	for _, b := range o.bundles {
		if channels := b.channels(); len(channels) != 1 || !isFast(channels[0]) {
			problems = append(problems, fmt.Sprintf("%s is in the channels %v, want only fast-v<major>: semver-mode cannot do what the others say", b.CSV.Name, channels))
		}
		if b.CSV.Spec.Replaces != "" || len(b.CSV.Spec.Skips) > 0 {
			problems = append(problems, b.CSV.Name+" has spec.replaces or spec.skips, which semver-mode rejects")
		}
	}
	return problems
}

// checkDangling finds bundles that have no upgrade to a later bundle of their channel.
func checkDangling(o operator) (problems []string) {
	for channel, from := range o.graph() {
		upgradable := map[string]bool{}
		var names []string
		for name, replaced := range from {
			names = append(names, name)
			for _, name := range replaced {
				upgradable[name] = true
			}
		}
		slices.SortFunc(names, o.compare)
		for _, name := range names[:len(names)-1] {
			if !upgradable[name] {
				problems = append(problems, fmt.Sprintf("channel %s: %s has no upgrade", channel, name))
			}
		}
	}
	return problems
}

// compare orders the names of bundles by version.
func (o operator) compare(a, b string) int {
	index := func(name string) int {
		return slices.IndexFunc(o.bundles, func(b bundle) bool { return b.CSV.Name == name })
	}
	return index(a) - index(b)
}

func checkLoop(o operator) (problems []string) {
	for channel, from := range o.graph() {
		for name := range from {
			if reaches(from, name, name, map[string]bool{}) {
				problems = append(problems, fmt.Sprintf("channel %s: upgrade path of %s is a loop", channel, name))
			}
		}
	}
	return problems
}

func reaches(from map[string][]string, start, end string, seen map[string]bool) bool {
	for _, name := range from[start] {
		if name == end {
			return true
		}
		if !seen[name] {
			seen[name] = true
			if reaches(from, name, end, seen) {
				return true
			}
		}
	}
	return false
}

func checkReplaces(o operator) (problems []string) {
	for channel, from := range o.graph() {
		for name, replaced := range from {
			for _, replaces := range replaced {
				if !slices.ContainsFunc(o.bundles, func(other bundle) bool { return other.CSV.Name == replaces }) {
					problems = append(problems, fmt.Sprintf("channel %s: %s replaces %s, which is not in the directory", channel, name, replaces))
				}
			}
		}
	}
	return problems
}
