#!/usr/bin/env bash
# Prints the section of this version in CHANGELOG.md. Usage: hack/release/notes.sh
source "$(dirname "$0")/common.sh"
awk -v version="${version%-rc.*}" '/^## / {found = $2 == version; next} found' CHANGELOG.md
