#!/usr/bin/env bash
# Sends random record batches, records of Avro and Protobuf, and rows to write through the C code of this project, built with
# the address and undefined-behaviour sanitizers. Needs gcc or clang with their libasan and libubsan. The arguments are
# the number of rounds, and the first one. By default each run has new rounds. A round that has failed can be kept in its
# fuzzer.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
first=${2:-$((RANDOM * RANDOM * 1000))}
export ASAN_OPTIONS=abort_on_error=1 UBSAN_OPTIONS=abort_on_error=1
for name in fuzz fuzz_avro fuzz_protobuf fuzz_record_writer; do
    "${CC:-cc}" -std=c11 -g -O1 -Wall -Wextra -Werror -fsanitize=address,undefined -fno-sanitize-recover=all \
        -D_DEFAULT_SOURCE -o "$folder/$name" "tests/native/$name.c"
    echo "$name: ${1:-100000} rounds from $first"
    "$folder/$name" "${1:-100000}" "$first"
done
