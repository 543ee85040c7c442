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

go -C hack run ./catalog test-catalogs

# opm has to render the same catalog from the bundles in the registry.
mkdir -p bin/home/.config/containers
printf '[[registry]]\nprefix = "ghcr.io"\nlocation = "%s"\ninsecure = true\n' "$registry" >bin/home/.config/containers/registries.conf
opm alpha convert-template basic bin/catalogs/next/echo-operator/catalog.yaml -o yaml >bin/catalogs/template.yaml
HOME=$PWD/bin/home opm alpha render-template basic bin/catalogs/template.yaml --use-http --migrate-level bundle-object-to-csv-metadata -o yaml |
	diff - bin/catalogs/next/echo-operator/catalog.yaml || {
	echo "opm renders another catalog from the bundles in the registry than bin/catalogs/next" >&2
	exit 1
}

for dir in bin/catalogs/*/; do
	dir=${dir%/}
	if [ -d "$dir/bundle" ]; then
		image "$base-bundle:v${dir##*/}" "$dir" -f bin/package/bundle.Dockerfile
	else
		image "$base-catalog:${dir##*/}" "$dir" -f catalog/Dockerfile
	fi
done
image "$base-catalog:served" bin/catalogs/next -f catalog/serve.Dockerfile --tls-verify=false \
	--build-arg "OPM_IMAGE=$registry/operator-framework/opm:$OPM_VERSION"
