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
	// openShiftOffset is what lies between the minor versions: OpenShift 4.17 is Kubernetes 1.30.
	openShiftOffset = 13
)

// rule is a demand of the community's pipeline. Those that start with check_ have the name
// that the pipeline prints, so that its documentation can be looked up. What only makes it
// warn is a problem here, too.
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

// layout allows just the directories of a bundle, without links or stray files.
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
		problems = append(problems, fmt.Sprintf("it has %v, and must have %v", names, want))
	}
	if _, err := os.Stat(filepath.Join(b.dir, "tests/scorecard/config.yaml")); err != nil {
		problems = append(problems, "tests/scorecard/config.yaml is missing")
	}
	if csvs, _ := filepath.Glob(filepath.Join(b.dir, "manifests/*.clusterserviceversion.yaml")); len(csvs) != 1 {
		problems = append(problems, fmt.Sprintf("manifests has %d files *.clusterserviceversion.yaml, and must have one", len(csvs)))
	}
	return problems
}

func checkOperatorName(o operator) (problems []string) {
	for _, b := range o.bundles {
		name, _, _ := strings.Cut(b.CSV.Name, ".")
		if b.Package != o.name || name != o.name {
			problems = append(problems, fmt.Sprintf("the package %q, the ClusterServiceVersion's %q and the directory %q must be the same name",
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
		return []string{fmt.Sprintf("the bundles have several names: %v", names)}
	}
	return nil
}

func checkVersionDirectory(b bundle) []string {
	_, named, _ := strings.Cut(b.CSV.Name, ".v")
	if dir, version := filepath.Base(b.dir), b.version().String(); dir != version || named != version {
		return []string{fmt.Sprintf("spec.version %s and metadata.name %s must have the version of the directory, %s", version, b.CSV.Name, dir)}
	}
	return nil
}

func checkRequiredFields(b bundle) (problems []string) {
	spec, annotations := b.CSV.Spec, b.CSV.Annotations
	demand := func(ok bool, field, allowed string) {
		if !ok {
			problems = append(problems, field+" must be "+allowed)
		}
	}
	demand(length(spec.DisplayName, 3, 50), "spec.displayName", "3 to 50 characters")
	demand(length(spec.Description, 20, many), "spec.description", "at least 20 characters")
	demand(length(spec.Provider.Name, 3, many), "spec.provider.name", "at least 3 characters")
	demand(len(spec.Keywords) > 0, "spec.keywords", "a list of at least one")
	demand(!b.version().Equals(semver.Version{}), "spec.version", "a semantic version")

	demand(len(spec.Icon) > 0, "spec.icon", "a list of at least one")
	for _, icon := range spec.Icon {
		image, err := base64.StdEncoding.DecodeString(icon.Data)
		demand(err == nil && len(image) > 0, "spec.icon.base64data", "an image in base64")
		demand(slices.Contains([]string{"image/png", "image/jpeg", "image/gif", "image/svg+xml"}, icon.MediaType),
			"spec.icon.mediatype", "image/png, image/jpeg, image/gif or image/svg+xml")
	}
	demand(len(spec.Maintainers) > 0, "spec.maintainers", "a list of at least one")
	for _, maintainer := range spec.Maintainers {
		demand(maintainer.Name != "" && strings.Contains(maintainer.Email, "@"), "spec.maintainers", "names with e-mail addresses")
	}
	demand(len(spec.Links) > 0, "spec.links", "a list of at least one")
	for _, link := range spec.Links {
		demand(link.Name != "" && strings.HasPrefix(link.URL, "http"), "spec.links", "names with URLs")
	}

	_, err := time.Parse(time.RFC3339, annotations["createdAt"])
	demand(err == nil, "metadata.annotations.createdAt", "a time stamp")
	demand(slices.Contains(capabilities, annotations["capabilities"]), "metadata.annotations.capabilities", "one of "+strings.Join(capabilities, ", "))
	for category := range strings.SplitSeq(annotations["categories"], ",") {
		demand(slices.Contains(categories, strings.TrimSpace(category)), "metadata.annotations.categories", "of "+strings.Join(categories, ", "))
	}
	demand(image.MatchString(annotations["containerImage"]), "metadata.annotations.containerImage", "an image with a tag or a digest")
	demand(strings.HasPrefix(annotations["repository"], "http"), "metadata.annotations.repository", "a URL")
	demand(length(annotations["support"], 3, many), "metadata.annotations.support", "at least 3 characters")
	demand(length(annotations["description"], 10, many), "metadata.annotations.description", "at least 10 characters")
	return problems
}

// many is a length that nothing reaches.
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
			problems = append(problems, fmt.Sprintf("the NetworkPolicy %s must not be in the bundle", object.GetName()))
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
		return []string{fmt.Sprintf("%s in metadata/annotations.yaml must be v4.<minor>, as spec.minKubeVersion is set: %v", openShiftVersions, err)}
	}
	if want := minimum.Minor - openShiftOffset; oldest.Minor < want {
		return []string{fmt.Sprintf("%s v4.%d has an older Kubernetes than spec.minKubeVersion %s: at least v4.%d",
			openShiftVersions, oldest.Minor, minimum, want)}
	}
	return nil
}

func checkCI(o operator) (problems []string) {
	if graph := o.ci["updateGraph"]; graph != "semver-mode" && graph != "replaces-mode" {
		problems = append(problems, fmt.Sprintf("ci.yaml: updateGraph is %v, and must be semver-mode or replaces-mode", graph))
	}
	reviewers, isList := o.ci["reviewers"].([]any)
	if _, set := o.ci["reviewers"]; set && (!isList || len(reviewers) == 0) {
		problems = append(problems, "ci.yaml: reviewers must be a list of names, or not there")
	}
	return problems
}

// checkDangling looks for what no later bundle of a channel upgrades from.
func checkDangling(o operator) (problems []string) {
	for channel, bundles := range o.inChannels() {
		left := map[string]bool{}
		for _, b := range bundles {
			for _, name := range o.replaced(b, bundles) {
				left[name] = true
			}
		}
		for _, b := range bundles[:len(bundles)-1] {
			if !left[b.CSV.Name] {
				problems = append(problems, fmt.Sprintf("channel %s: no bundle upgrades from %s", channel, b.CSV.Name))
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
				problems = append(problems, fmt.Sprintf("channel %s: the upgrades to %s start at itself", channel, b.CSV.Name))
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
			problems = append(problems, fmt.Sprintf("%s replaces %s, which is not there", b.CSV.Name, replaces))
		}
	}
	return problems
}
