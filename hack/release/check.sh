#!/usr/bin/env bash
# Checks that this commit can be released: version, day, changelog and digests. Usage: hack/release/check.sh [<tag>]
source "$(dirname "$0")/common.sh"
tag=${1:-v$version}

[ "$tag" = "v$version" ] || fail "tag $tag: the version of this commit is $version, as VERSION in the Makefile says"
released=$(sed -n 's/^RELEASE_DATE ?= \(.*\)T00:00:00Z$/\1/p' Makefile)
[ "$(date -u -d "$released" +%F)" = "$released" ] || fail "RELEASE_DATE in the Makefile must be YYYY-MM-DDT00:00:00Z"

section=${version%-rc.*} day=$released
[ "$section" = "$version" ] || day=unreleased
grep -qxF "## $section ($day)" CHANGELOG.md || fail "CHANGELOG.md must have the line \"## $section ($day)\": the day is RELEASE_DATE in the Makefile"
notes=$(hack/release/notes.sh)
[ "$(grep -c '^- ' <<<"$notes")" -gt 0 ] || fail "the section $section of CHANGELOG.md lists no change"

grep -qx -- "- version: $version" catalog/releases.yaml || fail "catalog/releases.yaml has no entry for version $version"
# Only the catalog has a tag, which moves. The example image of a sample is not ours.
tagged=$(grep -rhoE "ghcr\.io/$base(-http-echo|-verifier|-scorecard)?:[A-Za-z0-9._-]+" config bundle | sort -u || true)
[ -z "$tagged" ] || fail "the manifests name images without a digest: $(tr '\n' ' ' <<<"$tagged")- run make pin"
echo "Version $version can be released."
