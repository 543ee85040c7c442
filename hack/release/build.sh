#!/usr/bin/env bash
# Builds the images of a release, and fails if one has another digest than the manifests name.
# Usage: hack/release/build.sh [<tag>]
source "$(dirname "$0")/common.sh"
hack/release/check.sh "$@"
make --no-print-directory bin/kustomize # First, because it creates bin/ and Go's caches, which the image builds mount.
make --no-print-directory pin
git diff --exit-code -- . ||
	fail "$(${CONTAINER_TOOL%% *} --version) builds images with other digests than the commit names"
make --no-print-directory bundle-build
