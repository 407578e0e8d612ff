#!/usr/bin/env bash
# Sends random messages, records of Avro and Protobuf, and rows to write through the C code of this project, built with
# the address and undefined-behaviour sanitizers. Needs gcc or clang with their libasan and libubsan. The argument is the
# number of rounds.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
for name in fuzz fuzz_avro fuzz_protobuf fuzz_record_writer; do
    "${CC:-cc}" -std=c11 -g -O1 -Wall -Wextra -Werror -fsanitize=address,undefined -fno-sanitize-recover=all \
        -D_DEFAULT_SOURCE -o "$folder/$name" "tests/native/$name.c"
    "$folder/$name" "${1:-100000}"
done
