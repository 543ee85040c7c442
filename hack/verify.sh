#!/usr/bin/env bash
# Regenerates all generated files and fails if one changes, or if two files name different versions.
# `make verify` calls this script.
set -euo pipefail
cd "$(dirname "$0")/.."

sums() { find api config bundle bundle.Dockerfile catalog dist/chart docs/api.md docs/metrics.md go.mod go.sum -type f -exec sha256sum {} + | sort -k 2; }

before=$(sums)
make --no-print-directory bundle catalog chart docs >/dev/null
go mod tidy
for module in hack test; do
	(cd $module && go mod tidy -diff)
done
if ! difference=$(diff <(echo "$before") <(sums)); then
	printf 'These generated files were not current. Review them with git diff and commit them:\n%s\n' \
		"$(awk '/^[<>]/ {print "  " $3}' <<<"$difference" | sort -u)" >&2
	exit 1
fi

go -C test test -count=1 ./manifests/versions
echo "All generated files are current, and all files name the same versions."
