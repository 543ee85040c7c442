#!/usr/bin/env bash
# Regenerates all generated files and fails if one changes, or if a file names another version than
# the Makefile. `make verify` calls this script.
set -euo pipefail
cd "$(dirname "$0")/.."

sums() { find api config bundle bundle.Dockerfile catalog docs/api.md docs/metrics.md docs/upgrade-graph.md go.mod go.sum -type f -exec sha256sum {} + | sort -k 2; }

before=$(sums)
make --no-print-directory bundle catalog docs >/dev/null
go mod tidy
for module in hack test; do
	(cd $module && go mod tidy -diff)
done
if ! difference=$(diff <(echo "$before") <(sums)); then
	printf 'These generated files were not current. Review them with git diff and commit them:\n%s\n' \
		"$(awk '/^[<>]/ {print "  " $3}' <<<"$difference" | sort -u)" >&2
	exit 1
fi

# Unreleased images are named by the version tag, released images by their digest.
version=$(make -s version)
for file in config/manager/manager.yaml config/manifests/bases/echo-operator.clusterserviceversion.yaml config/scorecard/config.yaml; do
	grep -Eq "echo-operator(-scorecard)?(:v$version|@sha256:[0-9a-f]{64})\$" "$file" || {
		echo "$file: want image tag v$version, as in the Makefile, or a digest" >&2
		exit 1
	}
done
for file in config/olm/catalogsource.yaml config/olm-v1/clustercatalog.yaml config/manifests/bases/echo-operator.clusterserviceversion.yaml CHANGELOG.md; do
	grep -q "v\?$version" "$file" || {
		echo "$file: does not contain version $version, which the Makefile names" >&2
		exit 1
	}
done
echo "All generated files are current, and every file names version $version."
