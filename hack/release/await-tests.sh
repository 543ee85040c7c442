#!/usr/bin/env bash
# Waits until the workflow test has passed for this commit, and fails if it has failed. The workflow release runs it, with a
# token of GitHub in TOKEN. Usage: hack/release/await-tests.sh
set -euo pipefail
runs="$GITHUB_API_URL/repos/$GITHUB_REPOSITORY/actions/workflows/test.yaml/runs?head_sha=$GITHUB_SHA&event=push"
# count <status> prints the number of runs with the status.
count() { curl -fsS -H "Authorization: Bearer $TOKEN" "$runs&status=$1" | jq .total_count; }
until [ "$(count success)" -gt 0 ]; do
	if [ "$(count failure)" -gt 0 ]; then
		echo "The tests of commit $GITHUB_SHA have failed." >&2
		exit 1
	fi
	sleep 60
done
