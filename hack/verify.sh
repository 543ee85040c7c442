#!/usr/bin/env bash
# Regenerates all generated files and fails if one changes, or if two files name different versions.
# `make verify` calls this script.
set -euo pipefail
cd "$(dirname "$0")/.."

sums() { find api config bundle bundle.Dockerfile catalog dist/chart docs/metrics.md go.mod go.sum -type f -exec sha256sum {} + | sort -k 2; }

before=$(sums)
make --no-print-directory bundle catalog chart docs >/dev/null
go mod tidy
for module in hack test; do
	(cd $module && go mod tidy -diff)
done
if ! difference=$(diff <(echo "$before") <(sums)); then
	printf 'These generated files were not current. Review them with git diff and commit them:\n%s\n' \
		"$(awk '/^[<>]/ {print "  " $3}' <<<"$difference" | sort -u)" >&2
	exit 1
fi

# fail <text> ends the script if the text is not empty.
fail() { [ -z "$1" ] || { printf '%s\n' "$1" >&2; exit 1; }; }
required() { sed -nE "s|^(require )?\s*$2 (v[^ ]+).*|\2|p" "$1"; }

# Unreleased images have the version as tag, released images a digest. The tag of the catalog moves.
version=$(make --no-print-directory -s version)
images=$(grep -roE "ghcr\.io/kkloud-io/echo-operator(-[a-z-]+)?[:@][^ '\"]+" config |
	grep -vE ":v$version\$|@sha256:[0-9a-f]{64}\$|-catalog:v${version%%.*}\$" || true)
fail "${images:+These images have neither the tag v$version, as in the Makefile, nor a digest:
$images}"
grep -q " <$version'" config/manifests/bases/*.yaml || fail "olm.skipRange in config/manifests/bases does not end with the version $version of the Makefile"
grep -q "^## ${version%-rc.*} (" CHANGELOG.md || fail "CHANGELOG.md has no section of the version $version of the Makefile"

# The operator and the default servers run on the nodes that their images are built for.
architectures=$(sed -n 's/^PLATFORMS ?= //p' Makefile | sed 's|linux/||g; s/,/, /g')
grep -q "values: \[$architectures\]" config/manager/manager.yaml || fail "config/manager/manager.yaml does not select the architectures $architectures of PLATFORMS in the Makefile"

# make test-oldest runs the version that the bundle declares as the oldest.
oldest=$(sed -n 's/^  minKubeVersion: //p' bundle/manifests/*.clusterserviceversion.yaml) tested=$(required tools/kubernetes-oldest.mod k8s.io/kubernetes)
[[ $tested == v${oldest%.*}.* ]] || fail "tools/kubernetes-oldest.mod has Kubernetes $tested, but the bundle has minKubeVersion $oldest"

# These files list modules that are compiled once if they have one version everywhere.
several=$(for file in go.mod test/go.mod hack/go.mod tools/kubernetes.mod tools/olm.mod; do
	awk '$2 ~ /^v[0-9]/ {version[$1] = $2} $2 == "=>" {version[$1] = $4} END {for (module in version) print module, version[module]}' $file
done | grep -v ' $' | sort -u | cut -d' ' -f1 | uniq -d)
fail "${several:+These modules have several versions: $several}"
echo "All generated files are current, and all files name the same versions."
