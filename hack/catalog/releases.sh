#!/usr/bin/env bash
# Builds the images of every release from its commit and pushes them to the local cluster's registry,
# except the images that SKIP names. With NEWEST=true, only the newest release gets more than its bundle. With
# BUILD_ONLY=true, it pushes nothing and needs no cluster. `make releases` calls this script.
set -euo pipefail
cd "$(dirname "$0")/../.."

published=ghcr.io/kkloud-io/echo-operator

# push <image> pushes an image and prints its digest. An image for several platforms is a manifest list,
# which buildah pushes with another command.
push() {
	[ "${BUILD_ONLY:-}" != true ] || return 0
	local where flags="-q --tls-verify=false --digestfile bin/digest"
	where=docker://$(cat bin/cluster/registry)/${1#ghcr.io/}
	$CONTAINER_TOOL manifest push --all $flags "$1" "$where" 2>/dev/null || $CONTAINER_TOOL push $flags "$1" "$where"
	printf '%-56s %s\n' "$1" "$(cat bin/digest)"
}

releases=$(go -C hack run ./catalog releases)
newest=$(tail -1 <<<"$releases" | cut -d' ' -f1)
while read -r version commit; do
	tree=bin/releases/$version
	if [ "$(cat "$tree/commit" 2>/dev/null)" != "$commit" ]; then
		rm -rf "$tree"
		mkdir -p "$tree"
		git archive "$commit" | tar -x -C "$tree"
		echo "$commit" >"$tree/commit"
	fi
	for image in docker http-echo verifier scorecard bundle; do
		# Early releases have fewer images.
		if ! grep -q "^$image-build:" "$tree/Makefile" || [[ " ${SKIP:-} " == *" $image "* ]]; then
			continue
		fi
		if [ "${NEWEST:-}" = true ] && [ "$version" != "$newest" ] && [ "$image" != bundle ]; then
			continue
		fi
		if [ ! -e "$tree/built-$image" ]; then
			echo "Building $image of version $version from commit $commit ..."
			env -u MAKEFLAGS -u MAKEOVERRIDES -u GOTOOLCHAIN make --no-print-directory -C "$tree" "$image-build" CONTAINER_TOOL="$CONTAINER_TOOL"
			touch "$tree/built-$image"
		fi
		case $image in
		docker) push "$published:v$version" ;;
		# Before 0.5.0, the tag was the version of http-echo.
		http-echo)
			case $version in 0.[1-4].*) push "$published-http-echo:1.0.0" ;; *) push "$published-http-echo:v$version" ;; esac
			;;
		*) push "$published-$image:v$version" ;;
		esac
	done
done <<<"$releases"
rm -f bin/digest
