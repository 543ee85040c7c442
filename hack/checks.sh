#!/usr/bin/env bash
# usage: checks.sh <target>...
# Runs targets of make that only compute, with the lowest priority, beside those on a cluster that the change needs, which mostly
# wait. The first failure ends both. `make checks` calls this script.
set -euo pipefail
cd "$(dirname "$0")/.."
mkdir -p bin
list=$(hack/touched-checks.sh) # Its failure ends this script.
mapfile -t touched <<<"$list"
echo "On a cluster: ${touched[*]}. Beside them, with the output in bin/checks.log: $*"

# Sessions of their own can be ended with all of their processes. Linux may share the CPU between sessions first.
setsid nice -n 19 bash -c 'echo 19 2>/dev/null >/proc/self/autogroup; exec make --no-print-directory layers LAYERS="$*"' - "$@" >bin/checks.log 2>&1 &
computing=$!
setsid make --no-print-directory "${touched[@]}" & # Together, so that they build the images once.
cluster=$!
trap '{ pkill -s $computing,$cluster || kill -- -$computing -$cluster; } 2>/dev/null || true' EXIT

status=0
wait -n -p ended || status=$?
[ $status != 0 ] || wait -n -p ended || status=$?
if [ $status = 0 ] || [ "$ended" = $computing ]; then
	cat bin/checks.log
else
	echo "The targets on the cluster failed; see above. The output of the others is in bin/checks.log." >&2
fi
exit $status
