#!/usr/bin/env bash
# Prepares the commit of a release: writes the day into CHANGELOG.md and the Makefile, and the digests of the images
# into the manifests. Usage: hack/release/prepare.sh [<day, YYYY-MM-DD>]
source "$(dirname "$0")/common.sh"
day=${1:-$(date -u +%F)}
[[ $day =~ ^[0-9]{4}-[0-9]{2}-[0-9]{2}$ ]] || fail "day $day: must be YYYY-MM-DD"

sed -i "s/^RELEASE_DATE ?= .*/RELEASE_DATE ?= ${day}T00:00:00Z/" Makefile
# The section of a release candidate is that of the release.
[[ $version == *-rc.* ]] || sed -i "s/^## $version (.*)/## $version ($day)/" CHANGELOG.md
make --no-print-directory bin/kustomize pin
hack/release/check.sh
echo "Run make test-all, and commit: \"Release $version\". Push the commit, and the tag v$version after nightly has passed for it."
