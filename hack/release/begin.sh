#!/usr/bin/env bash
# Begins the work on a version: writes it to every file that names the version of this tree, with tags in place of
# digests. Usage: hack/release/begin.sh <version>
source "$(dirname "$0")/common.sh"
next=${1:?usage: hack/release/begin.sh <version>}
[[ $next =~ ^[0-9]+\.[0-9]+\.[0-9]+(-rc\.[0-9]+)?$ ]] || fail "version $next: must be X.Y.Z or X.Y.Z-rc.N"

sed -i "s/^VERSION ?= .*/VERSION ?= $next/" Makefile
name="ghcr.io/$base"
# Not the digest of http-echo, which changes only with its image.
sed -i -E "s#($name(-verifier|-scorecard)?)(:v|@sha256:)[^ ]*#\1:v$next#; s#($name-http-echo:v)[^ ]*#\1$next#" \
	config/manager/manager.yaml config/scorecard/config.yaml config/manifests/bases/*.yaml
sed -i -E "s/(olm.skipRange: '>=[^ ]+ <).*'/\1$next'/" config/manifests/bases/*.yaml
[[ $next == *-rc.* ]] && maturity=beta || maturity=stable
sed -i "s/^  maturity: .*/  maturity: $maturity/" config/manifests/bases/*.yaml
for file in config/olm/catalogsource.yaml config/olm-v1/clustercatalog.yaml; do
	sed -i -E "s#($name-catalog:v).*#\1${next%%.*}#" "$file"
done
grep -q "^## ${next%-rc.*} " CHANGELOG.md || sed -i "0,/^## /s//## ${next%-rc.*} (unreleased)\n\n## /" CHANGELOG.md
# The last entry is the version of this tree if it has no commit.
if awk '/^- /{open = 1} /^  commit:/{open = 0} END {exit !open}' catalog/releases.yaml; then
	sed -i "$(grep -n '^- version:' catalog/releases.yaml | tail -1 | cut -d: -f1)s/.*/- version: $next/" catalog/releases.yaml
else
	printf -- '- version: %s\n  rollsServers: none\n' "$next" >>catalog/releases.yaml
fi
make --no-print-directory bundle chart >/dev/null
echo "The version of this tree is $next. Commit it: \"Begin $next\"."
