# Variables and functions of the scripts in this folder. They run in the root of the repository.
#   REGISTRY       where to push, ghcr.io by default; the rehearsal sets the registry of the local cluster
#   SKOPEO_FLAGS   flags of skopeo for that registry, for example --tls-verify=false
#   HELM_FLAGS     flags of helm push for that registry, for example --plain-http
# shellcheck shell=bash
set -euo pipefail
shopt -s inherit_errexit
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

base=kkloud-io/echo-operator
registry=${REGISTRY:-ghcr.io}
version=$(make --no-print-directory -s version)
# The parts of an installation that a commit of a release builds, as make names them; the bundle is the last.
images=(http-echo verifier scorecard docker bundle)

fail() {
	echo "${0##*/}: $*" >&2
	exit 1
}

# local_image <make's name> prints the name of an image of this version.
local_image() {
	case $1 in
	docker) echo "ghcr.io/$base:v$version" ;;
	*) echo "ghcr.io/$base-$1:v$version" ;;
	esac
}

# newest_release prints the version of the newest release that is recorded.
newest_release() { awk '/^- version:/ {version = $3} /^  commit:/ {newest = version} END {print newest}' catalog/releases.yaml; }

# remote <image> prints the image in the registry, for skopeo.
remote() { echo "docker://$registry/${1#ghcr.io/}"; }

# publish <local image> <image> pushes an image under a tag that never moves. Without effect if the registry has it
# already, so that a failed run can be repeated. It prints name and digest.
publish() {
	local digest existing
	digest=$(local_digest "$1")
	if existing=$(remote_digest "$2"); then
		[ "$existing" = "$digest" ] || fail "$2 is published with digest $existing, and this commit builds $digest: a published tag is never moved"
	else
		push "$1" "$2"
	fi
	echo "$2 $digest"
}

# publish_chart packages and pushes the Helm chart, as publish does. A registry adds the time to the manifest of a chart, so
# the digest of the package decides whether it has this chart already. It prints its name without the tag, and its digest.
publish_chart() {
	local chart=ghcr.io/kkloud-io/charts/echo-operator:$version package=bin/echo-operator-$version.tgz digest
	rm -rf bin/chart
	cp -r dist/chart bin/chart
	find bin/chart -exec touch -d "$(sed -n 's/^RELEASE_DATE ?= //p' Makefile)" {} + # The package contains these times.
	helm package bin/chart --destination bin >&2
	remote_digest "$chart" >/dev/null || helm push ${HELM_FLAGS:-} "$package" "oci://$registry/kkloud-io/charts" >&2
	digest=$(sha256sum "$package" | cut -d' ' -f1)
	skopeo inspect --raw ${SKOPEO_FLAGS:-} "$(remote "$chart")" | grep -q "$digest" ||
		fail "$chart is published, and this commit packages another chart: a published tag is never moved"
	echo "${chart%:*} $(remote_digest "$chart")"
}

# push <local image> <image> pushes an image, also under a tag that exists.
push() { $CONTAINER_TOOL manifest push -q --all ${SKOPEO_FLAGS:-} "$1" "$(remote "$2")"; }

local_digest() {
	rm -rf bin/oci
	$CONTAINER_TOOL manifest push -q --all --digestfile bin/digest "$1" oci:bin/oci >&2
	test -s bin/digest # buildah ignores a push that failed.
	cat bin/digest
	rm -rf bin/oci bin/digest
}

# remote_digest <image> prints the digest of a tag in the registry. It fails if there is no such tag or no such
# repository, for which ghcr.io denies access, and ends the script if the registry does not respond.
remote_digest() {
	local manifest
	if manifest=$(skopeo inspect --raw ${SKOPEO_FLAGS:-} "$(remote "$1")" 2>bin/skopeo.log); then
		printf %s "$manifest" | sha256sum | sed 's/ .*//; s/^/sha256:/'
	elif grep -q 'manifest unknown\|name unknown\|StatusCode: 404\|denied' bin/skopeo.log; then
		return 1
	else
		cat bin/skopeo.log >&2
		kill $$
	fi
}
