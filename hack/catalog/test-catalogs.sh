#!/usr/bin/env bash
# Builds what the upgrade tests need beside the images of this tree, and pushes it to the local cluster's registry: the
# predecessor of this tree, later versions, and a catalog of all of them. The predecessor is the newest release before
# this tree, built from its commit. Before the first release, it is this tree under a lower version.
# `make test-catalogs` calls this script.
set -euo pipefail
cd "$(dirname "$0")/../.."

base=ghcr.io/kkloud-io/echo-operator
registry=$(cat bin/cluster/registry)
tree=$(make --no-print-directory -s version)
IFS=. read -r major minor patch <<<"${tree%%-*}"
broken=$major.$minor.$((patch + 1)) fixed=$major.$minor.$((patch + 2)) next=$((major + 1))

# bundle <version> [<sed expression>] writes this tree's bundle under another version, with the change of its
# ClusterServiceVersion.
bundle() {
	mkdir -p "bin/catalogs/$1"
	cp -r bin/package/bundle "bin/catalogs/$1"
	sed -i "s/^  name: echo-operator.v.*/  name: echo-operator.v$1/; s/^  version: .*/  version: $1/; ${2:-}" \
		"bin/catalogs/$1/bundle/manifests/echo-operator.clusterserviceversion.yaml"
}
# image <name> <context> [<option> ...] builds an image that contains only data, and pushes it.
image() {
	local name=$1 context=$2
	shift 2
	$CONTAINER_TOOL build -q --timestamp 0 "$@" -t "$name" "$context" >/dev/null
	$CONTAINER_TOOL push -q --tls-verify=false "$name" "docker://$registry/${name#ghcr.io/}"
	echo "Pushed $name"
}
# program <directory> <make's name> <image> builds the image of a program, and pushes it.
program() {
	env -u MAKEFLAGS -u MAKEOVERRIDES -u GOTOOLCHAIN make --no-print-directory -C "$1" "$2-build" VERSION="$version"
	$CONTAINER_TOOL manifest push -q --all --tls-verify=false "$3" "docker://$registry/${3#ghcr.io/}"
	echo "Pushed $3"
}

rm -rf bin/catalogs
read -r version commit < <(awk -v tree="$tree" '/^- version:/ {version = $3}
	/^  commit:/ && version != tree {found = version " " $2} END {print found}' catalog/releases.yaml) || true
if [ -n "$version" ]; then
	mkdir -p "bin/catalogs/$version/tree"
	# With the modes of a checkout, because they are part of the digest of an image.
	git -c tar.umask=022 archive "$commit" | tar -x -C "bin/catalogs/$version/tree"
	cp -r "bin/catalogs/$version/tree/bundle" "bin/catalogs/$version"
	program "bin/catalogs/$version/tree" http-echo "$base-http-echo:v$version"
	program "bin/catalogs/$version/tree" verifier "$base-verifier:v$version"
	program "bin/catalogs/$version/tree" docker "$base:v$version"
else
	version=${tree%%-*}-0 # The lowest pre-release of this version.
	bundle "$version" "s|$base[:@].*|$base:v$version|"
	mkdir "bin/catalogs/$version/tree"
	cp -r config "bin/catalogs/$version/tree"
	sed -i "s|$base[:@].*|$base:v$version|" "bin/catalogs/$version/tree/config/manager/manager.yaml"
	program . docker "$base:v$version" # All other images are those of this tree.
fi
bundle "$tree"
bundle "$broken" 's|path: /readyz|path: /never|; s/progressDeadlineSeconds: .*/progressDeadlineSeconds: 20/'
bundle "$fixed"
bundle "$next.0.0"
bundle "$next.1.0"

# The channels are those of hack/catalog/render.go after the release of this tree and of the next major version. In the
# channel broken, a version that never becomes ready follows this tree. The channel fixed adds the version that replaces it.
mkdir -p bin/catalogs/next/echo-operator
name=echo-operator.v
channel='schema: olm.channel, package: echo-operator, name'
{
	opm render bin/catalogs/[0-9]*/bundle --alpha-image-ref-template "$base-bundle:v{{.Version}}" \
		--migrate-level bundle-object-to-csv-metadata -o yaml
	cat <<-EOF
		---
		{schema: olm.package, name: echo-operator, defaultChannel: stable-v$major}
		---
		{$channel: candidate-v$major, entries: [{name: $name$version}, {name: $name$tree, replaces: $name$version}]}
		---
		{$channel: stable-v$major, entries: [{name: $name$tree, skipRange: ">=$version <$tree"}]}
		---
		{$channel: stable-v$next, entries: [{name: $name$next.0.0, skipRange: ">=$version <$next.0.0"},
		  {name: $name$next.1.0, replaces: $name$next.0.0, skipRange: ">=$version <$next.1.0"}]}
		---
		{$channel: broken, entries: [{name: $name$tree}, {name: $name$broken, replaces: $name$tree}]}
		---
		{$channel: fixed, entries: [{name: $name$tree}, {name: $name$broken, replaces: $name$tree},
		  {name: $name$fixed, replaces: $name$tree, skips: [$name$broken]}]}
	EOF
} >bin/catalogs/next/echo-operator/catalog.yaml
opm validate bin/catalogs/next

for dir in bin/catalogs/[0-9]*; do
	image "$base-bundle:v${dir##*/}" "$dir" -f bin/package/bundle.Dockerfile
done
image "$base-catalog:next" bin/catalogs/next -f catalog/Dockerfile
image "$base-catalog:served" bin/catalogs/next -f catalog/serve.Dockerfile --tls-verify=false \
	--build-arg "OPM_IMAGE=$registry/operator-framework/opm:$OPM_VERSION"
