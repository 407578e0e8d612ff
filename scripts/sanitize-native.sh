#!/usr/bin/env bash
# Sends random messages through the C code of the accelerated reader, built with the address and undefined-behaviour
# sanitizers. Needs gcc or clang with their libasan and libubsan. The argument is the number of rounds.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
program=$(mktemp)
trap 'rm -f "$program"' EXIT
"${CC:-cc}" -std=c11 -g -O1 -Wall -Wextra -Werror -fsanitize=address,undefined -fno-sanitize-recover=all \
    -D_DEFAULT_SOURCE -o "$program" tests/native/fuzz.c
"$program" "${1:-100000}"
