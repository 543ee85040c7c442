#!/usr/bin/env bash
# Builds every release artifact twice, from two clones in different directories and with different umasks, and fails if
# a byte differs. With COLD=1 the second build starts with an empty build cache. `make reproducible` calls
# this script.
set -euo pipefail
cd "$(dirname "$0")/.."
here=$PWD
work=$(mktemp -d)
trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT
base=ghcr.io/kkloud-io/echo-operator

# build <directory> clones into the directory, builds, and prints one checksum line per artifact.
build() {
	local dir=$1 tool="buildah --root $1/bin/images --runroot $1/bin/images/run" name
	git clone -q "$here" "$dir"
	mkdir "$dir/bin"
	# Reuse the tools of this clone, whose names have their versions.
	for name in controller-gen kustomize operator-sdk opm; do ln -s "$(realpath "$here/bin/$name")" "$dir/bin"; done
	make --no-print-directory -C "$dir" CONTAINER_TOOL="$tool" bundle catalog chart images >"$dir/log" 2>&1 || {
		tail -20 "$dir/log" >&2
		return 1
	}
	git -C "$dir" diff --stat --exit-code >&2
	for name in bundle catalog dist/chart; do
		echo "$name/ $(cd "$dir/$name" && find . -type f -print0 | sort -z | xargs -0 sha256sum | sha256sum | cut -c1-64)"
	done
	for name in "" -http-echo -verifier -scorecard -bundle -catalog; do
		# shellcheck disable=SC2086 # $tool contains several words
		$tool manifest push --all -q --digestfile "$dir/digest" "$($tool images --format '{{.Name}}:{{.Tag}}' | grep "^$base$name:")" "oci:$dir/oci" >&2
		test -s "$dir/digest" # buildah ignores a push that failed.
		echo "image${name} $(cut -d: -f2 "$dir/digest")"
	done
}

echo "Building in the first clone ..."
build "$work/first" >"$work/1"
echo "Building in the second clone, in another directory and with another umask ..."
umask 077
[ -z "${COLD:-}" ] || export GOCACHE=$work/cache
build "$work/another/second" >"$work/2"

paste -d ' ' "$work/1" "$work/2" | awk '
	BEGIN {printf "%-16s %-64s %-64s\n", "", "first clone", "second clone"}
	{printf "%-16s %-64s %-64s %s\n", $1, $2, $4, $2 == $4 ? "same" : "DIFFERENT"; if ($2 != $4) failed = 1}
	END {exit failed}'
