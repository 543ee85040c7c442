#!/usr/bin/env bash
# Builds the programs of a tool from tools/<module file>.mod into bin/<program>-<id>. make/tools.mk calls this script.
# usage: build-tool.sh <tool> <minutes> <module file> <id> <program>... -- <argument of go build>...
# PLAN lists the tools that this run of make has to build: the script prints the position of this one,
# and downloads the modules of the next one meanwhile.
set -euo pipefail
cd "$(dirname "$0")/.."
tool=$1 minutes=$2 modfile=$3 id=$4
shift 4
programs=()
while [ "$1" != -- ]; do
	programs+=("$1")
	shift
done
shift

read -ra plan <<<"${PLAN:-}"
position= next=
for i in ${plan[@]+"${!plan[@]}"}; do # An empty array is unset in the bash of macOS.
	if [ "${plan[$i]%:*}" = "$tool" ]; then
		position="[$((i + 1))/${#plan[@]}] " next=${plan[$((i + 1))]:-}
	fi
done
printf '%sBuilding %s %s, about %s min\n' "$position" "$tool" "${id%-*}" "$minutes"
if [ -n "$next" ]; then
	nice go list -e -modfile="tools/${next#*:}.mod" -deps tool >/dev/null 2>&1 &
fi

mkdir -p bin
directory=$(mktemp -d bin/building-XXXXXX)
trap 'rm -rf "$directory"' EXIT
start=$SECONDS
go build -modfile="tools/$modfile.mod" -o "$directory/" "$@"
# A package may have another name than its program.
[ "${#programs[@]}" -gt 1 ] || [ -e "$directory/${programs[0]}" ] || mv "$directory"/* "$directory/${programs[0]}"
for program in "${programs[@]}"; do mv "$directory/$program" "bin/$program-$id"; done
printf '%sBuilt %s in %s s\n' "$position" "$tool" "$((SECONDS - start))"
