#!/usr/bin/env bash
# Checks and publishes the catalog: under a tag of its own, and under the tag that clusters poll, v<major>. Prints name and
# digest. Usage: hack/release/publish-catalog.sh
source "$(dirname "$0")/common.sh"
[ -d catalog/echo-operator ] || fail "no release is recorded in catalog/releases.yaml"
make --no-print-directory catalog
git diff --exit-code -- catalog || fail "catalog/echo-operator is not current: run make catalog, and commit it"
opm validate catalog/echo-operator
hack/release/check-images.sh

newest=$(newest_release)
built=localhost/echo-operator-catalog:built
make --no-print-directory catalog-image CATALOG_IMG="$built"
# A promotion or a deprecation changes the catalog without a release: its tag has a number.
tag=v$newest digest=$(local_digest "$built")
for ((revision = 2; ; revision++)); do
	existing=$(remote_digest "ghcr.io/$base-catalog:$tag") || break
	[ "$existing" != "$digest" ] || break
	tag=v$newest-$revision
done
publish "$built" "ghcr.io/$base-catalog:$tag" >&2
push "$built" "ghcr.io/$base-catalog:v${newest%%.*}"
echo "ghcr.io/$base-catalog $digest"
