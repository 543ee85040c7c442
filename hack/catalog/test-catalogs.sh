#!/usr/bin/env bash
# Builds the images of the catalogs and bundles that hack/catalog/testcatalogs.go writes, and pushes them
# to the local cluster's registry. `make test-catalogs` calls this script.
set -euo pipefail
cd "$(dirname "$0")/../.."

base=ghcr.io/kkloud-io/echo-operator
registry=$(cat bin/cluster/registry)

# image <name> <context> [<option> ...] builds an image and pushes it.
image() {
	local name=$1 context=$2
	shift 2
	$CONTAINER_TOOL build -q --timestamp 0 "$@" -t "$name" "$context" >/dev/null
	$CONTAINER_TOOL push -q --tls-verify=false "$name" "docker://$registry/${name#ghcr.io/}"
	echo "Pushed $name"
}

# The published catalog must equal the one that opm renders from the template and the bundles in the registry.
mkdir -p bin/home/.config/containers
printf '[[registry]]\nprefix = "ghcr.io"\nlocation = "%s"\ninsecure = true\n' "$registry" >bin/home/.config/containers/registries.conf
HOME=$PWD/bin/home opm alpha render-template basic catalog/template.yaml --use-http --migrate-level bundle-object-to-csv-metadata -o yaml |
	diff - catalog/echo-operator/catalog.yaml || {
	echo "opm renders another catalog from catalog/template.yaml than catalog/echo-operator/catalog.yaml" >&2
	exit 1
}

go -C hack run ./catalog test-catalogs
for dir in bin/catalogs/*; do
	if [ -d "$dir/bundle" ]; then
		image "$base-bundle:v${dir##*/}" "$dir" -f bin/package/bundle.Dockerfile
	else
		image "$base-catalog:${dir##*/}" "$dir" -f catalog/Dockerfile
	fi
done
image "$base-catalog:served" bin/catalogs/published -f catalog/serve.Dockerfile --tls-verify=false \
	--build-arg "OPM_IMAGE=$registry/operator-framework/opm:$OPM_VERSION"
