#!/usr/bin/env bash
# Records a release whose images are published: commit, day, digest of the bundle and channels. Then renders the catalog.
# Usage: hack/release/record.sh <commit> [<channels, separated by commas>]
source "$(dirname "$0")/common.sh"
commit=$(git rev-parse --verify "${1:?usage: hack/release/record.sh <commit> [<channels>]}^{commit}")
at=$(git show "$commit:Makefile" | sed -n 's/^VERSION ?= //p')
channels=${2:-$(git show "$commit:bundle/metadata/annotations.yaml" | sed -n 's/.*bundle.channels.v1: //p')}
[[ $at != *-rc.* || -n ${2:-} ]] || channels=$(tr , '\n' <<<"$channels" | grep ^candidate-)
bundle=$(remote_digest "ghcr.io/$base-bundle:v$at") || fail "the registry has no bundle of version $at"
day=$(git show "$commit:Makefile" | sed -n 's/^RELEASE_DATE ?= \(.*\)T.*/\1/p')
awk -v version="$at" '$0 == "- version: " version {at = 1; next} /^- / {at = 0} at && /^  commit:/ {exit 1}' catalog/releases.yaml ||
	fail "catalog/releases.yaml has a commit for version $at already"
awk -v version="$at" -v lines="  date: $day\n  commit: $commit\n  bundle: $bundle\n  channels: [${channels//,/, }]" \
	'{print} $0 == "- version: " version {print lines; found = 1} END {exit !found}' catalog/releases.yaml >bin/releases.yaml ||
	fail "catalog/releases.yaml has no entry for version $at"
mv bin/releases.yaml catalog/releases.yaml
make --no-print-directory catalog
echo "Recorded $at in ${channels//,/, }."
