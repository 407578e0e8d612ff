#!/usr/bin/env bash
# Runs one part of a target of make, and says what it is and how long it took: scripts/part.sh WHAT COMMAND...
set -uo pipefail
what=$1
shift
echo "== $what"
SECONDS=0
# Wide enough for pytest's summary, so that the cause stands beside the name of a test that fails.
COLUMNS=${PART_COLUMNS:-220} "$@"
status=$?
took=$(printf '%d:%02d min' $((SECONDS / 60)) $((SECONDS % 60)))
if ((status)); then
    echo "== FAILED after $took: $what" >&2
    exit "$status"
fi
echo "== passed in $took: $what"
