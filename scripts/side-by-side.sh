#!/usr/bin/env bash
# Runs two lines of shell side by side: scripts/side-by-side.sh FIRST SECOND. Shows what the first prints as it comes, and then
# what the second has printed: all of it if that failed, otherwise its end. Fails if one of them fails.
set -uo pipefail
set -m # each gets a process group, so that Ctrl-C and SIGTERM reach all of its processes
second_output=$(mktemp)
trap 'rm -f "$second_output"' EXIT

bash -c "$2" >"$second_output" 2>&1 </dev/null &
second=$!
bash -c "$1" </dev/null &
first=$!
for signal in INT TERM; do
    trap "kill -$signal -- -$first -$second 2>/dev/null" "$signal"
done

# A signal ends `wait` before the process has ended.
status_of() {
    local status
    while wait "$1"; status=$?; kill -0 "$1" 2>/dev/null; do :; done
    return "$status"
}
status_of "$first"
first_status=$?
status_of "$second"
second_status=$?
if ((second_status)); then cat "$second_output"; else tail -n 2 "$second_output"; fi
((first_status == 0 && second_status == 0))
