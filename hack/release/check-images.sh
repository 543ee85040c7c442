#!/usr/bin/env bash
# Pulls every image that the catalog names and the newest chart, without credentials and for every platform.
# Usage: hack/release/check-images.sh
source "$(dirname "$0")/common.sh"
# Bundle and manifests may already name the next version.
wanted=$(grep -rhoE "ghcr\.io/$base[a-z-]*@sha256:[0-9a-f]{64}" catalog/echo-operator | sort -u)
wanted+=$'\n'ghcr.io/kkloud-io/charts/echo-operator:$(newest_release)
while read -r image; do
	rm -rf bin/pulled
	skopeo copy -q --all --src-no-creds ${SKOPEO_FLAGS:+--src-tls-verify=false} "$(remote "$image")" dir:bin/pulled ||
		fail "$image: cannot be pulled without credentials"
	echo "pulled $image"
done <<<"$wanted"
rm -rf bin/pulled
