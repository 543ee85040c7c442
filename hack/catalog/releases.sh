#!/usr/bin/env bash
# Builds the images of every release from the commit that it was built from, and pushes
# them into the local cluster's registry; those parts apart that SKIP names. `make releases`
# calls this.
set -euo pipefail
cd "$(dirname "$0")/../.."

registry=$(cat bin/cluster/registry)
published=ghcr.io/kkloud-io/echo-operator

# push <image> pushes it, and prints its digest. An image of several platforms is a
# manifest list, which buildah pushes in another way.
push() {
	local where=docker://$registry/${1#ghcr.io/} flags="-q --tls-verify=false --digestfile bin/digest"
	$CONTAINER_TOOL manifest push --all $flags "$1" "$where" 2>/dev/null || $CONTAINER_TOOL push $flags "$1" "$where"
	printf '%-56s %s\n' "$1" "$(cat bin/digest)"
}

while read -r version commit; do
	tree=bin/releases/$version
	if [ "$(cat "$tree/commit" 2>/dev/null)" != "$commit" ]; then
		git cat-file -e "$commit" 2>/dev/null || {
			echo "This clone lacks commit $commit, of which version $version was built. Get the history: git fetch --unshallow" >&2
			exit 1
		}
		rm -rf "$tree"
		mkdir -p "$tree"
		git archive "$commit" | tar -x -C "$tree"
		echo "$commit" >"$tree/commit"
	fi
	for part in docker http-echo scorecard bundle; do
		# The first releases consisted of less.
		if ! grep -q "^$part-build:" "$tree/Makefile" || [[ " ${SKIP:-} " == *" $part "* ]]; then
			continue
		fi
		if [ ! -e "$tree/built-$part" ]; then
			echo "Building version $version of commit $commit ..."
			env -u MAKEFLAGS -u MAKEOVERRIDES -u GOTOOLCHAIN make --no-print-directory -C "$tree" "$part-build" CONTAINER_TOOL="$CONTAINER_TOOL"
			touch "$tree/built-$part"
		fi
		case $part in
		docker) push "$published:v$version" ;;
		http-echo) push "$published-http-echo:1.0.0" ;;
		*) push "$published-$part:v$version" ;;
		esac
	done
done < <(awk '$2 == "version:" {version = $3} $1 == "commit:" {print version, $2}' catalog/releases.yaml)
rm bin/digest
