#!/usr/bin/env bash
# Generates everything anew and fails where that makes a difference, or where a version is
# not the one that the Makefile names. `make verify` calls this.
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
	printf 'These were not current; look at them with git diff, and commit them:\n%s\n' \
		"$(awk '/^[<>]/ {print "  " $3}' <<<"$difference" | sort -u)" >&2
	exit 1
fi

# A released version is named by the digest of its image.
version=$(make -s version)
for file in config/manager/manager.yaml config/manifests/bases/echo-operator.clusterserviceversion.yaml config/scorecard/config.yaml; do
	grep -Eq "echo-operator(-scorecard)?(:v$version|@sha256:[0-9a-f]{64})\$" "$file" || {
		echo "$file names neither version $version, which the Makefile does, nor a digest" >&2
		exit 1
	}
done
for file in config/olm/catalogsource.yaml config/olm-v1/clustercatalog.yaml config/manifests/bases/echo-operator.clusterserviceversion.yaml CHANGELOG.md; do
	grep -q "v\?$version" "$file" || {
		echo "$file does not name version $version, which the Makefile does" >&2
		exit 1
	}
done
echo "Everything generated is current, and the version is $version everywhere."
