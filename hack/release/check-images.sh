#!/usr/bin/env bash
# Pulls every image that the bundle, the catalog and the manifests name, without credentials and for every platform.
# Usage: hack/release/check-images.sh
source "$(dirname "$0")/common.sh"
list() { grep -rhoE "ghcr\.io/$base[a-z-]*(@sha256:[0-9a-f]{64}|:v[A-Za-z0-9._-]+)" "$@" | sort -u; }
# The catalog is pushed after this check.
wanted=$(list bundle catalog config | grep -v -- -catalog: || true)
[ -n "$wanted" ] || fail "found no image in bundle, catalog and config"
while read -r image; do
	rm -rf bin/pulled
	skopeo copy -q --all --src-no-creds ${SKOPEO_FLAGS:+--src-tls-verify=false} "$(remote "$image")" dir:bin/pulled ||
		fail "$image: cannot be pulled without credentials"
	echo "pulled $image"
done <<<"$wanted"
rm -rf bin/pulled
