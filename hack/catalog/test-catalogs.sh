#!/usr/bin/env bash
# Makes the catalogs that the tests install from, and pushes them into the local cluster's
# registry: "published" is the one of this tree, in both of its forms; "broken" offers in its
# channel "test" this tree's version after the newest release, and after that a version that
# never becomes ready; "fixed" adds one that takes its place.
set -euo pipefail
cd "$(dirname "$0")/../.."

base=ghcr.io/kkloud-io/echo-operator
registry=$(cat bin/cluster/registry)
version=$(make -s version)
broken=${version%.*}.$((${version##*.} + 1))
fixed=${version%.*}.$((${version##*.} + 2))
head=$(awk '$2 == "version:" {version = $3} END {print version}' catalog/releases.yaml)
out=bin/catalogs

# image <name> <context> [<option> ...] builds an image of data and pushes it.
image() {
	local name=$1 context=$2
	shift 2
	$CONTAINER_TOOL build -q --timestamp 0 "$@" -t "$name" "$context" >/dev/null
	$CONTAINER_TOOL push -q --tls-verify=false "$name" "docker://$registry/${name#ghcr.io/}"
	echo "Pushed $name"
}

# bundle <version> <sed script> makes a bundle of this tree's with another version.
bundle() {
	mkdir -p "$out/$1"
	cp -r bin/package/bundle bin/package/bundle.Dockerfile "$out/$1"
	sed -i -e "s/^  name: echo-operator.v$version$/  name: echo-operator.v$1/" -e "s/^  version: $version$/  version: $1/" -e "$2" \
		"$out/$1"/bundle/manifests/*.clusterserviceversion.yaml
	image "$base-bundle:v$1" "$out/$1" -f "$out/$1/bundle.Dockerfile"
}

# catalog <name> makes an image of the catalog in a directory.
catalog() {
	opm validate "$out/$1/echo-operator"
	image "$base-catalog:$1" "$out/$1" -f catalog/Dockerfile
}

# entries <bundle directory> <version> prints a catalog's entry for a bundle.
entry() {
	opm render "$1" --alpha-image-ref-template "$base-bundle:v$2" --migrate-level bundle-object-to-csv-metadata -o yaml
}

# The published catalog is what opm makes of its template and of the bundles in a registry.
mkdir -p bin/home/.config/containers
printf '[[registry]]\nprefix = "ghcr.io"\nlocation = "%s"\ninsecure = true\n' "$registry" >bin/home/.config/containers/registries.conf
HOME=$PWD/bin/home opm alpha render-template basic catalog/template.yaml --use-http --migrate-level bundle-object-to-csv-metadata -o yaml |
	diff - catalog/echo-operator/catalog.yaml || {
	echo "catalog/echo-operator/catalog.yaml is not what opm makes of catalog/template.yaml" >&2
	exit 1
}

rm -rf $out
for name in published broken fixed; do
	mkdir -p $out/$name
	cp -r catalog/echo-operator $out/$name
done
bundle "$broken" 's|path: /readyz|path: /never|; s|progressDeadlineSeconds: 120|progressDeadlineSeconds: 20|'
bundle "$fixed" ''
for name in broken fixed; do
	{
		printf -- '---\nschema: olm.channel\npackage: echo-operator\nname: test\nentries:\n- name: echo-operator.v%s\n' "$head"
		printf -- '- name: echo-operator.v%s\n  replaces: echo-operator.v%s\n' "$version" "$head" "$broken" "$version"
		[ $name = broken ] || printf -- '- name: echo-operator.v%s\n  replaces: echo-operator.v%s\n  skips: [echo-operator.v%s]\n' "$fixed" "$version" "$broken"
		entry bin/package/bundle "$version"
		entry "$out/$broken/bundle" "$broken"
		[ $name = broken ] || entry "$out/$fixed/bundle" "$fixed"
	} >>$out/$name/echo-operator/catalog.yaml
done
for name in published broken fixed; do
	catalog $name
done
image "$base-catalog:served" $out/published -f catalog/serve.Dockerfile --tls-verify=false \
	--build-arg "OPM_IMAGE=$registry/operator-framework/opm:$OPM_VERSION"
