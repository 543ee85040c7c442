#!/usr/bin/env bash
# Fails unless the workflow nightly has passed for this commit. The workflow release runs it, with a token of GitHub in TOKEN.
# Usage: hack/release/check-nightly.sh
set -euo pipefail
runs="$GITHUB_API_URL/repos/$GITHUB_REPOSITORY/actions/workflows/nightly.yaml/runs?head_sha=$GITHUB_SHA&status=success"
passed=$(curl -fsS -H "Authorization: Bearer $TOKEN" "$runs" | jq .total_count)
if [ "$passed" -eq 0 ]; then
	echo "No nightly run has passed for commit $GITHUB_SHA. Start the workflow nightly for it, and then this one again." >&2
	exit 1
fi
