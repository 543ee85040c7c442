#!/usr/bin/env bash
# Prints the targets of make on a cluster that a change needs, by the paths that it touches since the merge base with BASE,
# by default origin/main. If there is no such base, or the change is on it already, all of them, except two that the nightly
# run has: OLM v1, and the life cycle of the local cluster, which each of the others starts.
set -euo pipefail
cd "$(dirname "$0")/.."
base=$(git merge-base HEAD "${BASE:-origin/main}" 2>/dev/null || true)
[ "$base" != "$(git rev-parse HEAD)" ] || base=
paths=${base:+$(git diff --name-only "$base")}
touched() { [ -z "$base" ] || grep -qE "^($1)" <<<"$paths"; }

go='go\.(mod|sum)$|Makefile$|make/|Dockerfile$'
echo test-e2e
! touched "$go|api/|cmd/verifier/|internal/(verifier|children|status)/|test/e2e/.*verif" || echo e2e-verification
! touched "$go|api/|internal/(children|controller|informers)/|test/e2e/.*gateway|hack/local-cluster/" || echo e2e-gateway
! touched "$go|bundle|catalog/|config/|cmd/main|internal/olm/|hack/catalog/|test/e2e/(olmv0|internal)|hack/local-cluster/" || echo e2e-olm-v0
[ -z "$base" ] || ! touched "$go|bundle|catalog/|config/|hack/catalog/|test/e2e/(olmv1|internal)|hack/local-cluster/" || echo e2e-olm-v1
! touched "$go|catalog/|config/|dist/chart/|hack/(catalog/|chart)|test/e2e/(helm|internal)|tools/helm|hack/local-cluster/" || echo e2e-helm
[ -z "$base" ] || ! touched "$go|hack/(local-cluster|go\.)|tools/" || echo cluster-test
