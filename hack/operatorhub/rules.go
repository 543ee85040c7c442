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

// rule is a static check of the community-operators pipeline. A name that starts with check_ is the
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
	{"check_ci_upgrade_graph", checkCI},
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

// layout allows only the directories of a bundle, without links or other files.
func layout(b bundle) (problems []string) {
	entries, err := os.ReadDir(b.dir)
	if err != nil {
		return []string{err.Error()}
	}
	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
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

func checkCI(o operator) (problems []string) {
	if graph := o.ci["updateGraph"]; graph != "semver-mode" && graph != "replaces-mode" {
		problems = append(problems, fmt.Sprintf("ci.yaml: updateGraph is %v, want semver-mode or replaces-mode", graph))
	}
	reviewers, isList := o.ci["reviewers"].([]any)
	if _, set := o.ci["reviewers"]; set && (!isList || len(reviewers) == 0) {
		problems = append(problems, "ci.yaml: reviewers must be a list of names or absent")
	}
	return problems
}

// checkDangling finds bundles that have no upgrade to a later bundle of their channel.
func checkDangling(o operator) (problems []string) {
	for channel, bundles := range o.inChannels() {
		upgradable := map[string]bool{}
		for _, b := range bundles {
			for _, name := range o.replaced(b, bundles) {
				upgradable[name] = true
			}
		}
		for _, b := range bundles[:len(bundles)-1] {
			if !upgradable[b.CSV.Name] {
				problems = append(problems, fmt.Sprintf("channel %s: %s has no upgrade", channel, b.CSV.Name))
			}
		}
	}
	return problems
}

func checkLoop(o operator) (problems []string) {
	for channel, bundles := range o.inChannels() {
		from := map[string][]string{}
		for _, b := range bundles {
			from[b.CSV.Name] = o.replaced(b, bundles)
		}
		for _, b := range bundles {
			if reaches(from, b.CSV.Name, b.CSV.Name, map[string]bool{}) {
				problems = append(problems, fmt.Sprintf("channel %s: upgrade path of %s is a loop", channel, b.CSV.Name))
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
	for _, b := range o.bundles {
		replaces := b.CSV.Spec.Replaces
		if replaces != "" && !slices.ContainsFunc(o.bundles, func(other bundle) bool { return other.CSV.Name == replaces }) {
			problems = append(problems, fmt.Sprintf("%s replaces %s, which is not in the directory", b.CSV.Name, replaces))
		}
	}
	return problems
}
